"""`Call`: one request on its way through the workers, and the promise of its answer."""

from __future__ import annotations

import itertools
import threading
from typing import Any, TypeVar

from planvec.backends.base import Future
from planvec.backends.sharded.cutting import Cutter
from planvec.backends.sharded.merging import Merger
from planvec.backends.sharded.pace import Pace
from planvec.backends.stats import Stats
from planvec.backends.waiting import Waiter
from planvec.errors import ClosedError, EnvError, PlanvecError
from planvec.rows import Answer, EnvDescription, Promise, Request

__all__ = ["Call", "Chunk"]

T = TypeVar("T")


class Chunk:
    """Some rows of a call, given to one worker; or all of a call that has no rows.

    Args:
        call: Whose rows.
        rows: Which of them.

    Attributes:
        rows: As given.
        first_row: The number of its first row in the batch.
        num_rows: How many rows it has.
        num_exits: Workers that have died over it.
        is_flagging: Whether its rows are only to be flagged as failed.
        is_submitted: Whether a worker has it.
        is_done: Whether it was answered, or is not needed any more.
        future: Of its answer, once it was given to a worker.
    """

    __slots__ = (
        "call",
        "first_row",
        "future",
        "is_done",
        "is_flagging",
        "is_submitted",
        "num_exits",
        "num_rows",
        "rows",
    )

    def __init__(self, call: Call[Any], rows: slice) -> None:
        self.call = call
        self.rows = rows
        self.first_row: int = rows.start
        self.num_rows: int = rows.stop - rows.start
        self.num_exits = 0
        self.is_flagging = self.is_submitted = self.is_done = False
        self.future: Future[Answer] | None = None

    def request(self) -> Request[Any]:
        """Return what to ask a worker."""
        request = self.call.request
        if self.num_rows < request.num_rows:
            request = request.part(self.rows)
        return request.flagged() if self.is_flagging else request

    def describe(self) -> str:
        """Return "step of rows 3 to 7", for messages."""
        verb = self.call.request.verb
        if not self.num_rows:
            return verb
        if self.num_rows == 1:
            return f"{verb} of row {self.first_row}"
        return f"{verb} of rows {self.first_row} to {self.rows.stop - 1}"


