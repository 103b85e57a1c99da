"""Opens environments for planning: `make`, `BatchEnv` and `PlanEnv`."""

from __future__ import annotations

from planvec.envs.opening import BatchEnv, Makeable, PlanEnv, make
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
