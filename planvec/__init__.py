"""planvec: a planning-oriented batch state stepper for Gymnasium environments.

A transition is a pure function of (state, action, dt, seed): the same bits in every worker, with any
number of workers. `planvec.make(env_id, num_workers=2)` opens an environment; `step_batch` steps any of
its states.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from planvec.lazy import lazy_names

if TYPE_CHECKING:
    from planvec import plots as plots
    from planvec import report as report
    from planvec import vector as vector
    from planvec import video as video
    from planvec.backends import Backend, ExternalProcess, Sharded, Stats, Worker, WorkerExit
    from planvec.checking import CheckReport, check_env
    from planvec.codecs import (
        Codec,
        Copied,
        Replayed,
        WrapperCodec,
        codec_for,
        register_codec,
        register_wrapper_codec,
    )
    from planvec.envs import BatchEnv, PlanEnv, make
    from planvec.errors import (
        ClosedError,
        EnvError,
        InvalidBatchError,
        PlanvecError,
        UnsupportedEnvError,
        WorkerCrashedError,
        WorkerStartError,
        WorkerTimeoutError,
    )
    from planvec.exploring import Archive, Downscaled, Explorer
    from planvec.kernels import batch_kernel, kernel
    from planvec.planners import (
        CEM,
        ICEM,
        IW,
        MCTS,
        MPPI,
        Episode,
        NormalDt,
        Plan,
        Planner,
        RandomShooting,
        RolloutIW,
        RolloutRequest,
        Screens,
        Search,
        StepRequest,
        Swarm,
        SwarmWave,
        Tree,
        run_episode,
    )
    from planvec.rows import (
        BatchStepper,
        Promise,
        Rollouts,
        SavedState,
        Start,
        Transitions,
        as_completed,
    )

__version__ = "0.1.0"

__all__ = [
    "CEM",
    "ICEM",
    "IW",
    "MCTS",
    "MPPI",
    "Archive",
    "Backend",
    "BatchEnv",
    "BatchStepper",
    "CheckReport",
    "ClosedError",
    "Codec",
    "Copied",
    "Downscaled",
    "EnvError",
    "Episode",
    "Explorer",
    "ExternalProcess",
    "InvalidBatchError",
    "NormalDt",
    "Plan",
    "PlanEnv",
    "Planner",
    "PlanvecError",
    "Promise",
    "RandomShooting",
    "Replayed",
    "RolloutIW",
    "RolloutRequest",
    "Rollouts",
    "SavedState",
    "Screens",
    "Search",
    "Sharded",
    "Start",
    "Stats",
    "StepRequest",
    "Swarm",
    "SwarmWave",
    "Transitions",
    "Tree",
    "UnsupportedEnvError",
    "Worker",
    "WorkerCrashedError",
    "WorkerExit",
    "WorkerStartError",
    "WorkerTimeoutError",
    "WrapperCodec",
    "as_completed",
    "batch_kernel",
    "check_env",
    "codec_for",
    "kernel",
    "make",
    "register_codec",
    "register_wrapper_codec",
    "run_episode",
]

# Folder -> the public names that it hands on. It is imported when the first of them is used, so that
# `import planvec` imports neither NumPy nor Gymnasium.
_NAMES_OF = {
    "planvec.backends": "Backend ExternalProcess Sharded Stats Worker WorkerExit",
    "planvec.checking": "CheckReport check_env",
    "planvec.codecs": "Codec Copied Replayed WrapperCodec codec_for register_codec register_wrapper_codec",
    "planvec.envs": "BatchEnv PlanEnv make",
    "planvec.errors": (
        "ClosedError EnvError InvalidBatchError PlanvecError UnsupportedEnvError WorkerCrashedError "
        "WorkerStartError WorkerTimeoutError"
    ),
    "planvec.exploring": "Archive Downscaled Explorer",
    "planvec.kernels": "batch_kernel kernel",
    "planvec.planners": (
        "CEM Episode ICEM IW MCTS MPPI NormalDt Plan Planner RandomShooting RolloutIW RolloutRequest "
        "Screens Search StepRequest Swarm SwarmWave Tree run_episode"
    ),
    "planvec.rows": "BatchStepper Promise Rollouts SavedState Start Transitions as_completed",
}

if not TYPE_CHECKING:  # which would take every name for one of this module
    __getattr__, __dir__ = lazy_names(
        __name__, {name: folder for folder, names in _NAMES_OF.items() for name in names.split()}
    )
