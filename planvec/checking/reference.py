"""Steps an environment without planvec. Its results are the reference of the exactness check."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gymnasium

from planvec.codecs import LegalActions, same
from planvec.envs import PlanEnv
from planvec.rows import empty_rows, finish_rows, own_copy, stack_rows, take_row

# the result of `gymnasium.Env.step`, with the types that a row of a batch has
Outcome = tuple[Any, float, bool, bool, dict[str, Any]]

_MIN_EPISODES = 4
_NUM_REPEATED_RESETS = 10


class ReferenceEnv:
    """Steps an environment without planvec. Every episode gets a new environment."""

    def __init__(self, make: Callable[[], gymnasium.Env[Any, Any]], changed: PlanEnv | None) -> None:
        self._make = make
        self._changed = changed
        self._env: gymnasium.Env[Any, Any] | None = None
        # seed of a reset -> its first observation and info
        self.starts: dict[int, tuple[Any, dict[str, Any]]] = {}

    def reset(self, seed: int) -> None:
        """Start an episode."""
        if self._changed is not None:
            self._env = self._changed.env
            start = self._changed.codec.reset(seed, None)
        else:
            self.close()
            self._env = self._make()
            start = self._env.reset(seed=seed)
        self.starts.setdefault(seed, (self._converted(start[0]), own_copy(start[1])))

    def repeats_infos(self, seed: int) -> bool:
        """Return whether resets with a seed always give the same info. Some infos contain random values."""
        # A random value from a small set (an action) may be the same by chance, so there are ten resets.
        infos = []
        for _ in range(_NUM_REPEATED_RESETS):
            self.starts.clear()
            self.reset(seed)
            infos.append(self.starts[seed][1])
        return all(same(infos[0], info) for info in infos[1:])

    def step(self, action: Any) -> Outcome:
        """Step once and return a copy of the result."""
        assert self._env is not None
        observation, reward, terminated, truncated, info = self._env.step(own_copy(action))
        return self._converted(observation), float(reward), bool(terminated), bool(truncated), own_copy(info)

    def close(self) -> None:
        """Close the environment of the current episode."""
        if self._env is not None:
            self._env.close()
            self._env = None

    def _converted(self, observation: Any) -> Any:
        """Return an observation in the form that a batch has. Some environments return lists for arrays."""
        assert self._env is not None
        space = self._env.observation_space
        rows = empty_rows(space, 1)
        stack_rows(space, [own_copy(observation)], rows)
        return take_row(space, finish_rows(space, rows), 0)


class ReferenceStep(NamedTuple):
    """Records one step of a `ReferenceEnv`."""

    seed: int  # seed of the reset that began the episode
    actions: tuple[Any, ...]  # All actions since that reset. The last one is the action of this step.
    outcome: Outcome  # the result of the step


def random_steps(
    env: ReferenceEnv, action_space: gymnasium.Space[Any], num_steps: int, seed: int
) -> Iterator[ReferenceStep]:
    """Take random steps and yield them."""
    # There are at least four episodes if there are enough steps, because one reset might be correct by
    # accident.
    actions, drawn = tuple[Any, ...](), LegalActions(action_space)
    env.reset(seed)
    drawn.note(*env.starts[seed])
    for _ in range(num_steps):
        actions = (*actions, drawn.sample())
        outcome = env.step(actions[-1])
        drawn.note(outcome[0], outcome[4])
        yield ReferenceStep(seed, actions, outcome)
        if outcome[2] or outcome[3] or len(actions) * _MIN_EPISODES >= num_steps:
            seed, actions = seed + 1, ()
            env.reset(seed)
            drawn.note(*env.starts[seed])
