"""Opens environments for planning: `make`, `BatchEnv` and `PlanEnv`."""

from __future__ import annotations

# Hands on the names that other folders use.
# ruff: noqa: F401
# mypy: implicit-reexport
from planvec.envs.opening import BatchEnv, Makeable, PlanEnv, make
from planvec.envs.sources import EnvSource, find_source, import_named, make_env
