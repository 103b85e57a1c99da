"""Makes the error for the exit of a worker."""

from __future__ import annotations

from planvec.backends import WorkerExit
from planvec.errors import PlanvecError, WorkerCrashedError, WorkerTimeoutError
from planvec.vector.arrays import action_of
from planvec.vector.chunk import Chunk
from planvec.vector.operations import Step


def crash_error(exit: WorkerExit, chunk: Chunk | None = None, advice: str = "") -> PlanvecError:
    """Return the error for the exit of a worker."""
    make = WorkerTimeoutError if exit.was_late else WorkerCrashedError
    what, row, action = exit.what + advice, None, None
    if chunk is not None and exit.row is not None and exit.row < len(chunk.rows):
        row = int(chunk.rows[exit.row])
        operation = chunk.operation
        if isinstance(operation, Step):
            action = action_of(operation.actions, exit.row)
    if chunk is not None and chunk.num_exits > 1:
        what += f"; {round(chunk.num_exits)} workers failed on it, one after another"
    return make(what, row=row, action=action)
