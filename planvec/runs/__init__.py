"""Runs: episodes that are written to a directory as they are played, can be resumed, and are played again.

config      the settings of a run
files       its files
play        plays its episodes, with a checkpoint from which it goes on after it was killed
observer    what follows a run; `log` writes a line per step
trajectories  plays a trajectory again and compares every bit
"""

from __future__ import annotations

from planvec.runs.log import StepLog, TensorBoardLog
from planvec.runs.play import (
    Replay,
    RunConfig,
    RunFiles,
    RunObserver,
    play_run,
    read_settings,
    read_trajectory,
    replay,
    with_tuples,
)

__all__ = [
    "Replay",
    "RunConfig",
    "RunFiles",
    "RunObserver",
    "StepLog",
    "TensorBoardLog",
    "play_run",
    "read_settings",
    "read_trajectory",
    "replay",
    "with_tuples",
]
