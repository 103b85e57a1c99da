"""Call planvec by the argument names of whichever checkout is imported.

`paired.py` runs one benchmark on two checkouts. In older ones `make` and `PlanEnv` take the arguments of
`gymnasium.make` as their own, and `rollout_batch` takes `seed` instead of `action_seed`.
"""

from __future__ import annotations

import inspect
from typing import Any

import planvec

__all__ = ["action_seed", "open_env", "open_plan_env", "rows_only"]


def open_env(env: Any, *, env_kwargs: dict[str, Any] | None = None, **options: Any) -> planvec.BatchEnv:
    """Call `planvec.make`, without a kernel: benchmarks measure the steps of the environment itself.

    Args:
        env: An id or a factory.
        env_kwargs: For `gymnasium.make`.
        options: Further arguments of `planvec.make`.
    """
    return planvec.make(env, **_given(planvec.make, env_kwargs), **rows_only(planvec.make), **options)


def open_plan_env(env: Any, env_kwargs: dict[str, Any] | None = None) -> planvec.PlanEnv:
    """Call `planvec.PlanEnv`. Args: as of `open_env`."""
    return planvec.PlanEnv(env, **_given(planvec.PlanEnv, env_kwargs), **rows_only(planvec.PlanEnv))


def rows_only(function: Any) -> dict[str, bool]:
    """Return the argument of a function with which the environment steps itself, where there is one."""
    return {"compiled": False} if "compiled" in inspect.signature(function).parameters else {}


def action_seed(seed: int) -> dict[str, int]:
    """Return the argument of `rollout_batch` that fixes its random actions."""
    parameters = inspect.signature(planvec.BatchEnv.rollout_batch).parameters
    return {"action_seed" if "action_seed" in parameters else "seed": seed}


def _given(function: Any, env_kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """Return the arguments of a function that hand `env_kwargs` on to `gymnasium.make`."""
    if "env_kwargs" in inspect.signature(function).parameters:
        return {"env_kwargs": env_kwargs}
    return env_kwargs or {}
