"""Defines `Sharded`, the backend that spreads the rows of a request over workers and merges the answers.

run(request) -> Call --next_chunk--> Worker.submit -> Future
                 ^                                       |
                 +---- deliver or Recovery <----done-----+
"""

from __future__ import annotations

import os
import sys
import threading
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from types import FrameType
from typing import Any, TypeVar

from planvec.backends.audit import DEFAULT_AUDIT
from planvec.backends.base import Future, StepsElsewhere, Worker, WorkerExit, WorkerGroup
from planvec.backends.sharded.auditing import Auditor
from planvec.backends.sharded.call import Call, Chunk
from planvec.backends.sharded.description import common_description
from planvec.backends.sharded.pace import Pace
from planvec.backends.sharded.queue import MAX_PENDING, Queue, WorkerRecord, can_begin
from planvec.backends.sharded.recovery import Recovery, worker_error
from planvec.backends.signals import REENTERED, is_from_handler, is_running
from planvec.backends.stats import Stats
from planvec.backends.waiting import Waiter
from planvec.errors import ClosedError, EnvError, PlanvecError
from planvec.rows import AllDone, Answer, Failed, Promise, Request, SetBaseStateRequest

T = TypeVar("T")

# A single row that takes less does not count in the estimated cost of rows: most of it is overhead
_INFORMATIVE_SECONDS = 1e-3


