"""Defines `Call`, which is one request to the workers and the promise of its answer, and `Chunk`."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, field
from typing import Any, TypeVar

from planvec.backends.base import Future, Stats, Worker
from planvec.backends.client import Waiter
from planvec.backends.sharded.cutting import Cutter, Pace
from planvec.errors import ClosedError, EnvError, PlanvecError
from planvec.rows import Answer, Columns, EnvDescription, Promise, Request, merge_columns

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Chunk:
    """Holds the rows of a call that one worker executes, or a whole call without rows."""

    call: Call[Any]
    rows: slice
    first_row: int = field(init=False)  # index of the first row in the batch
    num_rows: int = field(init=False)
    num_exits: int = 0  # workers that exited while they executed it
    is_flagging: bool = False  # whether its rows are only flagged as failed, and not stepped
    is_submitted: bool = False  # whether it is submitted to a worker
    is_done: bool = False  # whether it is answered or dropped
    future: Future | None = None  # the future of its answer, once it is submitted
    bound_to: Worker | None = None  # the only worker that may execute it; None for any

    def __post_init__(self) -> None:
        self.first_row, self.num_rows = self.rows.start, self.rows.stop - self.rows.start

    def request(self) -> Request[Any]:
        """Return the request to submit to a worker."""
        request = self.call.request
        if self.num_rows < self.call.num_rows:
            request = request.part(self.rows)
        return request.flagged() if self.is_flagging else request

    def describe(self) -> str:
        """Return the text for messages, such as "step of rows 3 to 7"."""
        verb = self.call.request.verb
        if not self.num_rows:
            return verb
        if self.num_rows == 1:
            return f"{verb} of row {self.first_row}"
        return f"{verb} of rows {self.first_row} to {self.rows.stop - 1}"


class Call(Promise[T]):
    """Cuts a request into chunks when workers have room, and merges their answers."""

    # `calls`: those not done; this one adds and removes itself. `stats` counts the flagged rows once all rows
    # are done.

    # All methods except `done`, `result` and `abandon` are called with `lock` held.
    # `is_extra`: Whether its chunks take no place from others and do not count in `Stats`: a base state for
    # one worker, an audit.

    def __init__(
        self,
        request: Request[T],
        description: EnvDescription,
        pace: Pace,
        waiter: Waiter,
        lock: threading.RLock,
        stats: Stats,
        is_async: bool,
        calls: set[Call[Any]],
    ) -> None:
        self.num_rows = num_rows = request.num_rows
        self.request = request
        self.is_extra = False
        # chooses the sizes of the chunks
        self.cutter = Cutter(num_rows, request.steps, pace, is_async, request.deadline)
        self.is_done = request.has_rows and not num_rows  # whether the call is complete or has failed
        self._waiter = waiter
        self._lock = lock
        self._stats = stats
        self._description = description
        self._answer: Answer | None = None  # the merged outputs; see `prepare`
        self._columns: dict[int, tuple[int, Columns]] = {}  # first row -> number of rows, infos of a chunk
        self._limit = num_rows  # rows from here on are not needed
        self._cut: Chunk | None = None  # the latest chunk, which may not be submitted yet
        self._open: dict[int, Chunk] = {}  # first row -> chunk that is not done
        self.error: PlanvecError | None = None  # the error with which the call has failed
        self._is_merged = False
        self._value: Any = None
        self._calls = calls
        if not self.is_done:
            calls.add(self)

    # -- the promise ----------------------------------------------------------------------------

    def done(self) -> bool:
        if not self.is_done:
            self._waiter.poll()
        return self.is_done

    def result(self, timeout: float | None = None) -> T:
        if not self.is_done:
            self._waiter.wait_for(lambda: self.is_done, timeout)
        if self.error is not None:
            raise self.error
        if not self._is_merged:  # two threads may both merge; the results are equal
            answer = self.prepare()
            parts = [(columns, size) for _, (size, columns) in sorted(self._columns.items())]
            answer.columns = merge_columns(parts)
            self._value = self.request.result(self._description, answer)
            self._is_merged = True
        value: T = self._value
        return value

    def abandon(self) -> None:
        with self._lock:
            self.fail(ClosedError("the call was interrupted"))

    # -- cutting --------------------------------------------------------------------------------

    @property
    def is_cut(self) -> bool:
        """Whether all rows are cut, and the last chunk is submitted."""
        last = self._cut
        return self.is_done or (
            self._has_cut_all() and last is not None and (last.is_submitted or last.is_done)
        )

    @property
    def is_waiting(self) -> bool:
        """Whether some of its rows are not submitted to a worker."""
        is_submitted = self._has_cut_all() and all(chunk.is_submitted for chunk in self._open.values())
        return not (self.is_done or is_submitted)

    def _has_cut_all(self) -> bool:
        return self._cut is not None and self.cutter.next_row >= self._limit

    def next_chunk(self, num_workers: int, capacity: int) -> Chunk | None:
        """Return the next chunk to submit, or None if none is left. It stays the next one until submitted."""
        if self.is_done:
            return None
        chunk, start = self._cut, self.cutter.next_row
        if chunk is not None:
            if not (chunk.is_submitted or chunk.is_done):
                return chunk
            if start >= self._limit:
                return None
        chunk = Chunk(self, slice(start, start + min(capacity, self.cutter.num_next(num_workers))))
        self._open[start] = chunk
        # In this order, a signal handler that raises in between loses no row.
        self._cut = chunk
        self.cutter.next_row = chunk.rows.stop
        return chunk

    def split(self, chunk: Chunk, *cuts: int) -> list[Chunk]:
        """Replace a chunk by several smaller ones, and return them in order."""
        # `cuts`: first rows of the parts after the first one, counted from the first row of the chunk.
        bounds = [0, *cuts, chunk.num_rows]
        first = chunk.first_row
        parts = [
            Chunk(self, slice(first + start, first + stop))
            for start, stop in itertools.pairwise(bounds)
            if start < stop
        ]
        chunk.is_done = True
        del self._open[first]
        self._open.update({part.first_row: part for part in parts})
        return parts

    # -- answers --------------------------------------------------------------------------------

    def prepare(self) -> Answer:
        """Return the merged outputs. Made after chunks are submitted, while the workers work."""
        if self._answer is None:
            self._answer = Answer(self.request.new_outputs(self._description))
        return self._answer

    def deliver(self, chunk: Chunk, answer: Answer) -> None:
        """Merge the answer to a chunk."""
        merged = self.prepare()
        if not chunk.num_rows:
            merged.value = answer.value
        elif chunk.num_rows == self.num_rows and not answer.is_borrowed and not chunk.is_flagging:
            merged.outputs = answer.outputs
        else:
            merged.outputs.put(chunk.rows, answer.outputs)
        # A dict, not a list: if a signal handler interrupts a merge, the chunk is retried and merged again.
        self._columns[chunk.first_row] = chunk.num_rows, answer.columns
        for row, error in answer.errors.items():
            merged.errors[row + chunk.first_row] = error.moved(chunk.first_row)
        self.close(chunk)

    def flag(self, chunk: Chunk, error: PlanvecError) -> None:
        """Flag the rows of a chunk with an error. From now on a worker only fills in its outputs."""
        chunk.is_flagging, chunk.num_exits = True, 0
        for row in range(chunk.rows.start, chunk.rows.stop):
            self.prepare().errors[row] = error

    def fail_chunk(self, chunk: Chunk, error: PlanvecError) -> None:
        """Fail a chunk. Rows before the failed one continue, since the error of the first row is raised."""
        error = error.moved(chunk.first_row)
        row = error.row if isinstance(error, EnvError) else None
        row = chunk.first_row if row is None else row
        if not self.is_done and (self.error is None or row < self._limit):
            self.error, self._limit = error, row
            for later in [one for first, one in self._open.items() if first >= row]:
                self._drop(later)
        self.close(chunk)

    def fail(self, error: PlanvecError) -> None:
        """Fail the call at once, and drop all of its chunks."""
        if self.is_done:
            return
        self.error = error
        self._finish()
        for chunk in list(self._open.values()):
            self._drop(chunk)

    def close(self, chunk: Chunk) -> None:
        """Note that a chunk is done, and complete the call if it is the last one.

        It may be called again, if a signal handler that raised has cut off the first time.
        """
        chunk.is_done = True
        if self._open.get(chunk.first_row) is chunk:  # and not a part of it
            del self._open[chunk.first_row]
        self._finish_if_complete()

    def _drop(self, chunk: Chunk) -> None:
        """Cancel a chunk that is not needed any more."""
        chunk.is_done = True
        self._open.pop(chunk.first_row, None)
        if chunk.future is not None:
            chunk.future.cancel()

    def _finish_if_complete(self) -> None:
        """Complete the call if no chunk is left to wait for."""
        if not self.is_done and not self._open and self._has_cut_all():
            if self.request.mask_errors:
                self._stats.masked_rows += len(self.prepare().errors)
            self._finish()

    def _finish(self) -> None:
        self.is_done = True
        self._calls.discard(self)
        self._cut = None  # it refers to this call: without the cycle, the arrays are freed with the result
