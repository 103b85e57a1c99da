"""An environment stepped by itself: what the exactness check holds all else against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium

from planvec.codecs import same
from planvec.envs.plan_env import PlanEnv
from planvec.rows.space_arrays import empty_rows, finish_rows, own_copy, stack_rows, take_row

__all__ = ["Alone", "Outcome"]

Outcome = tuple[Any, float, bool, bool, dict[str, Any]]
"""What `gymnasium.Env.step` returns, in the types of a batch's row."""


class Alone:
    """The environment by itself, new for every episode.

    Args:
        make: Makes one.
        changed: The environment as planvec changes it (Atari's stickiness), to be stepped on by itself; None
            where planvec changes nothing.
    """

    def __init__(self, make: Callable[[], gymnasium.Env[Any, Any]], changed: PlanEnv | None) -> None:
        self._make = make
        self._changed = changed
        self._env: gymnasium.Env[Any, Any] | None = None
        self.starts: dict[int, tuple[Any, dict[str, Any]]] = {}  # by seed: first observation and info

    def reset(self, seed: int) -> None:
        """Start an episode."""
        if self._changed is not None:
            self._env = self._changed.env
            start = self._changed.codec.reset(seed, None)
        else:
            self.close()
            self._env = self._make()
            start = self._env.reset(seed=seed)
        self.starts.setdefault(seed, (self._stacked(start[0]), own_copy(start[1])))

    def repeats_infos(self, seed: int) -> bool:
        """Whether two resets with a seed give the same info: some environments put chance into it."""
        infos = []
        for _ in range(2):
            self.starts.clear()
            self.reset(seed)
            infos.append(self.starts[seed][1])
        return same(*infos)

    def _stacked(self, observation: Any) -> Any:
        """An observation in the form that a batch gives it: some return lists for arrays."""
        assert self._env is not None
        space = self._env.observation_space
        rows = empty_rows(space, 1)
        stack_rows(space, [own_copy(observation)], rows)
        return take_row(space, finish_rows(space, rows), 0)

    def step(self, action: Any) -> Outcome:
        """One step, and a copy of what came out."""
        assert self._env is not None
        observation, reward, terminated, truncated, info = self._env.step(own_copy(action))
        return self._stacked(observation), float(reward), bool(terminated), bool(truncated), own_copy(info)

    def close(self) -> None:
        """Close it."""
        if self._env is not None:
            self._env.close()
            self._env = None
