"""Steps batches of rows with one environment."""

from __future__ import annotations

# Hands on the names that other folders use.
# ruff: noqa: F401
# mypy: implicit-reexport
from planvec.stepping.env_stepper import EnvStepper
from planvec.stepping.kernel_proof import output_difference
from planvec.stepping.row_loop import (
    ROW,
    STEP,
    TICKET,
    RowLoop,
    ignores_interrupts,
    new_progress,
)
