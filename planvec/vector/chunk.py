"""Defines `Chunk`, an operation on rows of one worker, `RowGroup`, which performs it, and calls.

Letters: B rows of a chunk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from planvec.rows import copy_rows, map_leaves
from planvec.vector.arrays import RowArrays
from planvec.vector.env_row import InfoForm, join_infos, unpack_infos
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


# -- Defines `RowsCall`, one call of the user: its chunks on the workers, and its results.
#
# Letters: B rows.


class RowsResult(NamedTuple):
    """Holds the results of rows."""

    observations: Any  # A tree of arrays `[B, ...]`, or a list if the size of observations varies
    rewards: NDArray[Any]  # `[B]`, or `[B, ...]` if rewards are vectors
    terminated: NDArray[np.bool_]  # `[B]` bool
    truncated: NDArray[np.bool_]  # `[B]` bool
    infos: Any  # in the form of the face; `{}` if all are empty


class RowsCall:
    """Holds the chunks of one call until all are done."""

    # `rows`: `[B]`, the rows in the order of the chunks. `out`: Receives the results, `[B]`; None if there
    # are none. `order`: `[B]`, the positions of the rows in the order of the caller; None if it is the same.

    def __init__(
        self, rows: NDArray[np.intp], out: RowArrays | None, order: NDArray[np.intp] | None = None
    ) -> None:
        self.rows = rows
        self.out = out
        self.order = order
        self.chunks: list[Chunk] = []
        self.num_left = 0  # number of chunks that are not done
        # groups and chunks that are submitted one by one, when others are done
        self.waiting: deque[tuple[RowGroup, Chunk]] = deque()

    def add(self, chunk: Chunk) -> None:
        """Add a chunk that has not been submitted."""
        self.chunks.append(chunk)
        self.num_left += 1
        chunk.on_done = self._chunk_done

    @classmethod
    def of_one(cls, chunk: Chunk) -> RowsCall:
        """Return the call that consists of one chunk which is done."""
        call = cls(chunk.rows, chunk.out)
        call.chunks.append(chunk)
        return call

    def _chunk_done(self, chunk: Chunk) -> None:
        self.num_left -= 1
        if self.waiting:
            group, following = self.waiting.popleft()
            group.submit(following)

    @property
    def has_errors(self) -> bool:
        """Whether something failed."""
        return any(chunk.has_errors for chunk in self.chunks)

    def is_done(self) -> bool:
        """Return whether all chunks are done."""
        return not self.num_left

    def abandon(self) -> None:
        """Give up the results. The operations are performed nevertheless."""
        for chunk in self.chunks:
            chunk.is_abandoned = True

    def values(self) -> list[Any]:
        """Return the values of all rows, in the order of the caller."""
        values: list[Any] = []
        for chunk in self.chunks:
            assert chunk.reply is not None
            values += chunk.reply.value
        return values if self.order is None else [values[position] for position in self.order]

    def result(self, form: InfoForm) -> RowsResult:
        """Return the results of a call without errors, in the order of the caller."""
        assert self.out is not None
        return join_results(self.chunks, self.out, form, self.order)


class DoneCall(RowsCall):
    """Holds a step of all rows that was done at once, whose results lie in arrays. It has no chunks."""

    # `out`: The results, `[N]`.

    rows = np.empty(0, np.intp)
    order = None
    chunks: Sequence[Chunk] = ()  # type: ignore[assignment]
    num_left = 0
    has_errors = False

    def __init__(self, out: RowArrays) -> None:
        self.out: RowArrays = out

    def result(self, form: InfoForm) -> RowsResult:
        out = self.out
        return RowsResult(out.observations, out.rewards, out.terminated, out.truncated, {})


def errors_of(chunks: Sequence[Chunk]) -> dict[int, Exception]:
    """Return what failed in chunks that are done: row -> the error of its environment or its worker."""
    errors: dict[int, Exception] = {}
    for chunk in chunks:
        if chunk.error is not None:
            row = getattr(chunk.error, "row", None)
            errors[int(chunk.rows[0]) if row is None else row] = chunk.error
        elif chunk.reply is not None and chunk.reply.errors:
            for index, failure in sorted(chunk.reply.errors.items()):
                errors[int(chunk.rows[index])] = failure.to_error()
    return errors


def raise_errors(chunks: Sequence[Chunk]) -> None:
    """Raise the error of the first row that failed, with a note of the others."""
    for chunk in chunks:
        if chunk.has_errors:
            break
    else:  # a loop is faster than any(), for few rows
        return
    errors = errors_of(chunks)
    row, *others = sorted(errors)
    errors[row].add_note(f"raised by environment {row}" + (f"; so did {others}" if others else ""))
    raise errors[row]


def join_results(
    chunks: Sequence[Chunk], out: RowArrays, form: InfoForm, order: NDArray[np.intp] | None
) -> RowsResult:
    """Join the results of chunks."""
    # `order`: positions to return, in this order; None: all.
    # `out`: Their results, `[B]`, in the order of the chunks.
    replies = [chunk.reply for chunk in chunks if chunk.reply is not None]
    observations, rewards = out.observations, out.rewards
    if isinstance(observations, list):
        observations = [row for reply in replies for row in reply.observations or ()]
    if any(reply.rewards is not None for reply in replies):
        rewards = _join_rewards(chunks, out.rewards)
    infos: Any = {}
    if any(reply.infos is not None for reply in replies):
        parts = [
            (unpack_infos(reply.infos), len(chunk.rows)) for chunk, reply in zip(chunks, replies, strict=True)
        ]
        infos = join_infos(parts, form, order)
    if order is None:
        return RowsResult(observations, rewards, out.terminated, out.truncated, infos)
    if isinstance(observations, list):
        observations = [observations[position] for position in order]
    else:
        observations = map_leaves(lambda leaf: leaf[order], observations)
    return RowsResult(observations, rewards[order], out.terminated[order], out.truncated[order], infos)


def _join_rewards(chunks: Sequence[Chunk], common: NDArray[np.float64]) -> NDArray[Any]:
    parts, start = [], 0
    for chunk in chunks:
        stop = start + len(chunk.rows)
        reply = chunk.reply
        assert reply is not None
        parts.append(common[start:stop] if reply.rewards is None else reply.rewards)
        start = stop
    return np.concatenate(parts)
