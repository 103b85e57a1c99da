"""Runs: episodes that are written to a directory as they are played, can be resumed, and are played again.

play        plays the episodes of a run, with its settings, files, checkpoints and observers; plays them again
log         observers that write a line, or scalars for TensorBoard, per step
"""

from __future__ import annotations

# Hands on the names that other folders use.
# ruff: noqa: F401
# mypy: implicit-reexport
from planvec.runs.log import StepLog, TensorBoardLog
from planvec.runs.play import (
    Replay,
    RunConfig,
    RunFiles,
    RunObserver,
    play_run,
    read_settings,
    read_trajectory,
    record_of,
    replay,
    write_record,
)
