"""What is recorded of an episode. Letters: T steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners.plan import Plan
from planvec.rows import (
    PLAYER_FIELD,
    Start,
    Transitions,
    empty_rows,
    finish_rows,
    has_players,
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
    state: NDArray[Any]
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
    states: NDArray[Any]
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
        return has_players(self.states.dtype)

    @property
    def values_of_player_0(self) -> NDArray[np.float64]:
        """Return `[T]`, the values for player 0, who gets the rewards; with one player, `values`."""
        if not self.has_players:
            return self.values
        return np.where(self.states[PLAYER_FIELD][: self.num_steps] == 1, -self.values, self.values)

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

    def __init__(self, action_space: Space[Any], observation_space: Space[Any]) -> None:
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

    def add(self, action: Any, value: float, num_env_steps: int, out: Transitions) -> None:
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


def _stacked(space: Space[Any], elements: list[Any]) -> Any:
    """Stack elements of a space to one batch."""
    rows = empty_rows(space, len(elements))
    stack_rows(space, elements, rows)
    return finish_rows(space, rows)
