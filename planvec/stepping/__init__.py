"""Steps batches of rows with one environment."""

from __future__ import annotations

from planvec.stepping.env_errors import as_env_error, ignores_interrupts, text_of
from planvec.stepping.env_stepper import EnvStepper, HasStepper
from planvec.stepping.output_differences import output_difference
from planvec.stepping.progress import ROW, STEP, TICKET, new_progress
from planvec.stepping.row_loop import RowLoop

__all__ = [
    "ROW",
    "STEP",
    "TICKET",
    "EnvStepper",
    "HasStepper",
    "RowLoop",
    "as_env_error",
    "ignores_interrupts",
    "new_progress",
    "output_difference",
    "text_of",
]
