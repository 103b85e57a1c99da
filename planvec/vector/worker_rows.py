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
    InvalidBatchError,
    PlanvecError,
    WorkerCrashedError,
    WorkerStartError,
)
from planvec.rows import copy_rows, copy_tree, take_rows
from planvec.vector.arrays import RowArrays, fits_arrays
from planvec.vector.chunk import Chunk
from planvec.vector.crash_error import crash_error
from planvec.vector.journal import Journal
from planvec.vector.layout import RowsLayout
from planvec.vector.operations import Load, Lose, Operation, Reply, Reset, SetStates, Step
from planvec.vector.rows_request import RowsRequest
from planvec.vector.server import read_reply, write_operation

_log = logging.getLogger("planvec")


class OnCrash(Enum):
    """Says what happens to the rows of a worker that exits."""

    RESTORE = "restore"
    RESET = "reset"
    RAISE = "raise"


class WorkerRows:
    """Performs operations on the rows of one worker. Implements `RowGroup`."""

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
        self._is_lost = np.zeros(num_rows, bool)  # rows that must be reset, since their worker exited
        self._lost: PlanvecError | None = None  # the error of a step of such rows

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

    def prepare(self, chunk: Chunk) -> None:
        """Prepare an operation; see `RowGroup`."""
        operation, target = chunk.operation, self.arrays.actions
        if not chunk.is_internal:  # the caller may change them, and a crash may need them again
            operation.own_arguments()
        if isinstance(operation, Step) and target is not None and fits_arrays(operation.actions, target):
            return
        try:
            chunk.payload = write_operation(operation, has_actions_in_memory=False)
        except Exception as error:
            text = f"an argument cannot be pickled ({type(error).__name__}: {error}); nothing was sent"
            raise InvalidBatchError(f"{type(operation).__name__.lower()}: {text}") from error

    def submit(self, chunk: Chunk) -> None:
        """Begin an operation; see `RowGroup`."""
        with self._worker.lock:
            exit, operation = self._worker.exit, chunk.operation
            failure = None if exit is None else exit.error
            if isinstance(operation, Step) and self._is_lost[operation.selection].any():
                failure = failure or self._lost
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
        if chunk.payload is not None:
            return chunk.payload
        operation = chunk.operation
        assert isinstance(operation, Step)
        rows, target = operation.selection, self.arrays.actions
        if self._writes[rows].any():
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
                    self._fail(chunk, crash_error(error, chunk))
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
        if reply.shared:
            _log.warning(
                "%s: its %d environments share %s, which has changed while they were stepped: their results "
                "may not be those of one process each. Open them with one worker for each",
                self._worker.name,
                self.num_rows,
                reply.shared,
            )
        del self._chunks[chunk]
        if not any(other.is_internal for other in self._chunks):  # else the rest may end the worker again
            self._num_failures = 0
        if isinstance(operation, (Step, Reset)):
            self._after_step(operation, chunk, reply)
        elif isinstance(operation, (SetStates, Load)):
            self._has_episode[operation.selection], self._is_lost[operation.selection] = True, False
        chunk.finish(reply, self.arrays)

    def _after_step(self, operation: Operation, chunk: Chunk, reply: Reply) -> None:
        rows = operation.selection
        if isinstance(operation, Step):
            seconds = float(self.layout.seconds[0])
            self.seconds += seconds
            self.seconds_per_step = seconds / max(1, len(chunk.rows))
        else:
            self._has_episode[rows], self._is_lost[rows] = True, False
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
            self.prepare(internal)
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
        """Fail all steps until the rows are reset. Other chunks are sent to the replacement."""
        self._lost = crash_error(exit, advice="; its environments must be reset")
        self._is_lost |= self._has_episode
        self._has_episode[:] = False
        for chunk in [chunk for chunk in self._chunks if isinstance(chunk.operation, Step)]:
            self._fail(chunk, self._lost)

    def _fail_all(self, error: Exception) -> None:
        for chunk in list(self._chunks):
            self._fail(chunk, error)
