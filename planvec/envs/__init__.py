"""Opens environments for planning: `make`, `BatchEnv` and `PlanEnv`."""

from __future__ import annotations

from planvec.envs.batch_env import BatchEnv
from planvec.envs.opening import make
from planvec.envs.plan_env import PlanEnv
from planvec.envs.registered import RegisteredIds
from planvec.envs.sources import EnvSource, find_spec, make_env

__all__ = ["BatchEnv", "EnvSource", "PlanEnv", "RegisteredIds", "find_spec", "make", "make_env"]
