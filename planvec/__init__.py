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
    "BatchEnv": "planvec.envs.batch_env",
    "BatchStepper": "planvec.rows.results",
    "CEM": "planvec.planners.shooting.planners",
    "CheckReport": "planvec.checking.report",
    "ClosedError": "planvec.errors",
    "Codec": "planvec.codecs",
    "Copied": "planvec.codecs",
    "EnvError": "planvec.errors",
    "Episode": "planvec.planners.episode",
    "ExternalProcess": "planvec.backends.processes",
    "ICEM": "planvec.planners.shooting.planners",
    "InvalidBatchError": "planvec.errors",
    "MCTS": "planvec.planners.mcts.mcts",
    "MPPI": "planvec.planners.shooting.mppi",
    "Plan": "planvec.planners.plan",
    "NormalDt": "planvec.planners.swarm.samplers",
    "PlanEnv": "planvec.envs.plan_env",
    "Planner": "planvec.planners.base",
    "PlanvecError": "planvec.errors",
    "Promise": "planvec.rows.promises",
    "RandomShooting": "planvec.planners.shooting.planners",
    "Rollouts": "planvec.rows.results",
    "SavedState": "planvec.rows.saved_state",
    "Start": "planvec.rows.results",
    "Swarm": "planvec.planners.swarm.swarm",
    "SwarmWave": "planvec.planners.swarm.swarm",
    "Transitions": "planvec.rows.results",
    "Tree": "planvec.planners.mcts.tree",
    "UnsupportedEnvError": "planvec.errors",
    "WorkerCrashedError": "planvec.errors",
    "WorkerStartError": "planvec.errors",
    "WorkerTimeoutError": "planvec.errors",
    "WrapperCodec": "planvec.codecs",
    "check_env": "planvec.checking.check",
    "codec_for": "planvec.codecs",
    "make": "planvec.envs.make",
    "register_codec": "planvec.codecs",
    "register_wrapper_codec": "planvec.codecs",
    "run_episode": "planvec.planners.episode",
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
