"""planvec: a planning-oriented batch state stepper for Gymnasium environments.

A transition is a pure function of (state, action, dt, seed): the same bits in every worker, with any
number of workers. `planvec.make(env_id, num_workers=2)` opens an environment; `step_batch` steps any of
its states.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_EXPORTS = {
    "BatchEnv": "planvec.envs",
    "BatchStepper": "planvec.rows",
    "CEM": "planvec.planners",
    "CheckReport": "planvec.checking",
    "ClosedError": "planvec.errors",
    "Codec": "planvec.codecs",
    "Copied": "planvec.codecs",
    "EnvError": "planvec.errors",
    "Episode": "planvec.planners",
    "ExternalProcess": "planvec.backends",
    "ICEM": "planvec.planners",
    "InvalidBatchError": "planvec.errors",
    "MCTS": "planvec.planners",
    "MPPI": "planvec.planners",
    "NormalDt": "planvec.planners",
    "Plan": "planvec.planners",
    "PlanEnv": "planvec.envs",
    "Planner": "planvec.planners",
    "PlanvecError": "planvec.errors",
    "Promise": "planvec.rows",
    "RandomShooting": "planvec.planners",
    "RolloutRequest": "planvec.planners",
    "Rollouts": "planvec.rows",
    "SavedState": "planvec.rows",
    "Search": "planvec.planners",
    "Start": "planvec.rows",
    "StepRequest": "planvec.planners",
    "Swarm": "planvec.planners",
    "SwarmWave": "planvec.planners",
    "Transitions": "planvec.rows",
    "Tree": "planvec.planners",
    "UnsupportedEnvError": "planvec.errors",
    "WorkerCrashedError": "planvec.errors",
    "WorkerStartError": "planvec.errors",
    "WorkerTimeoutError": "planvec.errors",
    "WrapperCodec": "planvec.codecs",
    "check_env": "planvec.checking",
    "codec_for": "planvec.codecs",
    "make": "planvec.envs",
    "register_codec": "planvec.codecs",
    "register_wrapper_codec": "planvec.codecs",
    "run_episode": "planvec.planners",
}
"""Public name -> the module that it comes from, imported when the name is first used."""

__all__ = list(_EXPORTS)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    if name not in _EXPORTS:
        raise AttributeError(f"module 'planvec' has no attribute {name!r}")
    value = getattr(importlib.import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
