"""Performs requests in a worker, and writes the answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from planvec.errors import EnvError
from planvec.rows import Answer, Outputs, Request, RowRequest, clear_row, unpicklable_rows
from planvec.stepping import EnvStepper

T = TypeVar("T")


def perform(
    stepper: EnvStepper, request: Request[Any], outputs: Outputs | None, write: Callable[[Answer], T]
) -> T:
    """Perform a request, and return the written answer."""
    answer = stepper.perform(request, outputs)
    try:
        return write(answer)
    except EnvError:
        if not isinstance(request, RowRequest) or not request.mask_errors:
            raise
        unsent = unpicklable_rows(answer.columns)
        for row in unsent:
            clear_row(answer.columns, row)
        stepper.loop.flag(request.states, answer.outputs, list(unsent))
        answer.errors |= unsent
        return write(answer)
