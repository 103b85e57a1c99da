"""A `PlanEnv` in this process where a `Pool` of workers could be: what `num_workers=0` is."""

from __future__ import annotations

from typing import Any

import numpy as np

from planvec.backends.stats import Stats
from planvec.envs.plan_env import EnvDescription, PlanEnv
from planvec.errors import EnvError
from planvec.rows.checks import Batch
from planvec.rows.promises import Broken, Completed, Promise
from planvec.rows.results import Rollouts, Transitions
from planvec.rows.rollouts import RolloutPlan

__all__ = ["InProcess"]


class InProcess:
    """The interface of `Pool`, served by this process.

    Args:
        plan_env: The environment; closed with this.
    """

    num_workers = 0

    def __init__(self, plan_env: PlanEnv) -> None:
        self._plan_env = plan_env
        self.description: EnvDescription = plan_env.describe()
        self.stats = Stats()

    def step(self, batch: Batch, return_state: bool, mask_errors: bool, keep: bool) -> Promise[Transitions]:
        """Step checked rows."""
        try:
            transitions = self._plan_env.rows.transitions(batch, return_state, mask_errors)
        except EnvError as error:
            return Broken(error)
        self._count(len(batch), transitions.infos)
        return Completed(transitions)

    def rollout(self, plan: RolloutPlan, mask_errors: bool, keep: bool) -> Promise[Rollouts]:
        """Roll out checked rows."""
        try:
            rollouts = self._plan_env.rows.rollouts(plan, mask_errors)
        except EnvError as error:
            return Broken(error)
        self._count(len(plan), rollouts.infos)
        return Completed(rollouts)

    def _count(self, num_rows: int, infos: dict[str, Any]) -> None:
        self.stats.num_rows += num_rows
        self.stats.masked_rows += int(np.sum(infos.get("_error", 0)))
        self.stats.num_chunks += 1

    def observe(self, states: np.ndarray[Any, Any]) -> Any:
        """The observations of checked states."""
        return self._plan_env.observe(states)

    def render(self, states: np.ndarray[Any, Any]) -> list[Any]:
        """The frames of checked states."""
        return self._plan_env.render(states)

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the environment."""
        return getattr(self._plan_env, name)(*args, **kwargs)

    def sync(self, state: Any) -> None:
        """Set the base state of the environment."""
        self._plan_env.set_state(state)

    def close(self) -> None:
        """Close the environment."""
        self._plan_env.close()
