"""Plays an episode with a planner, records it, and writes its trajectory to a file. Letters: T steps."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners.base import Planner, check_planner, check_stepper, one_state
from planvec.planners.plan import Plan
from planvec.planners.root_actions import arrays_of_leaves, tree_of_leaves
from planvec.planners.search import PlanCallback
from planvec.rows import (
    BatchStepper,
    Start,
    Transitions,
    arrays_of_states,
    check_integer,
    check_seed,
    empty_rows,
    finish_rows,
    has_players,
    one_action,
    players_to_move,
    stack_rows,
    take_row,
)


@dataclass(frozen=True, slots=True, eq=False)
class EpisodeStep:
    """One step of an episode, as callbacks see it.

    Attributes:
        num_steps: Steps so far, this one included.
        total_return: Sum of the rewards so far.
        num_env_steps: Environment steps that the planner has simulated so far.
        plan: The decision.
        state: `[1]`, the state at which it was made.
        transition: `Transitions` of one row, those of the action.
    """

    num_steps: int
    total_return: float
    num_env_steps: int
    plan: Plan
    state: np.ndarray
    transition: Transitions


EpisodeCallback = Callable[[EpisodeStep], bool | None]  # called after each step; True ends the episode


@dataclass(frozen=True, slots=True, eq=False)
class Episode:
    """A played episode.

    The states replay it exactly: a step from `states[t]` with `actions[t]` leads to `states[t + 1]`, in any
    worker. (Gymnasium replays it from the seed and the actions where stepping draws from nothing but
    `np_random`, which excludes the sticky actions of Atari.)

    Attributes:
        seed: The seed of the reset and of every decision.
        states: `[T + 1]`.
        actions: `[T, ...]`, stacked by the action space.
        rewards: `[T]` float64.
        observations: `[T + 1, ...]`, stacked by the observation space (nested for Dict and Tuple).
        values: `[T]` float64, the value of each decision: the return that the planner expected, in a game of
            two players for the player to move.
        terminated: Whether the environment ended the episode.
        truncated: Whether the time limit ended it. With neither, `max_steps` or the callback ended it.
        num_env_steps: Environment steps simulated by the planner.
        elapsed: Seconds.
    """

    seed: int
    states: np.ndarray
    actions: Any
    rewards: NDArray[np.float64]
    observations: Any
    values: NDArray[np.float64]
    terminated: bool
    truncated: bool
    num_env_steps: int
    elapsed: float

    @property
    def num_steps(self) -> int:
        """Return T."""
        return len(self.rewards)

    @property
    def total_return(self) -> float:
        """Return the undiscounted sum of the rewards."""
        return float(self.rewards.sum())

    @property
    def has_players(self) -> bool:
        """Whether it is a game of two players."""
        return has_players(self.states)

    @property
    def values_of_player_0(self) -> NDArray[np.float64]:
        """Return `[T]`, the values for player 0, who gets the rewards; with one player, `values`."""
        players = players_to_move(self.states)
        if players is None:
            return self.values
        return np.where(players[: self.num_steps] == 1, -self.values, self.values)

    @property
    def outcome(self) -> str:
        """How it ended: "terminated", "truncated (time limit)", or "stopped" before its end."""
        if self.terminated:
            return "terminated"
        return "truncated (time limit)" if self.truncated else "stopped"

    def __repr__(self) -> str:
        return (
            f"<Episode: {self.num_steps} steps, return {self.total_return:.4g}, {self.outcome}, "
            f"seed {self.seed}>"
        )


class _Step(NamedTuple):
    """What is recorded of a step; `EpisodeStep` and `Episode` describe the parts."""

    action: Any
    state: Any
    observation: Any
    reward: float
    value: float


class EpisodeRecorder:
    """Collects an episode step by step. It is consistent after an interrupt too.

    Args:
        action_space: The space of one action.
        observation_space: The space of one observation.

    Attributes:
        seed: The seed of the episode.
        terminated: Whether the environment has ended it.
        truncated: Whether the time limit has ended it.
        num_env_steps: Environment steps that the planner has simulated.
        total_return: Sum of the rewards.
        earlier_seconds: Seconds that were spent before the episode was resumed.
    """

    def __init__(self, action_space: Space[object], observation_space: Space[object]) -> None:
        self._action_space = action_space
        self._observation_space = observation_space
        self._steps: list[_Step] = []
        self._started = time.perf_counter()
        self.earlier_seconds = 0.0
        self._first: Start | None = None
        self.seed = 0
        self.terminated = False
        self.truncated = False
        self.num_env_steps = 0
        self.total_return = 0.0

    @property
    def num_steps(self) -> int:
        """Return the number of steps so far."""
        return len(self._steps)

    @property
    def has_ended(self) -> bool:
        """Whether the environment or the time limit has ended the episode."""
        return self.terminated or self.truncated

    @property
    def last_state(self) -> Any:
        """The state that the episode has reached.

        Raises:
            InvalidBatchError: No episode was begun.
        """
        if self._first is None:
            raise InvalidBatchError("recorder: expected an episode that was begun, got a new recorder")
        return self._steps[-1].state if self._steps else self._first.state

    def begin(self, seed: int, start: Start) -> None:
        """Record the start, and clear what was recorded before.

        Args:
            seed: The seed of the reset.
            start: What the reset returned.
        """
        self.seed, self._first, self._steps = seed, start, []
        self.terminated = self.truncated = False
        self.num_env_steps, self.total_return = 0, 0.0
        self._started = time.perf_counter()

    def add(self, action: object, value: float, num_env_steps: int, out: Transitions) -> None:
        """Record one step.

        Args:
            action: The action.
            value: The value of the decision.
            num_env_steps: Environment steps that the planner has simulated for it.
            out: The `Transitions` of one row, those of the action.
        """
        observation = take_row(self._observation_space, out.observations, 0)
        reward = float(out.rewards[0])
        self.num_env_steps += num_env_steps
        self.total_return += reward
        self.terminated, self.truncated = bool(out.terminated[0]), bool(out.truncated[0])
        self._steps.append(_Step(action, out.new_states[0], observation, reward, value))

    def actions(self) -> Any:
        """Return the actions `[T, ...]` so far, stacked by the action space."""
        return _stacked(self._action_space, [step.action for step in self._steps])

    def episode(self) -> Episode:
        """Return the episode so far."""
        steps, first = list(self._steps), self._first
        assert first is not None
        states = np.empty(len(steps) + 1, first.state.dtype if isinstance(first.state, np.void) else object)
        for row, state in enumerate([first.state, *(step.state for step in steps)]):
            states[row] = state
        observations = [first.observation, *(step.observation for step in steps)]
        return Episode(
            seed=self.seed,
            states=states,
            actions=_stacked(self._action_space, [step.action for step in steps]),
            rewards=np.array([step.reward for step in steps], np.float64),
            observations=_stacked(self._observation_space, observations),
            values=np.array([step.value for step in steps], np.float64),
            terminated=self.terminated,
            truncated=self.truncated,
            num_env_steps=self.num_env_steps,
            elapsed=self.earlier_seconds + time.perf_counter() - self._started,
        )


def _stacked(space: Space[object], elements: list[Any]) -> Any:
    """Stack elements of a space to one batch."""
    rows = empty_rows(space, len(elements))
    stack_rows(space, elements, rows)
    return finish_rows(space, rows)


# -- Act for one episode, with a new plan at every step (receding horizon) -----------------------------------


def run_episode(
    env: BatchStepper,
    planner: Planner,
    *,
    seed: int | None = None,
    max_steps: int | None = None,
    callback: EpisodeCallback | None = None,
    plan_callback: PlanCallback | None = None,
    recorder: EpisodeRecorder | None = None,
) -> Episode:
    """Play one episode: plan, take one step, and plan again at the new state.

    Real steps draw from the generator in the state, as the environment itself would; only the steps of the
    planner are reseeded.

    Args:
        env: The stepper, which is reset.
        planner: Chooses each action.
        seed: Fixes the start (`env.reset(seed=seed)`), what is random, and every decision; None draws one.
        max_steps: Largest number of steps; None goes on until the episode ends, which may never happen
            without a time limit.
        callback: `callback(step)` with an `EpisodeStep` after each step; True ends the episode.
        plan_callback: `plan_callback(num_simulations, num_env_steps)` after each batch of a decision; True
            ends the decision.
        recorder: Records the steps, to read them after an interrupt; None uses a new one.

    Raises:
        TypeError: `env` or `planner` is something else.
        ValueError: `max_steps` is below 1, or the seed is out of range.
        InvalidBatchError, UnsupportedEnvError, EnvError: Errors of the planner or the environment.
    """
    check_stepper(env)
    check_planner(planner)
    seed = secrets.randbits(32) if seed is None else check_seed(seed)
    recorder = recorder or EpisodeRecorder(env.action_space, env.observation_space)
    start = env.reset(seed=seed)
    recorder.begin(seed, start)
    return resume_episode(
        env,
        planner,
        recorder,
        info=start.info,
        previous=None,
        max_steps=max_steps,
        callback=callback,
        plan_callback=plan_callback,
    )


def resume_episode(
    env: BatchStepper,
    planner: Planner,
    recorder: EpisodeRecorder,
    *,
    info: dict[str, Any],
    previous: Plan | None,
    max_steps: int | None = None,
    callback: EpisodeCallback | None = None,
    plan_callback: PlanCallback | None = None,
) -> Episode:
    """Go on with an episode that was interrupted. It ends as if it had not been.

    Args:
        env: The stepper.
        planner: The planner of the episode, with the same settings.
        recorder: Holds the start and the steps so far.
        info: The info at the last state.
        previous: The last decision, with its `search_data`; None before the first one.
        max_steps: Largest number of steps, those before the interrupt included.
        callback: As in `run_episode`.
        plan_callback: As in `run_episode`.

    Raises:
        TypeError: `env` or `planner` is something else.
        InvalidBatchError, UnsupportedEnvError, EnvError: Errors of the planner or the environment.
    """
    check_stepper(env)
    check_planner(planner)
    if max_steps is not None:
        check_integer("max_steps", max_steps, 1)
    states, plan = one_state(env, recorder.last_state), previous
    decisions = np.random.SeedSequence(recorder.seed, n_children_spawned=recorder.num_steps)
    options: dict[str, Any] = {} if plan_callback is None else {"callback": plan_callback}
    while not recorder.has_ended and (max_steps is None or recorder.num_steps < max_steps):
        plan_seed = int(decisions.spawn(1)[0].generate_state(1, np.uint64)[0])
        plan = planner.plan(env, states[0], seed=plan_seed, previous=plan, info=info, **options)
        before = states
        out = env.step_batch(one_action(env.action_space, plan.action), states, blocking=True)
        states = out.new_states
        info = out.row(env.observation_space, 0)[-1]
        recorder.add(plan.action, plan.value, plan.num_env_steps, out)
        if callback is not None:
            step = EpisodeStep(
                recorder.num_steps, recorder.total_return, recorder.num_env_steps, plan, before, out
            )
            if callback(step):
                break
    return recorder.episode()


# -- An episode as a NumPy archive that loads without running code, and how it is stepped again --------------


def trajectory_arrays(
    episode: Episode, action_space: Space[object], observation_space: Space[object]
) -> dict[str, np.ndarray]:
    """Return the arrays of an episode. No time is among them, so they do not depend on the workers."""
    # Each part of a Dict or Tuple has a key: "observations.<path>". Parts that are not arrays of numbers or
    # text (such as those of a Graph space) are left out.
    return {
        **arrays_of_states("states", episode.states),
        **arrays_of_actions(episode.actions, action_space),
        "rewards": episode.rewards,
        **arrays_of_leaves(observation_space, "observations", episode.observations),
        "values": episode.values,
        "terminated": np.array(episode.terminated),
        "truncated": np.array(episode.truncated),
        "seed": np.array(episode.seed, np.uint64),
    }


def arrays_of_actions(actions: object, action_space: Space[object]) -> dict[str, np.ndarray]:
    """Return stacked actions `[T, ...]` as arrays: "actions", or "actions.<path>" for each part."""
    return arrays_of_leaves(action_space, "actions", actions)


def actions_of_arrays(arrays: Mapping[str, np.ndarray], action_space: Space[object]) -> Any:
    """Return the stacked actions `[T, ...]` that `arrays_of_actions` turned into arrays."""
    return tree_of_leaves(action_space, "actions", arrays)


def save_trajectory(
    path: Path, episode: Episode, action_space: Space[object], observation_space: Space[object]
) -> None:
    """Write `trajectory_arrays` to a file. Read it with `np.load(path, allow_pickle=False)`."""
    np.savez(path, **trajectory_arrays(episode, action_space, observation_space))  # type: ignore[arg-type]


def replay_steps(
    env: Any,
    recorder: EpisodeRecorder,
    seed: int,
    actions: object,
    numbers: Sequence[tuple[float, int]],
    dt: int = 1,
    seeds: NDArray[np.uint64] | None = None,
) -> tuple[Any, dict[str, Any]]:
    """Step an episode again from its seed and its actions, and record it."""
    # `seeds`: `[T]`, those of the steps; None: the generator in the state decides.
    # Returns the last state, and the info there.
    start = env.reset(seed=seed)
    recorder.begin(seed, start)
    info: dict[str, Any] = start.info
    states = np.empty(1, env.state_dtype)
    states[0] = start.state
    for row, (value, num_env_steps) in enumerate(numbers):
        action = take_row(env.action_space, actions, row)
        own = None if seeds is None else seeds[row : row + 1]
        out = env.step_batch(one_action(env.action_space, action), states, dt, seeds=own, blocking=True)
        recorder.add(action, value, num_env_steps, out)
        info, states = out.row(env.observation_space, 0)[-1], out.new_states
    return states[0], info
