"""Defines `Call`, which is one request to the workers and the promise of its answer, and `Chunk`."""

from __future__ import annotations

import itertools
import math
import threading
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from planvec.backends.base import Future, Stats, Waiter
from planvec.errors import ClosedError, EnvError, PlanvecError
from planvec.rows import Answer, Columns, EnvDescription, Promise, Request, merge_columns

# -- Measures the cost of rows in finished chunks ------------------------------------------------------------

_WEIGHT = 0.5  # weight of the latest chunk in the moving averages
_EVEN_SPREAD = 0.25  # relative deviation of the cost per step between chunks below which rows count as even
# A chunk that deviates by less time than this says nothing about the rows: the machine varies as much
_NOISE_SECONDS = 1e-3
_BATCH_WEIGHT = 0.3  # weight of the latest batch in the moving average of the loss
_EQUAL_LOSS = 0.05  # average loss below which rows count as equal
# Time of the further chunks that a batch of unequal rows has, and largest part of the batch that they take. A
# smaller loss counts as none.
_CHUNKS_SECONDS, _CHUNKS_PART = 1e-3, 0.1
# equal rows are expected in chunks of up to so many times the work per worker of the batches that have shown
# it
_GROWTH = 2.0


class Pace:
    """Measures the time of a step in finished chunks of requests of one kind."""

    def __init__(self, message_cost: float = 1.0) -> None:
        self.message_cost = message_cost
        self.is_measured = False  # whether a chunk was finished
        self.num_batches = 0  # number of batches of several rows that have begun
        self.seconds = 0.0  # moving average of the time per environment step; 0 before the first chunk
        self._spread = 1.0  # until equal costs are measured
        self._highest = self._highest_before = 0.0  # seconds per step, in this batch and the one before
        self._loss = 1.0  # average loss of batches if they were cut into one chunk per worker
        self._longest_equal = 0.0  # largest work per worker of the batches since rows count as equal

    @property
    def is_even(self) -> bool:
        """Whether the latest chunks had about the same cost per step. False before some were measured."""
        return self._spread < _EVEN_SPREAD

    @property
    def equal_seconds(self) -> float:
        """Largest work of a chunk, in seconds, whose rows can be expected to be equal; 0 if they cannot."""
        return _GROWTH * self._longest_equal if self._loss < _EQUAL_LOSS else 0.0

    @property
    def highest_seconds(self) -> float:
        """Largest time per step of a chunk of the latest two batches."""
        return max(self._highest, self._highest_before)

    def begin_batch(self) -> None:
        """Count a batch of several rows, and forget the largest cost of the one before the previous one."""
        self.num_batches += 1
        if self._highest:
            self._highest, self._highest_before = 0.0, self._highest

    def learn(self, num_steps: int, seconds: float) -> None:
        """Update the measures with a finished chunk."""
        if num_steps <= 0 or seconds <= 0.0:
            return
        cost = seconds / num_steps
        self._highest = max(self._highest, cost)
        if not self.is_measured:
            self.is_measured, self.seconds = True, cost
            return
        expected = self.seconds * num_steps
        error = abs(seconds - expected)
        # At most 1, so that one outlier does not make rows count as uneven for long.
        deviation = min(1.0, error / expected) if error > _NOISE_SECONDS else 0.0
        self._spread += _WEIGHT * (deviation - self._spread)
        self.seconds += _WEIGHT * (cost - self.seconds)

    def learn_balance(self, mean: float, highest: float) -> None:
        """Update the measures with a finished batch."""
        saved = min(_CHUNKS_SECONDS * self.message_cost, _CHUNKS_PART * mean)
        loss = min(1.0, max(0.0, highest - mean - saved) / mean)
        self._loss += _BATCH_WEIGHT * (loss - self._loss)
        self._longest_equal = max(self._longest_equal, mean) if self._loss < _EQUAL_LOSS else 0.0


