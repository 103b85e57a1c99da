"""Defines `Sharded`, the backend that spreads the rows of a request over workers and merges the answers.

run(request) -> Call --next_chunk--> Worker.submit -> Future
                 ^                                       |
                 +---- deliver or Recovery <----done-----+
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any, TypeVar

import numpy as np

from planvec.backends.audit import DEFAULT_AUDIT, Audit, AuditedRow
from planvec.backends.base import Backend, Future, Stats, Worker, WorkerExit, check_same
from planvec.backends.client import Waiter, WorkerGroup
from planvec.backends.in_process import InProcess
from planvec.backends.sharded.call import Call, Chunk
from planvec.backends.sharded.cutting import Pace
from planvec.backends.sharded.recovery import (
    MAX_PENDING,
    Queue,
    Recovery,
    WorkerRecord,
    can_begin,
    worker_error,
)
from planvec.backends.signals import REENTERED, is_from_handler, is_running
from planvec.errors import (
    ClosedError,
    EnvError,
    PlanvecError,
    WorkerStartError,
)
from planvec.rows import (
    AllDone,
    EnvDescription,
    Failed,
    Promise,
    Request,
    SetBaseStateRequest,
    wait_for,
)
from planvec.stepping import EnvStepper

T = TypeVar("T")


# -- Steps small batches in this process, where sending them to workers takes longer.
#
#     run(request) ---> workers        large batches, promises, and all that is no step or rollout
#                  \--> `InProcess`    small batches whose work takes less time than messages
#
# It does so only where workers protect from nothing: for environments whose code is known not to crash or
# hang, and without limits on time and memory. The results are the same, since transitions are pure
# functions. It serves programs that open workers for large batches and also step single rows between them: a
# row of CartPole takes a third of the time (`benchmarks/small_batches.py`).

_log = logging.getLogger("planvec")

_MAX_STEPS = 128  # largest number of steps of a small batch
# Small batches that go to workers before an environment is opened here, which takes some milliseconds. They
# show how much longer workers take than their shares of the work, for messages and until they wake: with two
# of them 150 to 600 us, by the machine. (CartPole, 16 rows: 220 us or 765 with workers, 125 or 366 here.)
_NUM_BEFORE = 100
_FIRST_MESSAGE_SECONDS, _MOST_MESSAGE_SECONDS = 200e-6, 2e-3
_WEIGHT, _LONGEST = 0.1, 3.0  # of a batch in their average, at most so many averages
_MANY_WAITS = 0.2  # waits per row from which on steps wait, so that cores are idle meanwhile


class Sharded(Backend):
    """Spreads requests over workers that have the same environment.

    Args:
        workers: At least one worker. `close` closes them.
        group: The group that handles the messages of these workers; None if they have threads of their own.
        max_restarts: Largest number of retries of a row on which workers exit.
        audit: Part of the time of all steps in which rows are stepped a second time, and compared.
        message_cost: How many times as long a message takes as one to a process of this machine.
        open_here: Returns a stepper of the environment in this process, where that may step small batches;
            None if workers step all.
        num_busy: Number of workers that find a core; None: all.
        has_one_clock: Whether the clocks of the workers show the time of this process. Otherwise deadlines
            are dropped.

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
        open_here: Callable[[], EnvStepper] | None = None,
        num_busy: int | None = None,
        has_one_clock: bool = True,
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
        # While one worker repeats a row, the others may have to wait for it.
        self._audit = Audit(audit / len(workers))
        self._audited: AuditedRow | None = None  # the row that is repeated, one at a time
        self._audit_call: tuple[Call[Any], str] | None = None  # the call that repeats it, and its worker
        self._dispatching: FrameType | None = None  # of `_dispatch`, while it runs
        self._must_dispatch = False
        self._shared_base_state: list[Any] = []  # the state that `sync_base_state` sent last; empty before
        # waits per row, on average; at first, every worker is needed
        self._waits, self._num_busy = 1.0, num_busy or len(workers)
        self._has_one_clock = has_one_clock
        self._open_here = open_here
        self._here: InProcess | None = None  # steps small batches, once it is open
        # how much longer workers take for a small batch than their shares of the work, on average
        self._message_seconds = _FIRST_MESSAGE_SECONDS
        self._num_small = 0
        self._fraction = audit
        try:
            for record in self._records:
                record.worker.listen(partial(self._worker_changed, record), self._lock)
            self._waiter.wait_for(lambda: can_begin(self._records), None)
            for record in self._records:
                if record.failure is not None:
                    raise record.failure
            descriptions: list[EnvDescription] = []
            for worker in workers:
                if not worker.is_ready:
                    continue
                if worker.description is None:
                    raise WorkerStartError(
                        f"workers: expected each to host a planvec.PlanEnv, but {worker.name} does not; "
                        "pass ExternalProcess(lambda: planvec.PlanEnv(...))"
                    )
                descriptions.append(worker.description)
                check_same(worker.name, descriptions[0], worker.description)
            self.description = descriptions[0]
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
        if not (request.deadline is None or self._has_one_clock):
            request = replace(request, deadline=None)  # type: ignore[type-var] # a dataclass with that field
        started = time.perf_counter()
        # seconds of work in a small batch that may be stepped here, and in the largest share of it if workers
        # step it; 0 if that is not known yet
        work, share = None, 0.0
        if self._open_here is not None and not keep and request.is_counted:
            work = self._work_of_small(request)
            if work:
                share = work * -(-request.num_rows // self._num_needed()) / request.num_rows
        if work is not None and work - share <= self._message_seconds:
            here = self._here or self._opened_here()
            if here is not None:
                return here.run(request)
        for record in self._records:
            if not record.worker.is_ready:
                self._waiter.poll()  # its ready message may have arrived
                break
        with self._lock:
            error = self._recovery.restart_failed() if self._recovery.num_failed else None
            if self._audit_call is not None:
                error = error or self._finish_audit(*self._audit_call)
            if error is not None:
                return Failed(error)
            call = self._new_call(request, self._paces[type(request)], keep)
            try:
                if self._closed:  # by another thread or a signal handler, since the check above
                    call.fail(ClosedError("the workers were closed"))
                if not call.is_done:
                    self._queue.calls.append(call)
                    self._dispatch()
                    self._begin_audit()
                    if keep and not call.is_done:  # the caller may change the arrays from now on
                        call.request = call.request.copy()
                    call.prepare()
            except BaseException:  # Ctrl-C: nobody will read the promise
                call.abandon()
                raise
            if request.is_counted:
                self.stats.num_rows += call.num_rows
        if work and self._here is None:
            with contextlib.suppress(PlanvecError):  # the caller, who would wait next, gets it from the call
                wait_for(call)
                seconds = time.perf_counter() - started - share
                seconds = min(max(seconds, 0.0), _LONGEST * self._message_seconds, _MOST_MESSAGE_SECONDS)
                self._message_seconds += _WEIGHT * (seconds - self._message_seconds)
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
        if self._here is not None:
            self._here.close()

    def _why_unusable(self) -> PlanvecError | None:
        """Return the error of a call after `close`, in a fork, or from a signal handler; else None."""
        if self._closed:
            return ClosedError("the workers were closed")
        if os.getpid() != self._pid:
            return ClosedError("the workers belong to the process that forked this one; open new ones here")
        if is_running(self._dispatching):
            return PlanvecError(REENTERED)
        return None

    def _work_of_small(self, request: Request[Any]) -> float | None:
        """Return the seconds of work of a small request for steps or rollouts; None for another one."""
        if request.num_rows > _MAX_STEPS:
            return None
        steps = request.steps
        num_steps = int(steps.sum()) if isinstance(steps, np.ndarray) else steps * request.num_rows
        return num_steps * self._paces[type(request)].seconds if 0 < num_steps <= _MAX_STEPS else None

    def _opened_here(self) -> InProcess | None:
        """Return the backend of this process, opened if it is time; None if workers have to step."""
        with self._lock:
            if self._closed:  # by another thread
                return None
            self._num_small += 1
            if self._here is None and self._open_here is not None and self._num_small > _NUM_BEFORE:
                try:
                    stepper = self._open_here()
                    # What the program has changed in the class or its module is not changed in the workers.
                    check_same("this process", self.description, stepper.description)
                except Exception as error:
                    if is_from_handler(error):
                        raise
                    _log.debug("all batches go to workers", exc_info=True)
                    self._open_here = None
                else:
                    here = InProcess(stepper, self._fraction)
                    here.stats = self.stats
                    self._here = here
            return self._here

    def _new_call(self, request: Request[T], pace: Pace, keep: bool) -> Call[T]:
        return Call(request, self.description, pace, self._waiter, self._lock, self.stats, keep, self._calls)

    def _begin_audit(self) -> None:
        """Let a worker step the kept row again: another one than the first time, if there is one."""
        # It does so after the chunks that it has.
        row = self._audited
        if row is None or self._audit_call is not None:
            return
        others = [record for record in self._records if record.worker.name != row.stepped_by]
        ready = [record for record in others or self._records if record.worker.is_ready]
        if ready:
            second = min(ready, key=lambda record: len(record.chunks))
            self._audit_call = self._submit_to(row.request, second), second.worker.name

    def _finish_audit(self, call: Call[Any], name: str) -> PlanvecError | None:
        """Return the error of an audit that is complete and has found a difference, once; else None."""
        row = self._audited
        if row is None or not call.is_done:
            return None
        self._audited = self._audit_call = None
        if call.error is None:
            self.stats.audited_rows += 1
            return row.compare(call.prepare(), name)
        if isinstance(call.error, EnvError):
            return row.error(name, f"it raised {call.error.detail}")
        return None  # the worker was lost, which says nothing about the environment

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
        num_needed = min(len(ready), self._num_needed())
        for depth in range(MAX_PENDING):
            for index, record in enumerate(ready):
                if len(record.chunks) <= depth and record.worker.is_ready:
                    chunk = queue.next_chunk(record, num_needed, index < num_needed)
                    if chunk is not None:
                        self._submit(record, chunk)
            if queue.is_empty():
                return

    def _num_needed(self) -> int:
        """Return how many workers step at the same time: more of them than cores only where steps wait."""
        # More would only take the cores, and the caches, from each other: 64 workers on two cores took twice
        # as long as two. The others replace those that exit.
        return self._num_busy if self._waits < _MANY_WAITS else len(self._records)

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
            self.stats.num_chunks += chunk.call.request.is_counted
        future.add_done_callback(partial(self._answered, record, chunk))
        if chunk.future is future:  # otherwise the worker has exited, and the chunk is queued again
            chunk.is_submitted = True

    def _answered(self, record: WorkerRecord, chunk: Chunk, future: Future) -> None:
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

    def _deliver(self, record: WorkerRecord, chunk: Chunk, future: Future) -> None:
        """Merge the answer to a chunk, fail its call, or retry it after the exit of the worker."""
        error = future.exception()
        if error is not None and isinstance(error, WorkerExit):
            if chunk.is_done:  # perhaps by this answer, when a signal handler raised
                chunk.call.close(chunk)
            else:
                self._recovery.chunk_lost(record, chunk, error)
            return
        record.num_failures = 0
        self._recovery.num_idle_exits = 0
        if chunk.is_done:
            return
        if error is None:
            answer = future.result()
            if not chunk.is_flagging:
                num_done, counts = chunk.num_rows, answer.outputs.num_steps
                if chunk.call.request.deadline is not None and counts is not None:
                    num_done = int((counts >= 0).sum())
                if num_done == chunk.num_rows:  # else the others say nothing about the cost of a row
                    chunk.call.cutter.learn(chunk.rows, answer.seconds)
                if answer.waits >= 0 and num_done:
                    share = min(1.0, answer.waits / num_done)
                    self._waits += _WEIGHT * (share - self._waits)
            if self._audited is None and not chunk.is_flagging:
                request, name = chunk.call.request, record.worker.name
                self._audited = self._audit.choose(request, chunk.rows, answer, name)
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
        call.is_extra = True
        chunk = call.next_chunk(1, 1)
        assert chunk is not None
        self._submit(record, chunk)
        return call