class Call(Promise[T]):
    """One request: cut into chunks as workers have room, merged as they answer.

    Everything but `done` and `result` is called with `lock` held.

    Args:
        request: What was asked.
        description: Of the environment.
        pace: Of requests of this kind.
        waiter: To wait for the answer with.
        lock: Of the backend.
        stats: Counts flagged rows, when all rows are done.
        is_async: Whether the caller goes on before the answer is there.

    Attributes:
        request: What was asked.
        cutter: Cuts its rows.
        is_done: Whether it was answered, or has failed.
    """

    def __init__(
        self,
        request: Request[T],
        description: EnvDescription,
        pace: Pace,
        waiter: Waiter,
        lock: threading.RLock,
        stats: Stats,
        is_async: bool,
    ) -> None:
        num_rows = request.num_rows
        self.request = request
        self.cutter = Cutter(num_rows, request.steps, pace, is_async)
        self.is_done = request.has_rows and not num_rows
        self._waiter = waiter
        self._lock = lock
        self._stats = stats
        self._description = description
        self._merger: Merger[T] | None = None
        self._limit = num_rows  # the rows from here on do not matter
        self._cut: Chunk | None = None  # cut, but perhaps not given to a worker yet
        self._open: dict[int, Chunk] = {}  # by their first rows
        self._error: PlanvecError | None = None
        self._is_merged = False
        self._value: Any = None

    # -- the promise ----------------------------------------------------------------------------

    def done(self) -> bool:
        if not self.is_done:
            self._waiter.poll()
        return self.is_done

    def result(self, timeout: float | None = None) -> T:
        if not self.is_done:
            self._waiter.wait_for(self._has_finished, timeout)
        if self._error is not None:
            raise self._error
        if not self._is_merged:  # two threads may both merge, and get the same
            self._value = self.prepare().result()
            self._is_merged = True
        value: T = self._value
        return value

    def abandon(self) -> None:
        with self._lock:
            self.fail(ClosedError("the call was interrupted"))

    def _has_finished(self) -> bool:
        return self.is_done

    # -- cutting --------------------------------------------------------------------------------

    @property
    def is_cut(self) -> bool:
        """Whether nothing is left to cut, and the last chunk was given to a worker."""
        last = self._cut
        return self.is_done or (
            self._has_cut_all() and last is not None and (last.is_submitted or last.is_done)
        )

    @property
    def is_waiting(self) -> bool:
        """Whether some of its rows are at no worker."""
        is_submitted = self._has_cut_all() and all(chunk.is_submitted for chunk in self._open.values())
        return not (self.is_done or is_submitted)

    def _has_cut_all(self) -> bool:
        return self._cut is not None and self.cutter.next_row >= self._limit

    def next_chunk(self, num_workers: int, capacity: int) -> Chunk | None:
        """Return the next chunk to give to a worker, the same again until it was given; None if none is left.

        Args:
            num_workers: Workers that share the rest.
            capacity: The most rows that a chunk can have.
        """
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
        # Noted in this order, so that a signal handler that raises in between loses no row.
        self._cut = chunk
        self.cutter.next_row = chunk.rows.stop
        return chunk

    def split(self, chunk: Chunk, *cuts: int) -> list[Chunk]:
        """Replace a chunk by several.

        Args:
            chunk: One of this call.
            cuts: The rows of the chunk, counted from its first, that the parts begin at.
        """
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

    def copy_request(self) -> None:
        """Copy the arrays of the request, which the caller may change from now on."""
        if not self.is_done:
            self.request = self.request.copy()

    # -- answers --------------------------------------------------------------------------------

    def prepare(self) -> Merger[T]:
        """Return what merges the answers. It is made once chunks were sent, while workers are at work."""
        merger = self._merger
        if merger is None:
            merger = self._merger = Merger(self.request, self._description)
        return merger

    def deliver(self, chunk: Chunk, answer: Answer) -> None:
        """Merge the answer to a chunk."""
        merger = self.prepare()
        merger.add(chunk.rows, answer, chunk.is_flagging)
        if answer.errors:
            for row, error in answer.errors.items():
                merger.flag(row + chunk.first_row, _in_batch(error, chunk))
        self._close(chunk)

    def flag(self, chunk: Chunk, error: PlanvecError) -> None:
        """Note why the rows of a chunk are flagged, which is all that is done with it from now on."""
        chunk.is_flagging, chunk.num_exits = True, 0
        for row in range(chunk.rows.start, chunk.rows.stop):
            self.prepare().flag(row, error)

    def fail_chunk(self, chunk: Chunk, error: PlanvecError) -> None:
        """End the call at a row of a chunk. The rows before still matter: the first that fails is raised."""
        error = _in_batch(error, chunk)
        row = error.row if isinstance(error, EnvError) else None
        self._fail_at(chunk.first_row if row is None else row, error)
        self._close(chunk)

    def _fail_at(self, row: int, error: PlanvecError) -> None:
        """End the call at a row, unless one before it has failed."""
        if self.is_done or (self._error is not None and row >= self._limit):
            return
        self._error, self._limit = error, row
        for chunk in [chunk for first, chunk in self._open.items() if first >= row]:
            self._drop(chunk)
        self._finish_if_complete()

    def fail(self, error: PlanvecError) -> None:
        """End the whole call at once."""
        if self.is_done:
            return
        self._error, self.is_done = error, True
        for chunk in list(self._open.values()):
            self._drop(chunk)

    def _close(self, chunk: Chunk) -> None:
        chunk.is_done = True
        self._open.pop(chunk.first_row, None)
        self._finish_if_complete()

    def _drop(self, chunk: Chunk) -> None:
        """Cancel a chunk that nobody needs any more."""
        chunk.is_done = True
        self._open.pop(chunk.first_row, None)
        if chunk.future is not None:
            chunk.future.cancel()

    def _finish_if_complete(self) -> None:
        """Be done if nothing is left to wait for."""
        if not self.is_done and not self._open and self._has_cut_all():
            if self.request.mask_errors:
                self._stats.masked_rows += self.prepare().num_flagged
            self.is_done = True


def _in_batch(error: PlanvecError, chunk: Chunk) -> PlanvecError:
    """Number the row of an error by its place in the batch instead of that in its chunk."""
    if isinstance(error, EnvError) and error.row is not None:
        moved = EnvError(error.detail, row=error.row + chunk.first_row, action=error.action)
        moved.__cause__ = error.__cause__
        return moved
    return error