class Sharded(StepsElsewhere):
    """Spreads requests over workers that have the same environment.

    Args:
        workers: At least one worker. `close` closes them.
        group: The group that handles the messages of these workers; None if they have threads of their own.
        max_restarts: Largest number of retries of a row on which workers exit.
        audit: Part of the time of all steps in which rows are stepped a second time, and compared.
        message_cost: How many times as long a message takes as one to a process of this machine.

    Attributes:
        description: The description of the environment.
        stats: Counts of rows, chunks, retries and worker exits.
        base_state: The state at which rows start if a request gives none.

    Raises:
        WorkerStartError: A worker did not become ready, or the workers have different environments. All
            workers are closed.
        UnsupportedEnvError: The environment cannot be saved exactly. All workers are closed.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        *,
        group: WorkerGroup | None = None,
        max_restarts: int = 3,
        audit: float = DEFAULT_AUDIT,
        message_cost: float = 1.0,
    ) -> None:
        self.stats = Stats()
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._closed = False
        self._group = group
        self._waiter = Waiter(group, self._dispatch_again)
        self._records = [WorkerRecord(worker) for worker in workers]
        self._queue = Queue()
        self._recovery = Recovery(self._records, self._queue, max_restarts, self.stats, self._send_base_state)
        self._paces: defaultdict[type[Request[Any]], Pace] = defaultdict(lambda: Pace(message_cost))
        self._calls: set[Call[Any]] = set()  # not done
        self._auditor = Auditor(audit, len(workers), self._submit_to, self.stats)
        self._dispatching: FrameType | None = None  # of `_dispatch`, while it runs
        self._must_dispatch = False
        self._shared_base_state: list[Any] = []  # the state that `sync_base_state` sent last; empty before
        try:
            for record in self._records:
                record.worker.listen(partial(self._worker_changed, record), self._lock)
            self._waiter.wait_for(lambda: can_begin(self._records), None)
            for record in self._records:
                if record.failure is not None:
                    raise record.failure
            self.description = common_description([worker for worker in workers if worker.is_ready])
        except BaseException:
            self.close()
            raise
        self.base_state = self.description.base_state
        self._recovery.action_space = self.description.action_space

    @property
    def num_workers(self) -> int:
        """Number of workers, also of those that wait for a place."""
        return len(self._records)

    def run(self, request: Request[T], *, keep: bool = False) -> Promise[T]:
        """Execute a request. See `Backend.run`."""
        error = self._why_unusable()
        if error is not None:
            return Failed(error)
        for record in self._records:
            if not record.worker.is_ready:
                self._waiter.poll()  # its ready message may have arrived
                break
        with self._lock:
            error = self._recovery.restart_failed() if self._recovery.num_failed else None
            error = error or self._auditor.verdict()
            if error is not None:
                return Failed(error)
            call = self._new_call(request, self._paces[type(request)], keep)
            try:
                if self._closed:  # by another thread or a signal handler, since the check above
                    call.fail(ClosedError("the workers were closed"))
                if not call.is_done:
                    self._queue.add(call)
                    self._dispatch()
                    self._auditor.begin(self._records)
                    if keep:
                        call.copy_request()
                    call.prepare()
            except BaseException:  # Ctrl-C: nobody will read the promise
                call.abandon()
                raise
            if request.is_counted:
                self.stats.num_rows += call.num_rows
        return call

    def sync_base_state(self) -> Promise[None]:
        """Set the base state of every worker, and of every later replacement, to `base_state`."""
        error = self._why_unusable()
        if error is not None:
            return Failed(error)
        with self._lock:
            self._shared_base_state = [self.base_state]
            calls = [self._send_base_state(record) for record in self._records]
        return AllDone([call for call in calls if call is not None])

    def close(self) -> None:
        """Close the workers. Promises that are not complete raise `ClosedError`. May be called again."""
        self._closed = True
        if os.getpid() == self._pid:
            with self._lock:
                for call in list(self._calls):
                    call.fail(ClosedError("the workers were closed"))
        if self._group is not None:
            self._group.close()
        else:
            for record in self._records:
                record.worker.close()
        self._waiter.notify()

    def _why_unusable(self) -> PlanvecError | None:
        """Return the error of a call after `close`, in a fork, or from a signal handler; else None."""
        if self._closed:
            return ClosedError("the workers were closed")
        if os.getpid() != self._pid:
            return ClosedError("the workers belong to the process that forked this one; open new ones here")
        if is_running(self._dispatching):
            return PlanvecError(REENTERED)
        return None

    def _new_call(self, request: Request[T], pace: Pace, keep: bool) -> Call[T]:
        return Call(request, self.description, pace, self._waiter, self._lock, self.stats, keep, self._calls)

    # -- dispatch -----------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        """Submit queued chunks to workers that have room."""
        # A worker may answer before `submit` returns. The nested call then leaves its work to the outer one,
        # since a recursion would be as deep as there are chunks.
        self._must_dispatch = True
        if is_running(self._dispatching):
            return
        try:
            self._dispatching = sys._getframe()
            while self._must_dispatch:
                self._must_dispatch = False
                self._submit_queued()
        finally:
            self._dispatching = None

    def _submit_queued(self) -> None:
        """Submit one chunk to each worker that has room, then a second one."""
        queue = self._queue
        ready = [record for record in self._records if record.worker.is_ready]
        for depth in range(MAX_PENDING):
            for record in ready:
                if len(record.chunks) <= depth and record.worker.is_ready:
                    chunk = queue.next_chunk(record, len(ready))
                    if chunk is not None:
                        self._submit(record, chunk)
            if queue.is_empty():
                return

    def _dispatch_again(self) -> None:
        """Submit queued chunks, in case a signal handler interrupted `_dispatch`."""
        with self._lock:
            self._dispatch()

    def _submit(self, record: WorkerRecord, chunk: Chunk) -> None:
        """Submit a chunk to a worker. It is marked as submitted last, for the reason that `Queue` states."""
        try:
            future = record.worker.submit(chunk.request())
        except Exception as error:
            if is_from_handler(error):
                raise
            chunk.call.fail_chunk(chunk, worker_error(record, chunk, "did not take it", error))
            return
        chunk.future = future
        if not chunk.call.is_extra:
            record.chunks.append(chunk)
        self.stats.num_chunks += chunk.call.is_counted
        future.add_done_callback(partial(self._answered, record, chunk))
        if chunk.future is future:  # otherwise the worker has exited, and the chunk is queued again
            chunk.is_submitted = True

    def _answered(self, record: WorkerRecord, chunk: Chunk, future: Future[Answer]) -> None:
        """Handle the answer to a chunk, its error, or the exit of the worker."""
        with self._lock:
            if chunk in record.chunks:
                record.chunks.remove(chunk)
            if not future.cancelled():
                self._deliver(record, chunk, future)
            elif not chunk.is_done:
                text = f"{record.worker.name} cancelled the {chunk.describe()}, which was not cancelled here"
                chunk.call.fail_chunk(chunk, PlanvecError(text))
            # A chunk that is neither submitted nor done is the one that `_dispatch` is submitting.
            if (chunk.is_submitted or chunk.is_done) and not self._queue.is_empty():
                self._dispatch()
        self._waiter.notify()

    def _deliver(self, record: WorkerRecord, chunk: Chunk, future: Future[Answer]) -> None:
        """Merge the answer to a chunk, fail its call, or retry it after the exit of the worker."""
        error = future.exception()
        if error is not None and isinstance(error, WorkerExit):
            self._recovery.chunk_lost(record, chunk, error)
            return
        record.num_failures = 0
        self._recovery.num_idle_exits = 0
        if chunk.is_done:
            return
        if error is None:
            answer = future.result()
            is_informative = chunk.num_rows > 1 or answer.seconds > _INFORMATIVE_SECONDS
            if is_informative and not chunk.is_flagging:
                chunk.call.cutter.learn(chunk.rows, answer.seconds)
            self._auditor.consider(record, chunk, answer)
            try:
                chunk.call.deliver(chunk, answer)
            except Exception as invalid:  # a future may drop the exceptions of its callbacks
                if is_from_handler(invalid):
                    raise
                chunk.call.fail_chunk(chunk, worker_error(record, chunk, "answered wrongly", invalid))
        else:
            named = error if isinstance(error, PlanvecError) else EnvError(f"{type(error).__name__}: {error}")
            chunk.call.fail_chunk(chunk, named)

    def _worker_changed(self, record: WorkerRecord, worker: Worker) -> None:
        """Handle a worker that has become ready or has exited."""
        with self._lock:
            if worker.exit is not None and not self._closed:
                self._recovery.worker_exited(record, worker.exit)
            elif worker.is_ready:
                self._recovery.worker_ready(record)
                if record.lacks_base_state:
                    self._send_base_state(record)
            self._dispatch()
        self._waiter.notify()

    def _send_base_state(self, record: WorkerRecord) -> Call[None] | None:
        """Send a worker the base state that was synced last, if any. Return the call unless it waits."""
        record.lacks_base_state = record.worker.is_delayed
        if record.lacks_base_state or not self._shared_base_state or record.failure is not None:
            return None
        was_ready = record.worker.is_ready
        call = self._submit_to(SetBaseStateRequest(self._shared_base_state[0]), record)
        return call if was_ready else None

    def _submit_to(self, request: Request[T], record: WorkerRecord) -> Call[T]:
        """Submit a whole request to one worker, before all others, even if the worker is not ready yet."""
        call = self._new_call(request, Pace(), True)
        call.is_counted, call.is_extra = False, True
        chunk = call.next_chunk(1, 1)
        assert chunk is not None
        self._submit(record, chunk)
        return call
