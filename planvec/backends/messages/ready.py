"""Reads the first message of a worker, which says whether its object was made."""

from __future__ import annotations

from typing import Any

from planvec.backends.messages.failures import Failure
from planvec.backends.messages.unpickling import load_pickled
from planvec.backends.signals import is_from_handler
from planvec.errors import PlanvecError, UnsupportedEnvError, WorkerStartError


def start_error(failure: Failure, name: str) -> PlanvecError:
    """Return the error for a worker that could not make its object."""
    error: PlanvecError = failure.to_error()
    if isinstance(error, UnsupportedEnvError):
        return error
    cause = error.__cause__
    error = WorkerStartError(f"{name} could not be started: {failure.type_name}: {failure.detail}")
    error.__cause__ = cause
    return error


def read_description(payload: bytes, name: str) -> Any:
    """Unpickle a description, whose spaces may be of classes of the user."""
    try:
        return load_pickled(payload)
    except Exception as error:
        if is_from_handler(error):
            raise
        raise WorkerStartError(
            f"{name}: the description of its environment cannot be read in this process "
            f"({type(error).__name__}: {error}); define the classes of its spaces in a module that this "
            "process can import"
        ) from error
