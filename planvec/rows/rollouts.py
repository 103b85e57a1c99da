"""The arguments of `rollout_batch`. Letters: B rows, H horizon."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.rows import space_arrays
from planvec.rows.checks import MAX_STEPS, StateFormat, check_actions, check_seed, check_seeds, check_states
from planvec.rows.random_actions import ActionStreams

__all__ = ["RolloutPlan", "check_rollouts"]


@dataclass(slots=True)
class RolloutPlan:
    """The checked arguments of `rollout_batch`.

    Attributes:
        states: `[B]`.
        horizon: H.
        actions: The actions of all rows one after another, `[B * H, ...]`; None draws them.
        seed: Of the random actions.
        first_row: Index in the whole batch of the first row here: the streams go by it.
        seeds: `[B]` uint64, or None.
        discount: Factor per step.
    """

    states: NDArray[Any]
    horizon: int
    actions: Any
    seed: int
    first_row: int
    seeds: NDArray[np.uint64] | None
    discount: float

    def __len__(self) -> int:
        return len(self.states)

    def part(self, rows: slice) -> RolloutPlan:
        """The plan for some of the rows."""
        steps = slice(rows.start * self.horizon, rows.stop * self.horizon)
        return replace(
            self,
            states=self.states[rows],
            actions=None if self.actions is None else space_arrays.take_rows(self.actions, steps),
            first_row=self.first_row + rows.start,
            seeds=None if self.seeds is None else self.seeds[rows],
        )

    def copy(self) -> RolloutPlan:
        """The same, in arrays of its own."""
        actions = self.actions
        return replace(
            self,
            states=self.states.copy(),
            actions=None if actions is None else space_arrays.map_leaves(lambda leaf: leaf.copy(), actions),
            seeds=None if self.seeds is None else self.seeds.copy(),
        )

    def sequences(self, space: Space[Any]) -> Callable[[int], Iterable[Any]]:
        """For each row the actions to take, each as `env.step` takes it."""
        if self.actions is not None:
            listed = space_arrays.list_rows(space, self.actions)
            return lambda row: listed[row * self.horizon : (row + 1) * self.horizon]
        return ActionStreams(space, self.seed, self.first_row, len(self)).row


def check_rollouts(
    action_space: Space[Any],
    state_format: StateFormat,
    states: Any,
    horizon: int | None,
    actions: Any,
    seed: int | None,
    seeds: Any,
    discount: float,
) -> RolloutPlan:
    """Check and broadcast the arguments of `rollout_batch`; see there.

    Raises:
        InvalidBatchError: Naming the argument, what was expected and what came.
    """
    if horizon is None and actions is None:
        raise InvalidBatchError("horizon: expected an integer of at least 1, since no actions are given")
    horizon = _length(actions) if horizon is None else horizon
    is_integer = isinstance(horizon, (int, np.integer)) and not isinstance(horizon, bool)
    if not is_integer or not 1 <= horizon <= MAX_STEPS:
        raise InvalidBatchError(f"horizon: expected an integer from 1 to {MAX_STEPS}, got {horizon!r}")
    if not isinstance(discount, (int, float, np.number)) or not 0 <= discount <= 1:
        raise InvalidBatchError(f"discount: expected a number in [0, 1], got {discount!r}")
    seed = secrets.randbits(63) if seed is None else check_seed(seed)
    num_rows = None
    if actions is not None:
        actions, num_rows = _check_sequences(action_space, actions, int(horizon))
    states = check_states(state_format, states, num_rows)
    seeds = check_seeds(seeds, len(states))
    return RolloutPlan(states, int(horizon), actions, seed, 0, seeds, float(discount))


def _length(actions: Any) -> int:
    """H of actions `[B, H, ...]`."""
    while isinstance(actions, (dict, tuple)) and len(actions):
        actions = next(iter(actions.values())) if isinstance(actions, dict) else actions[0]
    try:
        return len(actions[0])
    except (TypeError, IndexError, KeyError) as error:
        raise InvalidBatchError(
            f"actions: expected shape (B, H, *action shape), got {np.shape(actions)}"
        ) from error


def _check_sequences(space: Space[Any], actions: Any, horizon: int) -> tuple[Any, int]:
    """Actions `[B, H, ...]` as `[B * H, ...]`, and B."""
    if not space_arrays.is_fixed(space):
        lengths = {len(sequence) for sequence in actions}
        if lengths - {horizon}:
            raise InvalidBatchError(f"actions: expected {horizon} per row, got {sorted(lengths)}")
        flat, _ = check_actions(space, [action for sequence in actions for action in sequence])
        return flat, len(actions)
    shapes = []

    def flatten(leaf: Any) -> Any:
        try:
            array = np.asarray(leaf)
        except ValueError as error:
            raise InvalidBatchError(
                f"actions: expected {horizon} per row, got rows of different lengths"
            ) from error
        shapes.append(array.shape)
        if array.ndim < 2 or array.shape[1] != horizon:
            raise InvalidBatchError(
                f"actions: expected shape (B, {horizon}, *action shape), got {array.shape}"
            )
        return array.reshape(-1, *array.shape[2:])

    flat, total = check_actions(space, space_arrays.map_leaves(flatten, actions))
    if len({shape[0] for shape in shapes}) > 1:
        raise InvalidBatchError(f"actions: expected as many rows in every part, got {shapes}")
    return flat, total // horizon
