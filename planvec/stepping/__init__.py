"""Steps batches of rows with one environment."""

from __future__ import annotations

from planvec.stepping.env_stepper import EnvStepper, output_difference
from planvec.stepping.row_loop import (
    ROW,
    STEP,
    TICKET,
    RowLoop,
    as_env_error,
    ignores_interrupts,
    new_progress,
    text_of,
)

__all__ = [
    "ROW",
    "STEP",
    "TICKET",
    "EnvStepper",
    "RowLoop",
    "as_env_error",
    "ignores_interrupts",
    "new_progress",
    "output_difference",
    "text_of",
]
