"""Queues chunks for workers, replaces workers that exit, and retries their rows.

    a worker exits in a chunk       the row in progress is retried alone, the other rows by other workers
    ... and again at that row       up to `max_restarts` times; then the row raises, or is flagged
    a worker exits while idle       its chunks go to other workers, and this counts as no attempt

Transitions are pure: a row gives the same bits on every worker and in every chunk, so any worker may retry
it. The other workers continue meanwhile. Each exit is one line in the log and one count in `Stats`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium

from planvec.backends.base import Stats, Worker, WorkerExit
from planvec.backends.sharded.call import Call, Chunk
from planvec.errors import (
    ClosedError,
    PlanvecError,
    WorkerCrashedError,
    WorkerStartError,
    WorkerTimeoutError,
)
from planvec.rows import (
    Answer,
    Outputs,
    SetBaseStateRequest,
)

_log = logging.getLogger("planvec")

MAX_PENDING = 2  # largest number of chunks of a worker at a time: the one that it executes, and the next one


class WorkerRecord:
    """Holds one worker, its chunks and its latest exit."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        # chunks that it has not answered, the oldest first, without those of extra calls (see `Call`)
        self.chunks: list[Chunk] = []
        self.num_failures = 0  # number of its exits since it last finished a chunk, except kills from outside
        self.failure: PlanvecError | None = None  # the reason that it cannot start, or None
        self.exit_text = ""  # text for messages: how it exited last, and while executing which rows
        # whether it had no place when a base state was synced, and gets it once it is ready
        self.lacks_base_state = False


def can_begin(records: Sequence[WorkerRecord]) -> bool:
    """Return whether a worker has started or failed, and so have the others that do not wait for a place."""
    waiting = [record for record in records if not (record.worker.is_ready or record.failure is not None)]
    return len(waiting) < len(records) and all(record.worker.is_delayed for record in waiting)


class Queue:
    """Queues the chunks and calls that wait for a worker."""

    # A chunk stays in the queue while it is being submitted, and is skipped once it is marked as submitted.
    # Therefore a signal handler that raises in between loses no chunk.

    def __init__(self) -> None:
        self._retries: list[Chunk] = []
        self.calls: deque[Call[Any]] = deque()

    def is_empty(self) -> bool:
        """Return whether no chunk waits. Removes calls that are cut."""
        calls = self.calls
        while calls and calls[0].is_cut:
            calls.popleft()
        return not (calls or self._retries)

    def retry(self, *chunks: Chunk) -> None:
        """Insert chunks before all others, in this order."""
        for chunk in reversed(chunks):
            chunk.is_submitted, chunk.future, chunk.bound_to = False, None, None
            self._retries.insert(0, chunk)

    def release(self, worker: Worker, error: PlanvecError) -> None:
        """Fail the calls whose chunks are bound to a worker that cannot start."""
        for chunk in [chunk for chunk in self._retries if chunk.bound_to is worker]:
            chunk.call.fail(error)

    def next_chunk(self, record: WorkerRecord, num_workers: int, is_needed: bool) -> Chunk | None:
        """Return the next chunk for a worker, or None. It stays the next one until it is submitted."""
        # A worker that is not needed gets only what is bound to it.
        if self._retries:
            self._retries = [one for one in self._retries if not (one.is_submitted or one.is_done)]
            for bound_to in (record.worker, None) if is_needed else (record.worker,):
                for retry in self._retries:
                    if retry.bound_to is bound_to:
                        return retry
        while self.calls and is_needed:
            chunk = self.calls[0].next_chunk(num_workers, record.worker.capacity)
            if chunk is not None:
                return chunk
            self.calls.popleft()
        return None

    def fail_waiting(self, error: PlanvecError) -> None:
        """Fail every call that has chunks in this queue, except those bound to one worker."""
        retries = [one for one in self._retries if one.bound_to is None and not one.is_submitted]
        waiting = [call for call in self.calls if call.is_waiting]
        for call in [*(one.call for one in retries), *waiting]:
            call.fail(error)


_FIRST_PAUSE = 0.05
# seconds before the restart of a worker that exited at least twice without finishing anything
_LONGEST_PAUSE = 1.0


def pause_before_restart(num_failures: float) -> float:
    """Return the seconds to wait, given the number of exits since the worker last finished something."""
    repeated = num_failures - 2
    return 0.0 if repeated < 0 else min(_FIRST_PAUSE * 2**repeated, _LONGEST_PAUSE)