# -- Cuts the rows of a batch into ranges, one at a time, when workers have room for them.
#
# Rows differ in cost: episodes end early, some actions are held longer, contacts take time. With one range
# per worker, a batch would take as long as the worker with the expensive rows. Therefore the rows are cut in
# rounds of one range per worker: large ranges first, smaller ones in later rounds (factoring, Hummel,
# Schonberg and Flynn 1992). If the rows of the latest batches were equal, one round suffices. No range is so
# small that sending it costs more than a few percent of its work, and none so large that other workers would
# wait for long if its rows turn out to be expensive.

_FIRST_ROWS = 8  # rows of a range before any cost is measured
# part of the remaining rows that a round cuts, for even rows and for others
_EVEN_SHARE, _UNEVEN_SHARE = 0.85, 0.4
_LONGEST_FIRST = 5e-3  # bound that replaces `_Sizes.longest` in the first batch, of which no row is known
_LAST_EVEN_PART = 0.25  # part of a batch of even rows that is cut in one last round
# Seconds of work of a range of equal rows. Like `_Sizes.longest`, it limits the wait for rows that differ
# from all the earlier ones.
_LONGEST_EQUAL = 25e-3
_SHORTEST = 2e-3  # seconds of work below which ranges are not shortened because rows to come may be expensive
# Number of workers that can be supplied with the shortest ranges. For more of them, ranges are longer.
_NUM_FED = 16

# A batch of less work per worker than this says nothing about whether its rows are equal
_JUDGED_SECONDS = 1e-3


class _Sizes(NamedTuple):
    """Bounds the work of a range, in seconds."""

    shortest: float  # With less work, the overhead of a range counts. The last round has such ranges.
    # with more work, the other workers would have to wait if the rows turn out to be expensive
    longest: float


# bounds for a call that the caller waits for: it submits the next range when a worker has room
_BLOCKING = _Sizes(1e-3, 15e-3)
# Bounds for a call whose caller continues. Ranges are larger, so that workers do not run out of work.
_ASYNC = _Sizes(5e-3, 25e-3)


