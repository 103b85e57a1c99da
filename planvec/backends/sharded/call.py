"""`Call`: one request on its way through the workers, and the promise of its answer."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from planvec.backends.base import Future
from planvec.backends.sharded.pace import Pace, Sizes
from planvec.backends.stats import Stats
from planvec.backends.waiting import Waiter
from planvec.errors import ClosedError, EnvError, PlanvecError
from planvec.rows import Answer, Columns, EnvDescription, Outputs, Promise, Request, RowRequest, merge_columns

__all__ = ["Call", "Chunk"]

T = TypeVar("T")

_WAITED_FOR = Sizes(1e-3, 10e-3)
"""The caller waits, and cuts the next chunk when a worker has room."""
_UNATTENDED = Sizes(10e-3, 25e-3)
"""The caller does something else meanwhile, so that workers need more in advance."""


class Chunk:
    """Some rows of a call, given to one worker; or all of a call that has no rows.

    Args:
        call: Whose rows.
        rows: Which of them.

    Attributes:
        num_deaths: Workers that have died over it.
        is_flagging: Whether its rows are only to be flagged as failed.
        is_given: Whether a worker has it.
        is_done: Whether it was answered, or is not needed any more.
        future: Of its answer, once it was given to a worker.
    """

    __slots__ = (
        "call",
        "first_row",
        "future",
        "is_done",
        "is_flagging",
        "is_given",
        "num_deaths",
        "num_rows",
    )

    def __init__(self, call: Call[Any], rows: slice) -> None:
        self.call = call
        self.first_row: int = rows.start
        self.num_rows: int = rows.stop - rows.start
        self.num_deaths = 0
        self.is_flagging = self.is_given = self.is_done = False
        self.future: Future[Answer] | None = None

    @property
    def rows(self) -> slice:
        """Its rows in the batch."""
        return slice(self.first_row, self.first_row + self.num_rows)

    @property
    def num_steps(self) -> int:
        """The steps that its rows are asked for."""
        steps = self.call.steps
        return int(steps[self.rows].sum()) if isinstance(steps, np.ndarray) else steps * self.num_rows

    def request(self) -> Request[Any]:
        """Return what to ask a worker."""
        request = self.call.request
        if not isinstance(request, RowRequest):
            return request
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
        return f"{verb} of rows {self.first_row} to {self.first_row + self.num_rows - 1}"


class Call(Promise[T]):
    """One request: cut into chunks as workers have room, merged as they answer.

    Everything but `done` and `result` is called with `lock` held.

    Args:
        request: What was asked.
        about: Of the environment.
        pace: Of requests of this kind.
        waiter: To wait for the answer with.
        lock: Of the backend.
        stats: Counts flagged rows, when all rows are done.
        is_unattended: Whether the caller goes on before the answer is there.
    """

    def __init__(
        self,
        request: Request[T],
        about: EnvDescription,
        pace: Pace,
        waiter: Waiter,
        lock: threading.RLock,
        stats: Stats,
        is_unattended: bool,
    ) -> None:
        self.request = request
        self.pace = pace
        self.steps = request.steps if isinstance(request, RowRequest) else 0
        self.is_done = False
        self._stats = stats
        self._about = about
        self._waiter = waiter
        self._lock = lock
        self._sizes = _UNATTENDED if is_unattended else _WAITED_FOR
        self._num_rows = request.num_rows
        self._next_row = 0
        self._num_shares = 0  # equal chunks that the rest is cut into, once little is left
        self._cut: Chunk | None = None  # cut, but perhaps not given to a worker yet
        self._open: dict[int, Chunk] = {}  # by their first rows
        self._outputs: Outputs | None = None
        self._columns: dict[int, tuple[int, Columns]] = {}  # by the first rows of chunks
        self._answer = Answer(Outputs())
        self._error: PlanvecError | None = None
        self._limit = self._num_rows  # the rows from here on do not matter: one before them has failed
        self._finish: Callable[[], T] | None = self._merge
        self._value: Any = None
        if isinstance(request, RowRequest) and not self._num_rows:
            self._outputs = request.new_outputs(about)
            self.is_done = True

    # -- the promise ----------------------------------------------------------------------------

    def done(self) -> bool:
        if not self.is_done:
            self._waiter.poll()
        return self.is_done

    def result(self, timeout: float | None = None) -> T:
        self._waiter.wait_for(self._has_finished, timeout)
        if self._error is not None:
            raise self._error
        finish = self._finish
        if finish is not None:  # two threads may both merge, and get the same
            self._value = finish()
            self._finish = None
        value: T = self._value
        return value

    def abandon(self) -> None:
        with self._lock:
            self.fail(ClosedError("the call was interrupted"))

    def _has_finished(self) -> bool:
        return self.is_done

    def _merge(self) -> T:
        answer = self._answer
        answer.outputs = self.outputs
        if self._columns:
            parts = [self._columns[first] for first in sorted(self._columns)]
            answer.columns = merge_columns([(columns, size) for size, columns in parts])
        return self.request.result(self._about, answer)

    @property
    def outputs(self) -> Outputs:
        """The outputs of all rows: allocated when they are first needed, after chunks were given out."""
        with self._lock:
            if self._outputs is None:
                self._outputs = self.request.new_outputs(self._about)
            return self._outputs

    # -- cutting --------------------------------------------------------------------------------

    def next_chunk(self, num_workers: int, capacity: int) -> Chunk | None:
        """Return the next chunk to give to a worker, the same again until it was given; None if none is left.

        Args:
            num_workers: Workers that share the rest.
            capacity: The most rows that a chunk can have.
        """
        chunk = self._cut
        if chunk is not None and not (chunk.is_given or chunk.is_done):
            return chunk
        if self.is_done or (self._next_row >= self._limit and (self._num_rows or self._cut is not None)):
            return None
        num_rows = min(capacity, self._num_next(num_workers)) if self._num_rows else 0
        chunk = Chunk(self, slice(self._next_row, self._next_row + num_rows))
        self._open[chunk.first_row] = chunk
        # Noted in this order, so that a signal handler that raises in between loses no row.
        self._cut = chunk
        self._next_row += num_rows
        return chunk

    def _num_next(self, num_workers: int) -> int:
        """Return how many rows the next chunk should have."""
        left = self._num_rows - self._next_row
        if left == 1:
            return 1
        steps = self.steps[self._next_row :].mean() if isinstance(self.steps, np.ndarray) else self.steps
        if not self._num_shares:
            if not self.pace.is_little(left, steps, num_workers, self._sizes):
                return self.pace.num_rows(left, steps, num_workers, self._sizes)
            self._num_shares = num_workers
        num_rows = -(-left // self._num_shares)
        self._num_shares = max(1, self._num_shares - 1)
        return num_rows

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

    # -- answers --------------------------------------------------------------------------------

    def deliver(self, chunk: Chunk, answer: Answer) -> None:
        """Merge the answer to a chunk."""
        if chunk.num_rows:
            self._put(chunk, answer)
            # By the first row: a chunk whose merging was interrupted is done again.
            self._columns[chunk.first_row] = chunk.num_rows, answer.columns
            for row, error in answer.errors.items():
                self._flag(_in_batch(error, chunk), row + chunk.first_row)
        else:
            self._answer.value = answer.value
        self._close(chunk)

    def _put(self, chunk: Chunk, answer: Answer) -> None:
        """Copy the outputs of a chunk to their place; those of the only chunk are taken as they are."""
        request = self.request
        if self._outputs is None and chunk.num_rows == self._num_rows and not chunk.is_flagging:
            assert isinstance(request, RowRequest)
            if answer.is_borrowed:
                self._outputs = request.own_outputs(self._about, answer.outputs)
            else:
                self._outputs = answer.outputs
        else:
            self.outputs.put(chunk.rows, answer.outputs)

    def flag(self, chunk: Chunk, error: PlanvecError) -> None:
        """Note why the rows of a chunk are flagged, and have it do nothing else from now on."""
        chunk.is_flagging, chunk.num_deaths = True, 0
        for row in range(chunk.first_row, chunk.first_row + chunk.num_rows):
            self._flag(error, row)

    def _flag(self, error: PlanvecError, row: int) -> None:
        self._answer.errors[row] = error

    def fail_chunk(self, chunk: Chunk, error: PlanvecError) -> None:
        """End the call at a row of a chunk. The rows before still matter: the first that fails is raised."""
        error = _in_batch(error, chunk)
        row = error.row if isinstance(error, EnvError) else None
        self.fail_at(chunk.first_row if row is None else row, error)
        self._close(chunk)

    def fail_at(self, row: int, error: PlanvecError) -> None:
        """End the call at a row, unless one before it has failed."""
        if self.is_done or (self._error is not None and row >= self._limit):
            return
        self._error, self._limit = error, row
        for chunk in [chunk for first, chunk in self._open.items() if first >= row]:
            self._drop(chunk)
        self._settle()

    def fail(self, error: PlanvecError) -> None:
        """End the whole call at once."""
        if self.is_done:
            return
        self._error, self.is_done = error, True
        for chunk in list(self._open.values()):
            self._drop(chunk)

    def keep(self) -> None:
        """Copy the arrays of the request, which the caller may change from now on."""
        if isinstance(self.request, RowRequest) and not self.is_done:
            self.request = self.request.copy()

    def _close(self, chunk: Chunk) -> None:
        chunk.is_done = True
        self._open.pop(chunk.first_row, None)
        self._settle()

    def _drop(self, chunk: Chunk) -> None:
        """Cancel a chunk that nobody needs any more."""
        chunk.is_done = True
        self._open.pop(chunk.first_row, None)
        if chunk.future is not None:
            chunk.future.cancel()

    def _settle(self) -> None:
        """Be done if nothing is left to wait for."""
        if not self.is_done and not self._open and self._next_row >= self._limit:
            self._stats.masked_rows += len(self._answer.errors)
            self.is_done = True

    @property
    def is_cut(self) -> bool:
        """Whether nothing is left to cut, and the last chunk was given to a worker."""
        last = self._cut
        return self.is_done or (
            self._next_row >= self._limit and last is not None and (last.is_given or last.is_done)
        )

    @property
    def is_waiting(self) -> bool:
        """Whether some of its rows are at no worker."""
        is_cut = self._next_row >= self._limit and self._cut is not None
        return not self.is_done and not (is_cut and all(chunk.is_given for chunk in self._open.values()))


def _in_batch(error: PlanvecError, chunk: Chunk) -> PlanvecError:
    """Number the row of an error by its place in the batch instead of that in its chunk."""
    if isinstance(error, EnvError) and error.row is not None:
        moved = EnvError(error.detail, row=error.row + chunk.first_row, action=error.action)
        moved.__cause__ = error.__cause__
        return moved
    return error
