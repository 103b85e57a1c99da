"""Steps several branches from each of some states, and replays some of them from their resets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from planvec.checking.reference import Outcome, ReferenceEnv, ReferenceStep
from planvec.rows import BatchStepper, action_masks, are_legal, draw_legal, finish_rows

_DEPTH = 4  # number of steps of a branch
_MAX_ROWS = 64  # largest number of rows in a batch


class Branch(NamedTuple):
    """Describes a branch: a state, and random actions from there."""

    seed: int  # seed of the reset that began the episode of the state
    previous_actions: tuple[Any, ...]  # the actions from that reset to the state
    state: Any
    actions: list[Any]


def random_branches(
    steps: Sequence[ReferenceStep],
    states: NDArray[Any],  # `[B]`, the state before each step
    action_space: gymnasium.Space[Any],
    num_restores: int,
    num_children: int,
) -> Iterator[Branch]:
    """Yield random branches from states that are spread evenly over the steps."""
    for row in np.unique(np.linspace(0, len(steps) - 1, num_restores).astype(int)):
        for _ in range(num_children):
            actions = [action_space.sample() for _ in range(_DEPTH)]
            yield Branch(steps[row].seed, steps[row].actions[:-1], states[row], actions)


def step_branches(
    env: BatchStepper, branches: Sequence[Branch], order: NDArray[np.integer[Any]]
) -> list[list[Outcome]]:
    """Step each branch to its end, or to the end of its episode."""
    # Returns the results of the steps of each branch, in the order of `branches`.
    space = env.observation_space
    outcomes = [list[Outcome]() for _ in branches]
    for rows in split_rows(order):
        states = np.empty(len(rows), env.state_dtype)
        for index, row in enumerate(rows):
            states[index] = branches[row].state
        ended = np.zeros(len(rows), bool)
        for depth in range(_DEPTH):
            _make_legal(env.action_space, states, ended, branches, rows, depth)
            actions = finish_rows(env.action_space, [branches[row].actions[depth] for row in rows])
            out = env.step_batch(actions, states, blocking=True)
            for index, row in enumerate(rows):
                if not ended[index]:
                    outcomes[row].append(out.row(space, index))
            states, ended = out.new_states, out.terminated | out.truncated
    return outcomes


def _make_legal(
    space: gymnasium.Space[Any],
    states: NDArray[Any],
    ended: NDArray[np.bool_],
    branches: Sequence[Branch],
    rows: NDArray[Any],
    depth: int,
) -> None:
    """Replace the actions of branches that are not legal where they have led."""
    masks = action_masks(space, states)
    if masks is None:
        return
    actions = np.array([branches[row].actions[depth] for row in rows])
    legal = draw_legal(space, masks, np.random.default_rng(depth).random(actions.shape))
    for index in np.flatnonzero(~(are_legal(space, masks, actions) | ended)).tolist():
        branches[rows[index]].actions[depth] = legal[index]


def replay_branches(
    env: ReferenceEnv,
    branches: Sequence[Branch],
    outcomes: Sequence[Sequence[Outcome]],
    order: NDArray[np.integer[Any]],
    seconds: float,
    compare: Callable[[Outcome, Outcome, str], None],
) -> int:
    """Replay branches from their resets with the reference, and compare each step. Stop when time is up."""
    # Returns the number of branches that were replayed, at least 1.
    started, num_replayed = time.monotonic(), 0
    for row in order:
        branch = branches[row]
        env.reset(branch.seed)
        for action in branch.previous_actions:
            env.step(action)
        for depth, got in enumerate(outcomes[row]):
            compare(env.step(branch.actions[depth]), got, f"child {row}, step {depth}")
        num_replayed += 1
        if time.monotonic() - started > seconds:
            break
    return num_replayed


def split_rows(rows: NDArray[Any]) -> list[NDArray[Any]]:
    """Split row numbers into batches of bounded size."""
    return np.array_split(rows, max(1, -(-len(rows) // _MAX_ROWS)))