class Recovery:
    """Restarts workers and retries their chunks."""

    def __init__(
        self,
        records: Sequence[WorkerRecord],
        queue: Queue,
        max_restarts: int,
        stats: Stats,
        on_restart: Callable[[WorkerRecord], object],
    ) -> None:
        self._records = records
        self._queue = queue
        self._max_restarts = max_restarts
        self._max_exits = max(1, max_restarts) * len(records)
        self._stats = stats
        self._on_restart = on_restart
        self._unreported: list[WorkerRecord] = []
        # the space of one action, for messages; None until all workers have started
        self.action_space: gymnasium.Space[Any] | None = None
        self.num_idle_exits = 0.0  # exits of idle workers since a worker last finished a chunk
        self.num_failed_starts = 0.0  # exits of starting workers since a worker last became ready
        # Number of workers that cannot start. The next call raises the reason; the call after that restarts
        # them.
        self.num_failed = 0

    # -- the workers --------------------------------------------------------------------------------

    def restart_failed(self) -> PlanvecError | None:
        """Restart the workers that could not start, unless a call has yet to raise the reason."""
        # Returns the reason to raise, if no call has raised it yet or no worker is left; else None.
        for record in self._records:
            if record.failure is None:
                continue
            if record in self._unreported:
                self._unreported.remove(record)
                return record.failure
            if not isinstance(record.failure, ClosedError):
                self._set_failure(record, None)
                record.worker.restart()
                self._on_restart(record)
        return self._records[0].failure if self.num_failed == len(self._records) else None

    def _set_failure(self, record: WorkerRecord, failure: PlanvecError | None) -> None:
        record.failure = failure
        self.num_failed = sum(record.failure is not None for record in self._records)

    def worker_ready(self, record: WorkerRecord) -> None:
        """Reset the failure of a worker that has become ready."""
        self._set_failure(record, None)
        self.num_failed_starts = 0

    def worker_exited(self, record: WorkerRecord, exit: WorkerExit) -> None:
        """Restart a worker that has exited, or give it up. Call `chunk_lost` for its chunks first."""
        if exit.error is not None:
            self._give_up(record, exit.error)
            return
        self._stats.exits[exit.reason] += 1
        text, record.exit_text = record.exit_text or exit.what, ""
        # Kills from outside say little about an environment that was open, so they count less; but calls must
        # end. Before all workers have started, the system may kill them because memory is short.
        share = 1.0 if self.action_space is None else exit.weight
        if exit.was_starting:
            self.num_failed_starts += share
        elif not exit.is_cause:
            self.num_idle_exits += share
        if max(self.num_failed_starts, self.num_idle_exits) > self._max_exits:
            self._give_up_all(record, text)
            return
        _log.warning("%s; it is replaced", text)
        record.num_failures += not exit.was_killed
        record.worker.restart(pause_before_restart(record.num_failures))
        self._on_restart(record)

    def _give_up_all(self, record: WorkerRecord, text: str) -> None:
        """Fail all waiting calls: workers exit faster than they can be restarted."""
        hint = ""
        if self.action_space is None:
            hint = ". Does making the environment end the process, or is there too little memory?"
        error = WorkerStartError(
            f"{text}; more than {self._max_exits} workers exited without completing anything in between{hint}"
        )
        _log.error("%s; all waiting calls fail", error)
        for failed in self._records if self.action_space is None else (record,):
            self._set_failure(failed, error)
        self.num_failed_starts = self.num_idle_exits = 0
        self._queue.fail_waiting(error)
        self._queue.release(record.worker, error)

    def _give_up(self, record: WorkerRecord, error: PlanvecError) -> None:
        """Give up a worker that cannot start. Others take its rows; the next call raises the reason."""
        self._set_failure(record, error)
        if self.action_space is None:
            return  # opening the backend raises the reason
        has_others = any(other.failure is None for other in self._records)
        if not isinstance(error, ClosedError):  # which the user has closed
            rest = "the other workers take its rows" if has_others else "no worker is left"
            _log.error("%s; %s", error, rest)
        if has_others:
            self._unreported.append(record)
        else:
            self._unreported.clear()
            self._queue.fail_waiting(error)
        self._queue.release(record.worker, error)

    # -- the rows -----------------------------------------------------------------------------------

    def chunk_lost(self, record: WorkerRecord, chunk: Chunk, exit: WorkerExit) -> None:
        """Retry a chunk whose worker has exited, whole or in parts, or fail its call."""
        if isinstance(chunk.call.request, SetBaseStateRequest):
            # The restarted worker gets the latest base state first. This one may be older.
            self.num_idle_exits += exit.is_cause
            chunk.call.deliver(chunk, Answer(Outputs()))
            return
        if not exit.is_cause:
            self._queue.retry(chunk)
            return
        record.exit_text = f"{exit.what} during the {chunk.describe()}"
        chunk.num_exits += 1
        if not chunk.num_rows:
            if exit.was_late or chunk.num_exits > self._max_restarts:
                chunk.call.fail(self._error(record, chunk, exit))
            else:
                self._retry(chunk)
        elif chunk.is_flagging:
            self._retry_whole(record, chunk, exit)
        elif exit.was_late and not chunk.call.request.mask_errors:
            chunk.call.fail(self._error(record, chunk, exit))
        elif chunk.num_rows == 1:
            self._retry_alone(record, chunk, exit)
        elif exit.row is not None:
            self._retry_parts(record, chunk, exit)
        else:
            self._retry_whole(record, chunk, exit)

    def _retry(self, *chunks: Chunk) -> None:
        self._stats.retries += 1
        self._queue.retry(*chunks)

    def _retry_parts(self, record: WorkerRecord, chunk: Chunk, exit: WorkerExit) -> None:
        """Retry the row on which a worker exited alone, and the other rows of the chunk in parts."""
        row = exit.row
        assert row is not None
        parts = chunk.call.split(chunk, row, row + 1)
        alone = next(part for part in parts if part.first_row == chunk.first_row + row)
        alone.num_exits = 0 if exit.was_late else chunk.num_exits
        self._queue.retry(*(part for part in parts if part is not alone))
        self._retry_alone(record, alone, exit)

    def _retry_alone(self, record: WorkerRecord, chunk: Chunk, exit: WorkerExit) -> None:
        """Retry one row on which a worker exited; after the last attempt, flag it or fail the call."""
        if chunk.num_exits <= (0 if exit.was_late else self._max_restarts):
            self._retry(chunk)
            if chunk.num_exits >= 2:  # the row may crash every worker: do not risk another one
                chunk.bound_to = record.worker
            return
        error = self._error(record, chunk, exit)
        if chunk.call.request.mask_errors:
            _log.warning("%s; the row is flagged", error)
            chunk.call.flag(chunk, error)
            self._queue.retry(chunk)
        else:
            chunk.call.fail_chunk(chunk, error)

    def _retry_whole(self, record: WorkerRecord, chunk: Chunk, exit: WorkerExit) -> None:
        """Retry rows without knowing on which one the worker exited. After the last attempt, halve them."""
        if chunk.num_exits <= self._max_restarts:
            self._retry(chunk)
        elif chunk.is_flagging:
            chunk.call.fail(self._error(record, chunk, exit))  # even flagging them failed
        else:
            halves = chunk.call.split(chunk, chunk.num_rows // 2)
            for half in halves:
                half.num_exits = self._max_restarts
            self._retry(*halves)

    def _error(self, record: WorkerRecord, chunk: Chunk, exit: WorkerExit) -> PlanvecError:
        """Return the error of a chunk after its last attempt."""
        make = WorkerTimeoutError if exit.was_late else WorkerCrashedError
        what, row, action = record.exit_text, None, None
        request = chunk.call.request
        if exit.row is not None and chunk.num_rows:
            assert self.action_space is not None
            at = 0 if chunk.num_rows == 1 else exit.row  # the exit counts rows from the start of the chunk
            row = chunk.first_row + at
            action = request.action(row, exit.step, self.action_space)
        elif chunk.num_rows == 1:
            row = chunk.first_row
        if chunk.num_exits > 1:
            what += f"; {chunk.num_exits} workers failed on it, one after another"
        elif make is WorkerCrashedError and not self._max_restarts:
            what += "; max_restarts=n retries it n times, in case the row is not the cause"
        return make(what, row=row, action=action)


def worker_error(record: WorkerRecord, chunk: Chunk, what: str, error: Exception) -> PlanvecError:
    """Return the error of a chunk if a worker does not do what `Worker` declares. `what` says what it did."""
    text = f"{chunk.describe()}: {record.worker.name} {what} ({type(error).__name__}: {error})"
    named = PlanvecError(text)
    named.__cause__ = error
    return named
