"""Defines `Chunk`, an operation on rows of one worker, and `RowGroup`, which performs chunks.

Letters: B rows of a chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from planvec.rows import copy_rows
from planvec.vector.arrays import RowArrays
from planvec.vector.operations import Operation, Reply

# time of a part of the rows of a worker that are done one after another: many times what a message costs
_PART_SECONDS = 2e-3


class Chunk:
    """Holds an operation until it is done, and the arrays that its results go to."""

    # `out`: Receives the results, `[B]`; None if the operation has none, or if the caller wants none.

    __slots__ = (
        "error",
        "has_actions_in_memory",
        "is_abandoned",
        "is_internal",
        "num_exits",
        "on_done",
        "operation",
        "out",
        "payload",
        "reply",
        "rows",
    )

    def __init__(
        self, operation: Operation, rows: NDArray[np.intp], out: RowArrays | None, is_internal: bool = False
    ) -> None:
        self.operation = operation
        self.rows = rows
        self.out = out
        self.is_internal = is_internal  # whether it belongs to the recovery of a worker
        # `has_actions_in_memory`: whether the worker may still read its actions in the shared memory.
        # `is_abandoned`: whether the caller wants no result any more
        self.is_abandoned = self.has_actions_in_memory = False
        self.num_exits = 0.0  # how often a worker exited while it worked on this chunk
        # the operation as bytes; None if its actions go into the shared memory
        self.payload: bytes | None = None
        self.reply: Reply | None = None  # the results that are no arrays; None until it is done
        # What ended the operation: the crash of the worker, for example. None if there is a reply.
        self.error: Exception | None = None
        self.on_done: Callable[[Chunk], None] | None = None

    @property
    def is_done(self) -> bool:
        """Whether there is a reply or an error."""
        return self.reply is not None or self.error is not None

    @property
    def has_errors(self) -> bool:
        """Whether something failed."""
        reply = self.reply
        return self.error is not None or (reply is not None and bool(reply.errors))

    def take_failed_rows(self) -> NDArray[np.intp]:
        """Return the rows without a result, and forget their errors."""
        if self.reply is None:
            return self.rows
        failed, self.reply.errors = sorted(self.reply.errors), {}
        return self.rows[failed]

    def finish(self, reply: Reply, arrays: RowArrays) -> None:
        """Copy the results out of the arrays of the worker."""
        out = self.out
        if out is not None and out is not arrays and not self.is_abandoned:
            _copy_results(arrays, self.operation, out)
        self.reply = reply
        self._call_on_done()

    def fail(self, error: Exception) -> None:
        """End the operation with an error."""
        self.error = error
        self._call_on_done()

    def _call_on_done(self) -> None:
        on_done, self.on_done = self.on_done, None  # it refers to this chunk: arrays would outlive the call
        if on_done is not None:
            on_done(self)


def _copy_results(arrays: RowArrays, operation: Operation, out: RowArrays) -> None:
    source = arrays if operation.rows is None else arrays.results(operation.rows)
    if not isinstance(out.observations, list):  # those come with the reply
        copy_rows(source.observations, out.observations)
    out.rewards[:] = source.rewards
    out.terminated[:] = source.terminated
    out.truncated[:] = source.truncated


class RowGroup(Protocol):
    """Performs operations on consecutive rows of a vector environment."""

    first_row: int  # index of the first row
    num_rows: int
    # time that a step of one row takes in the worker, the latest measurement; 0 at first
    seconds_per_step: float

    def prepare(self, chunk: Chunk) -> None:
        """Prepare an operation, so that `submit` raises no error."""
        ...

    def submit(self, chunk: Chunk) -> None:
        """Begin an operation that is prepared. `chunk.on_done` is called when it is done, perhaps at once."""
        ...


def rows_per_part(group: RowGroup) -> int:
    """Return how many rows of a group are done at once, so that none waits long for the others."""
    if not group.seconds_per_step:
        return group.num_rows
    return max(1, min(group.num_rows, int(_PART_SECONDS / group.seconds_per_step)))