class Cutter:
    """Chooses the sizes of ranges of rows by the measured cost of earlier rows."""

    def __init__(self, num_rows: int, steps: int | NDArray[np.int64], pace: Pace, is_async: bool) -> None:
        self.next_row = 0  # the first row that is not cut yet
        self._num_rows = num_rows
        self._steps = steps
        self._pace = pace
        self._sizes = _ASYNC if is_async else _BLOCKING
        self._num_in_round = 0  # ranges that the present round still has
        self._is_last_round = False
        self._round_rows = 0
        self._num_workers = 1
        self._seconds: dict[int, float] = {}  # end of each finished range -> seconds
        self._num_learned, self._total = 0, 0.0  # rows and seconds of these ranges
        if num_rows > 1:
            pace.begin_batch()

    def num_next(self, num_workers: int) -> int:
        """Return the number of rows of the next range."""
        left = self._num_rows - self.next_row
        if left <= 1:
            return left
        if not self._num_in_round:
            self._begin_round(left, num_workers)
        if self._is_last_round:
            self._round_rows = -(-left // self._num_in_round)
        self._num_in_round -= 1
        return min(self._round_rows, left)

    def _begin_round(self, left: int, num_workers: int) -> None:
        """Choose the size of the next `num_workers` ranges."""
        pace, sizes, steps = self._pace, self._sizes, self._steps
        self._num_in_round = self._num_workers = num_workers
        if not pace.is_measured:
            self._is_last_round = left <= num_workers * _FIRST_ROWS
            self._round_rows = _FIRST_ROWS
            return
        cost = pace.message_cost
        least = cost * max(1.0, num_workers / _NUM_FED)
        shortest, longest = sizes.shortest * least, max(sizes.longest * cost, sizes.shortest * least)
        mean = steps[self.next_row :].mean() if isinstance(steps, np.ndarray) else steps
        row_seconds = mean * pace.seconds
        fair_seconds = left * row_seconds / num_workers
        num_equal_rounds = max(1, math.ceil(fair_seconds / (_LONGEST_EQUAL * least)))
        if fair_seconds / num_equal_rounds <= pace.equal_seconds:
            self._is_last_round = num_equal_rounds == 1
            self._round_rows = max(1, left // (num_workers * num_equal_rounds))
            return
        is_rest = pace.is_even and left <= _LAST_EVEN_PART * self._num_rows and fair_seconds <= longest
        self._is_last_round = is_rest or fair_seconds <= shortest
        if not self._is_last_round:
            share = _EVEN_SHARE if pace.is_even else _UNEVEN_SHARE
            wanted = max(share * fair_seconds, shortest)
            # The rows to come may be as expensive as the most expensive ones of late.
            if pace.num_batches <= 1:
                longest = _LONGEST_FIRST * least
            safe = max(longest * pace.seconds / pace.highest_seconds, _SHORTEST * least)
            self._round_rows = max(1, int(min(wanted, safe) / row_seconds))

    def learn(self, rows: slice, seconds: float) -> None:
        """Update the measured cost with a range that a worker has finished in `seconds`."""
        steps, num_rows = self._steps, rows.stop - rows.start
        if isinstance(steps, np.ndarray):
            self._pace.learn(int(steps[rows].sum()), seconds)
        else:
            self._pace.learn(steps * num_rows, seconds)
        if self._num_workers > 1:
            self._seconds[rows.stop] = seconds
            self._num_learned += num_rows
            self._total += seconds
            if self._num_learned == self._num_rows and self._total > _JUDGED_SECONDS * self._num_workers:
                self._learn_balance()

    def _learn_balance(self) -> None:
        """Estimate the work of each worker if the batch were cut into one range per worker."""
        stops = sorted(self._seconds)
        until = np.cumsum([self._seconds[stop] for stop in stops])
        bounds = np.linspace(0, self._num_rows, self._num_workers + 1)
        work = np.diff(np.interp(bounds, [0, *stops], [0.0, *until]))
        self._pace.learn_balance(float(work.mean()), float(work.max()))


# -- Merges the answers to the chunks of a request. Letters: B rows ------------------------------------------

T = TypeVar("T")


class Merger(Generic[T]):
    """Collects the answers to the chunks of one request."""

    def __init__(self, request: Request[T], num_rows: int, description: EnvDescription) -> None:
        self._request = request
        self._num_rows = num_rows
        self._description = description
        self._columns: dict[int, tuple[int, Columns]] = {}  # first row -> number of rows, infos
        self._has_infos = False
        self._answer = Answer(request.new_outputs(description))

    @property
    def num_flagged(self) -> int:
        """Number of rows that are flagged as failed."""
        return len(self._answer.errors)

    def add(self, rows: slice, answer: Answer, is_flagging: bool) -> None:
        """Merge the answer to a chunk."""
        num_rows = rows.stop - rows.start
        if not num_rows:
            self._answer.value = answer.value
            return
        if num_rows == self._num_rows and not answer.is_borrowed and not is_flagging:
            self._answer.outputs = answer.outputs
        else:
            self._answer.outputs.put(rows, answer.outputs)
        # A dict, not a list: if a signal handler interrupts a merge, the chunk is retried and merged again.
        self._columns[rows.start] = num_rows, answer.columns
        self._has_infos = self._has_infos or bool(answer.columns)

    @property
    def answer(self) -> Answer:
        """The merged outputs, once all chunks are merged."""
        return self._answer

    def flag(self, row: int, error: PlanvecError) -> None:
        """Flag a row with an error."""
        self._answer.errors[row] = error

    def result(self) -> T:
        """Return the result for the user, once all chunks are merged."""
        answer = self._answer
        if len(self._columns) == 1:
            ((_, answer.columns),) = self._columns.values()
        elif self._has_infos:
            answer.columns = merge_columns(
                [(columns, size) for _, (size, columns) in sorted(self._columns.items())]
            )
        return self._request.result(self._description, answer)


class Chunk:
    """Holds the rows of a call that one worker executes, or a whole call without rows."""

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
        self.first_row: int = rows.start  # index of the first row in the batch
        self.num_rows: int = rows.stop - rows.start
        self.num_exits = 0  # workers that exited while they executed it
        # `is_flagging`: whether its rows are only flagged as failed, and not stepped. `is_submitted`: whether
        # it is submitted to a worker. `is_done`: whether it is answered or dropped
        self.is_flagging = self.is_submitted = self.is_done = False
        self.future: Future[Answer] | None = None  # the future of its answer, once it is submitted

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

    # All methods except `done`, `result` and `abandon` are called with `lock` held.
    # `is_counted`: Whether its chunks count in `Stats`. `is_extra`: Whether its chunks take no place from
    # others: a base state for one worker, an audit.

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
        self.is_counted, self.is_extra = request.is_counted, False
        self.cutter = Cutter(num_rows, request.steps, pace, is_async)  # chooses the sizes of the chunks
        self.is_done = request.has_rows and not num_rows  # whether the call is complete or has failed
        self._waiter = waiter
        self._lock = lock
        self._stats = stats
        self._description = description
        self._merger: Merger[T] | None = None
        self._limit = num_rows  # rows from here on are not needed
        self._cut: Chunk | None = None  # the latest chunk, which may not be submitted yet
        self._open: dict[int, Chunk] = {}  # first row -> chunk that is not done
        self._error: PlanvecError | None = None
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
            self._waiter.wait_for(self._has_finished, timeout)
        if self._error is not None:
            raise self._error
        if not self._is_merged:  # two threads may both merge; the results are equal
            self._value = self.prepare().result()
            self._is_merged = True
        value: T = self._value
        return value

    def abandon(self) -> None:
        with self._lock:
            self.fail(ClosedError("the call was interrupted"))

    @property
    def error(self) -> PlanvecError | None:
        """The error with which the call has failed, or None."""
        return self._error

    def _has_finished(self) -> bool:
        return self.is_done

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
        """Copy the arrays of the request, since the caller may change them from now on."""
        if not self.is_done:
            self.request = self.request.copy()

    # -- answers --------------------------------------------------------------------------------

    def prepare(self) -> Merger[T]:
        """Return the merger of the answers. Made after chunks are submitted, while the workers work."""
        merger = self._merger
        if merger is None:
            merger = self._merger = Merger(self.request, self.num_rows, self._description)
        return merger

    def deliver(self, chunk: Chunk, answer: Answer) -> None:
        """Merge the answer to a chunk."""
        merger = self.prepare()
        merger.add(chunk.rows, answer, chunk.is_flagging)
        if answer.errors:
            for row, error in answer.errors.items():
                merger.flag(row + chunk.first_row, error.moved(chunk.first_row))
        self._close(chunk)

    def flag(self, chunk: Chunk, error: PlanvecError) -> None:
        """Flag the rows of a chunk with an error. From now on a worker only fills in its outputs."""
        chunk.is_flagging, chunk.num_exits = True, 0
        for row in range(chunk.rows.start, chunk.rows.stop):
            self.prepare().flag(row, error)

    def fail_chunk(self, chunk: Chunk, error: PlanvecError) -> None:
        """Fail a chunk. Rows before the failed one continue, since the error of the first row is raised."""
        error = error.moved(chunk.first_row)
        row = error.row if isinstance(error, EnvError) else None
        self._fail_at(chunk.first_row if row is None else row, error)
        self._close(chunk)

    def _fail_at(self, row: int, error: PlanvecError) -> None:
        """Set the error of the call, unless an earlier row has failed. Drop the chunks from this row on."""
        if self.is_done or (self._error is not None and row >= self._limit):
            return
        self._error, self._limit = error, row
        for chunk in [chunk for first, chunk in self._open.items() if first >= row]:
            self._drop(chunk)
        self._finish_if_complete()

    def fail(self, error: PlanvecError) -> None:
        """Fail the call at once, and drop all of its chunks."""
        if self.is_done:
            return
        self._error = error
        self._finish()
        for chunk in list(self._open.values()):
            self._drop(chunk)

    def _close(self, chunk: Chunk) -> None:
        chunk.is_done = True
        self._open.pop(chunk.first_row, None)
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
                self._stats.masked_rows += self.prepare().num_flagged
            self._finish()

    def _finish(self) -> None:
        self.is_done = True
        self._calls.discard(self)
        self._cut = None  # it refers to this call: without the cycle, the arrays are freed with the result
