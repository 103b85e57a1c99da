"""Opens environments for planning: `make`, `BatchEnv` and `PlanEnv`."""

from __future__ import annotations

from planvec.envs.batch_env import BatchEnv
from planvec.envs.opening import Makeable, make
from planvec.envs.plan_env import PlanEnv
from planvec.envs.sources import EnvSource, find_source, import_named, make_env

__all__ = [
    "BatchEnv",
    "EnvSource",
    "Makeable",
    "PlanEnv",
    "find_source",
    "import_named",
    "make",
    "make_env",
]
