"""Performs operations on environments in a worker process, and survives the exit of the process.

    Chunk --RowsRequest--> worker: RowsServer     actions and results lie in shared memory
    worker exits  -> restart -> the operations of the `Journal` -> the chunks that were not done

A row gives the same results as if its worker had never exited (`on_crash="restore"`), or its episode ends
with a truncation (`"reset"`), or the call raises (`"raise"`).
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import Any

import numpy as np

from planvec.backends import ProcessWorker, Stats, WorkerExit, pause_before_restart
from planvec.errors import (
    ClosedError,
    EnvError,
    PlanvecError,
    WorkerCrashedError,
    WorkerStartError,
    WorkerTimeoutError,
)
from planvec.rows import copy_rows, copy_tree, take_rows
from planvec.vector.arrays import RowArrays, action_of, fits_arrays
from planvec.vector.chunk import Chunk
from planvec.vector.journal import Journal
from planvec.vector.layout import RowsLayout
from planvec.vector.operations import Lose, Operation, Reply, Reset, Step
from planvec.vector.rows_request import RowsRequest
from planvec.vector.server import read_reply, write_operation

__all__ = ["OnCrash", "WorkerRows"]

_log = logging.getLogger("planvec")


class OnCrash(Enum):
    """Says what happens to the rows of a worker that exits."""

    RESTORE = "restore"
    RESET = "reset"
    RAISE = "raise"


class WorkerRows:
    """Performs operations on the rows of one worker. Implements `RowGroup`.

    Args:
        worker: The worker, which hosts a `RowsServer`.
        first_row: Index of its first row in the vector environment.
        num_rows: Number of its rows.
        max_restarts: How often a chunk is retried after a worker exited on it.
        stats: Counts exits.
    """

    def __init__(
        self, worker: ProcessWorker, first_row: int, num_rows: int, max_restarts: int, stats: Stats
    ) -> None:
        self.first_row, self.num_rows = first_row, num_rows
        self.seconds_per_step = 0.0
        self.seconds = 0.0
        self.on_crash = OnCrash.RESTORE
        self._worker = worker
        self._max_restarts = max_restarts
        self._stats = stats
        self._journal = Journal(has_snapshots=True)
        self._chunks: dict[Chunk, None] = {}  # submitted and not done, in order
        self._writes = np.zeros(num_rows, bool)  # rows whose actions in memory the worker may still read
        self._has_episode = np.zeros(num_rows, bool)
        self._observations: Any = None  # the latest ones, if lost episodes report them
        self._num_failures = 0.0  # exits since an operation was last done
        self._failure: PlanvecError | None = None  # of the next chunk
        self._is_reported = False  # whether a chunk has the error of the exit that is handled

    def begin(self, on_crash: OnCrash) -> None:
        """Begin to accept operations. The worker is ready."""
        self._journal = Journal(has_snapshots=on_crash is OnCrash.RESTORE)
        self._set_policy(on_crash)

    def _set_policy(self, on_crash: OnCrash) -> None:
        self.on_crash = on_crash
        if on_crash is OnCrash.RESET:
            self._observations = copy_tree(self.arrays.observations)

    def _give_up_states(self) -> None:
        """Take no snapshots any more. Settings are kept."""
        self._journal.end_snapshots()
        self._set_policy(OnCrash.RESET)

    @property
    def layout(self) -> RowsLayout:
        """The layout of the present process."""
        layout: RowsLayout = self._worker.layout
        return layout

    @property
    def arrays(self) -> RowArrays:
        """The actions and the latest results of the rows."""
        return self.layout.arrays

    # -- operations ---------------------------------------------------------------------------------

    def submit(self, chunk: Chunk) -> None:
        """Begin an operation; see `RowGroup`."""
        chunk.operation.own_arguments()  # the caller may change them, and a crash may need them again
        with self._worker.lock:
            failure, self._failure = self._failure, None
            exit = self._worker.exit
            if exit is not None:
                failure = failure or exit.error
            if failure is not None:
                chunk.fail(failure)
                return
            self._chunks[chunk] = None
            if exit is None:
                self._send(chunk)
            else:  # given up in an earlier call
                self._num_failures = 0
                self._restart()

    def _send(self, chunk: Chunk) -> None:
        pending = self._worker.submit(RowsRequest(chunk, self.write))
        pending.add_done_callback(lambda done: self._done(chunk, done))

    def write(self, chunk: Chunk) -> bytes:
        """Write the actions of a chunk into the shared memory if possible, and return the rest."""
        operation = chunk.operation
        if not isinstance(operation, Step):
            return write_operation(operation, has_actions_in_memory=False)
        rows, target = operation.selection, self.arrays.actions
        if target is None or self._writes[rows].any() or not fits_arrays(operation.actions, target):
            return write_operation(operation, has_actions_in_memory=False)
        copy_rows(operation.actions, target, rows)
        self._writes[rows] = chunk.has_actions_in_memory = True
        return write_operation(operation, has_actions_in_memory=True)

    def _done(self, chunk: Chunk, pending: Any) -> None:
        """Handle the answer to a chunk, or the exit of its worker."""
        operation = chunk.operation
        if chunk.has_actions_in_memory:
            chunk.has_actions_in_memory = False
            self._writes[operation.selection] = False
        if chunk not in self._chunks:
            return  # it has failed already, or a restart has replaced it
        error = pending.exception()
        if isinstance(error, WorkerExit):
            if error.is_cause:
                chunk.num_exits += error.weight
                if chunk.num_exits > self._max_restarts or self.on_crash is OnCrash.RAISE:
                    self._is_reported = True
                    self._fail(chunk, self._crash(chunk, error))
            return  # `_bring_up_to_date` sends it again, or has done so already
        if error is not None:
            self._fail(chunk, error)
            return
        try:
            reply = read_reply(pending.result().value)
        except Exception as unreadable:  # of a class that this process lacks, for example
            reply = Reply()
            if not chunk.is_internal:  # the results of what is repeated are dropped
                self._journal.record(operation, reply)
                text = (
                    f"the results cannot be read in this process ({type(unreadable).__name__}: {unreadable})"
                )
                self._fail(chunk, EnvError(f"{type(operation).__name__.lower()}: {text}"))
                return
        if not chunk.is_internal:  # what is repeated was recorded before
            self._journal.record(operation, reply)
        if reply.inexact and self.on_crash is OnCrash.RESTORE:
            _log.warning(
                "%s: its environments cannot be saved any more, so that a crash would end their episodes: %s",
                self._worker.name,
                reply.inexact,
            )
            self._give_up_states()
        del self._chunks[chunk]
        if not any(other.is_internal for other in self._chunks):  # else the rest may end the worker again
            self._num_failures = 0
        if isinstance(operation, (Step, Reset)):
            self._after_step(operation, chunk, reply)
        chunk.finish(reply, self.arrays)

    def _after_step(self, operation: Operation, chunk: Chunk, reply: Reply) -> None:
        rows = operation.selection
        if isinstance(operation, Step):
            seconds = float(self.layout.seconds[0])
            self.seconds += seconds
            self.seconds_per_step = seconds / max(1, len(chunk.rows))
        else:
            self._has_episode[rows] = True
        if self.on_crash is not OnCrash.RESET:
            return
        if isinstance(self._observations, list):
            for row, observation in zip(
                np.arange(self.num_rows)[rows], reply.observations or (), strict=True
            ):
                self._observations[row] = observation
        else:
            copy_rows(take_rows(self.arrays.observations, rows), self._observations, rows)

    def _fail(self, chunk: Chunk, error: Exception) -> None:
        if chunk in self._chunks:
            del self._chunks[chunk]
            chunk.fail(error)

    # -- the exit of the worker ---------------------------------------------------------------------

    def worker_changed(self, worker: ProcessWorker) -> None:
        """Handle that the worker has become ready or has exited. Its lock is held."""
        exit = self._worker.exit
        if exit is None:
            return
        if exit.error is not None:  # closed, or it cannot start
            self._fail_all(exit.error)
            return
        self._stats.exits[exit.reason] += 1
        self._num_failures += exit.weight
        if self._num_failures > max(1, self._max_restarts):
            self._fail_all(WorkerStartError(f"{exit.what}; its replacements exited, too"))
            return
        _log.warning("%s; it is replaced", exit.what)
        self._drop_internal()
        if self.on_crash is OnCrash.RAISE:
            self._raise(exit)
        self._restart()

    def _restart(self) -> None:
        self._worker.restart(pause_before_restart(self._num_failures))
        if self._worker.exit is None:
            self._bring_up_to_date()

    def _bring_up_to_date(self) -> None:
        """Submit what puts the rows of the new process where they were, and the chunks that are not done."""
        chunks = list(self._chunks)
        if self.on_crash is not OnCrash.RESTORE:
            self._journal.forget()
        operations = self._journal.operations()
        if self.on_crash is OnCrash.RESET and self._has_episode.any():
            rows = np.flatnonzero(self._has_episode)
            last = self._observations
            observations = [last[row] for row in rows] if isinstance(last, list) else take_rows(last, rows)
            operations.append(Lose(rows, observations))
        all_rows = np.arange(self.first_row, self.first_row + self.num_rows)
        for operation in operations:
            internal = Chunk(operation, all_rows, None, is_internal=True)
            internal.on_done = self._internal_done
            self._chunks[internal] = None
            self._send(internal)
        for chunk in chunks:
            self._chunks[chunk] = self._chunks.pop(chunk)  # behind the internal ones
            self._send(chunk)

    def _drop_internal(self) -> None:
        for chunk in [chunk for chunk in self._chunks if chunk.is_internal]:
            del self._chunks[chunk]

    def _internal_done(self, chunk: Chunk) -> None:
        """Give up the rows if they cannot be brought up to date."""
        if chunk.error is not None:
            self._drop_internal()
            self._journal.forget()
            text = f"{self._worker.name} was replaced, but its environments cannot be restored: {chunk.error}"
            error = chunk.error if isinstance(chunk.error, ClosedError) else WorkerCrashedError(text)
            error.__cause__ = chunk.error
            self._fail_all(error)

    def _raise(self, exit: WorkerExit) -> None:
        """Fail all chunks. If no chunk has the error, the next one fails."""
        error = self._crash(None, exit)
        if not (self._chunks or self._is_reported):
            self._failure = error
        self._is_reported = False
        self._fail_all(error)

    def _fail_all(self, error: Exception) -> None:
        for chunk in list(self._chunks):
            self._fail(chunk, error)

    def _crash(self, chunk: Chunk | None, exit: WorkerExit) -> PlanvecError:
        """Return the error for the exit of a worker."""
        make = WorkerTimeoutError if exit.was_late else WorkerCrashedError
        what, row, action = exit.what, None, None
        if chunk is not None and exit.row is not None and exit.row < len(chunk.rows):
            row = int(chunk.rows[exit.row])
            operation = chunk.operation
            if isinstance(operation, Step):
                action = action_of(operation.actions, exit.row)
        if chunk is not None and chunk.num_exits > 1:
            what += f"; {round(chunk.num_exits)} workers failed on it, one after another"
        return make(what, row=row, action=action)
