"""Opens environments for planning: `make`, `BatchEnv` and `PlanEnv`."""

from __future__ import annotations

from planvec.envs.batch_env import BatchEnv
from planvec.envs.classes import Makeable
from planvec.envs.names import find_source, import_named
from planvec.envs.opening import make
from planvec.envs.plan_env import PlanEnv
from planvec.envs.sources import EnvSource, make_env

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
