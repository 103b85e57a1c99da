"""The first message of a worker process: its object was made, or not."""

from __future__ import annotations

import pickle

from planvec.backends.processes.wire.channel import Frame
from planvec.backends.processes.wire.failures import Failure
from planvec.backends.processes.wire.verbs import FAILED
from planvec.backends.sharded import DIFFERENT
from planvec.errors import PlanvecError, UnsupportedEnvError, WorkerStartError
from planvec.rows import EnvDescription

__all__ = ["read_ready_message"]


def read_ready_message(frame: Frame, name: str, fingerprint: bytes | None) -> EnvDescription | None:
    """Return the description of the environment; None where the object is something else.

    Args:
        frame: The message.
        name: Of the worker, for messages.
        fingerprint: Of the environment that the worker had before; None if this is its first.

    Raises:
        UnsupportedEnvError: The environment cannot be saved faithfully.
        WorkerStartError: The factory raised, or made another environment than the last time.
    """
    if frame.verb == FAILED:
        failure: Failure = pickle.loads(frame.payload)
        error: PlanvecError = failure.to_error()
        if not isinstance(error, UnsupportedEnvError):
            cause = error.__cause__
            error = WorkerStartError(f"{name} could not be started: {failure.type_name}: {failure.detail}")
            error.__cause__ = cause
        raise error
    description: EnvDescription | None = pickle.loads(frame.payload)
    if description is not None and fingerprint not in (None, description.fingerprint):
        raise WorkerStartError(f"{name} was restarted and made another environment: {DIFFERENT}")
    return description
