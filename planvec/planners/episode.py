"""Act for one episode, with a new plan at every step (receding horizon). Letters: T steps."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.planners.base import Planner, one_state
from planvec.planners.plan import Plan
from planvec.rows import BatchStepper, empty_rows, finish_rows, one_action, stack_rows, take_row

__all__ = ["Episode", "EpisodeCallback", "EpisodeRecorder", "run_episode"]

EpisodeCallback = Callable[[int, float, int], bool | None]
"""`callback(num_steps, total_return, num_env_steps)` after each step; True ends the episode."""


@dataclass(frozen=True, slots=True, eq=False)
class Episode:
    """A played episode. Replay it in Gymnasium: `env.reset(seed=seed)`, then `env.step` each action.

    Attributes:
        seed: The seed of the reset and of every decision.
        actions: `[T, ...]`, stacked by the action space.
        rewards: `[T]` float64.
        observations: `[T + 1, ...]`, stacked by the observation space (nested for Dict and Tuple).
        terminated: Whether the environment ended the episode.
        truncated: Whether the time limit ended it. With neither, `max_steps` or the callback ended it.
        num_env_steps: Environment steps simulated by the planner.
        elapsed: Seconds.
    """

    seed: int
    actions: Any
    rewards: NDArray[np.float64]
    observations: Any
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


class EpisodeRecorder:
    """Collects an episode step by step. It is consistent after an interrupt too.

    Args:
        action_space: The space of one action.
        observation_space: The space of one observation.
    """

    def __init__(self, action_space: Space[Any], observation_space: Space[Any]) -> None:
        self._action_space = action_space
        self._observation_space = observation_space
        self._steps: list[tuple[Any, Any, float]] = []
        self._started = time.perf_counter()
        self._first: Any = None
        self._seed = 0
        self.terminated = False
        self.truncated = False
        self.num_env_steps = 0
        self.total_return = 0.0

    @property
    def num_steps(self) -> int:
        """Return the number of steps so far."""
        return len(self._steps)

    def begin(self, seed: int, observation: Any) -> None:
        """Record the start, and clear what was recorded before.

        Args:
            seed: The seed of the reset.
            observation: The first observation.
        """
        self._seed, self._first, self._steps = seed, observation, []
        self.terminated = self.truncated = False
        self.num_env_steps, self.total_return = 0, 0.0
        self._started = time.perf_counter()

    def add(self, plan: Plan, out: Any) -> None:
        """Record one step.

        Args:
            plan: The decision.
            out: The `Transitions` of one row, those of its action.
        """
        observation = take_row(self._observation_space, out.observations, 0)
        self.num_env_steps += plan.num_env_steps
        self.total_return += float(out.rewards[0])
        self.terminated, self.truncated = bool(out.terminated[0]), bool(out.truncated[0])
        self._steps.append((plan.action, observation, float(out.rewards[0])))

    def episode(self) -> Episode:
        """Return the episode so far."""
        steps = list(self._steps)
        return Episode(
            seed=self._seed,
            actions=_stacked(self._action_space, [action for action, _, _ in steps]),
            rewards=np.array([reward for _, _, reward in steps], np.float64),
            observations=_stacked(
                self._observation_space,
                [self._first, *(observation for _, observation, _ in steps)],
            ),
            terminated=self.terminated,
            truncated=self.truncated,
            num_env_steps=self.num_env_steps,
            elapsed=time.perf_counter() - self._started,
        )


def run_episode(
    env: BatchStepper,
    planner: Planner,
    *,
    seed: int | None = None,
    max_steps: int | None = None,
    callback: EpisodeCallback | None = None,
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
        callback: `callback(num_steps, total_return, num_env_steps)` after each step; True stops.
        recorder: Records the steps, to read them after an interrupt; None uses a new one.

    Raises:
        ValueError: `max_steps` is below 1, or the seed is out of range.
        InvalidBatchError, UnsupportedEnvError, EnvError: Errors of the planner or the environment.
    """
    if max_steps is not None and max_steps < 1:
        raise ValueError(f"max_steps: expected at least 1, got {max_steps}")
    if seed is not None and not 0 <= seed < 2**64:
        raise ValueError(f"seed: expected at least 0 and below 2**64, got {seed}")
    seed = secrets.randbits(32) if seed is None else seed
    recorder = recorder or EpisodeRecorder(env.action_space, env.observation_space)
    decisions = np.random.SeedSequence(seed)
    start = env.reset(seed=seed)
    recorder.begin(seed, start.observation)
    states = one_state(env, start.state)
    info = start.info
    plan: Plan | None = None
    while max_steps is None or recorder.num_steps < max_steps:
        plan_seed = int(decisions.spawn(1)[0].generate_state(1, np.uint64)[0])
        plan = planner.plan(env, states[0], seed=plan_seed, previous=plan, info=info)
        out = env.step_batch(one_action(env.action_space, plan.action), states, blocking=True)
        states = out.new_states
        info = out.row(env.observation_space, 0)[-1]
        recorder.add(plan, out)
        stop = callback is not None and callback(
            recorder.num_steps, recorder.total_return, recorder.num_env_steps
        )
        if stop or recorder.terminated or recorder.truncated:
            break
    return recorder.episode()


def _stacked(space: Space[Any], elements: list[Any]) -> Any:
    """Stack elements of a space to one batch."""
    rows = empty_rows(space, len(elements))
    stack_rows(space, elements, rows)
    return finish_rows(space, rows)
