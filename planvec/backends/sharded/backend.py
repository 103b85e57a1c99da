"""`Sharded`: spreads the rows of a request over workers, and merges what they answer.

run(request) -> Call --next_chunk--> Worker.submit -> Future
                 ^                                       |
                 +---- deliver, or Recovery <---done-----+
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from planvec.backends.base import Future, Worker, WorkerExit
from planvec.backends.sharded.call import Call, Chunk
from planvec.backends.sharded.pace import Pace
from planvec.backends.sharded.queue import MAX_PENDING, Queue, WorkerRecord
from planvec.backends.sharded.recovery import Recovery
from planvec.backends.stats import Stats
from planvec.backends.waiting import Events, Waiter
from planvec.errors import ClosedError, EnvError, PlanvecError, WorkerStartError
from planvec.rows import Answer, EnvDescription, Failed, Promise, Request, SetBaseStateRequest

__all__ = ["DIFFERENT", "Sharded", "WorkerGroup"]

T = TypeVar("T")

DIFFERENT = (
    "results would depend on the worker. A factory must make the same one in every process; give what it "
    "draws at random (a map, say) a fixed value"
)
"""Why a difference between the environments of two workers is refused."""


_INFORMATIVE_SECONDS = 1e-3
"""A single row that takes less says little about what many rows would take: most of it is overhead."""


class WorkerGroup(Events, Protocol):
    """Serves several workers at once: one poll for all, one deadline to close them."""

    def close(self) -> None:
        """End all workers in the time of one."""
        ...


class Sharded:
    """Spreads requests over workers that have the same environment.

    Args:
        workers: At least one. They are closed with this.
        group: Of these workers, if they have one: see `WorkerGroup`.
        max_restarts: How often a row is tried again after a worker died over it.

    Attributes:
        description: Of the environment.
        stats: Counts.
        base_state: The state that rows start from where none are given.

    Raises:
        WorkerStartError: A worker did not become ready, or the workers have different environments; none is
            left.
        UnsupportedEnvError: The environment cannot be saved faithfully; no worker is left.
    """

    def __init__(
        self, workers: Sequence[Worker], *, group: WorkerGroup | None = None, max_restarts: int = 3
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
        self._paces: defaultdict[type[Request[Any]], Pace] = defaultdict(Pace)
        self._calls: set[Call[Any]] = set()  # that are not done
        self._shared_base_state: list[Any] = []  # the one that every worker was given, if any was
        try:
            for record in self._records:
                record.worker.listen(partial(self._worker_changed, record), self._lock)
            self._waiter.wait_for(lambda: all(record.has_started_or_failed for record in self._records), None)
            for record in self._records:
                if record.failure is not None:
                    raise record.failure
            self.description = _common_description(workers)
        except BaseException:
            self.close()
            raise
        self.base_state = self.description.base_state
        self._recovery.action_space = self.description.action_space

    @property
    def num_workers(self) -> int:
        """How many workers there are."""
        return len(self._records)

    def run(self, request: Request[T], *, keep: bool = False) -> Promise[T]:
        """Do what a request asks for. See `Backend.run`."""
        if self._closed or os.getpid() != self._pid:
            self._check_usable()
        for record in self._records:
            if not record.worker.is_ready:
                self._waiter.poll()  # perhaps it has become ready meanwhile
                break
        pace = self._paces[type(request)]
        with self._lock:
            if self._recovery.num_failed:
                error = self._recovery.restart_failed()
                if error is not None:
                    return Failed(error)
            call = Call(request, self.description, pace, self._waiter, self._lock, self.stats, keep)
            if not call.is_done:
                self._calls.add(call)
                self._queue.add(call)
                self._dispatch()
                if keep:
                    call.copy_request()
                call.prepare()
            if request.is_counted:
                self.stats.num_rows += request.num_rows
        return call

    def sync_base_state(self) -> Promise[None]:
        """Make `base_state` the base state of every worker, and of those that will replace one."""
        self._check_usable()
        with self._lock:
            self._shared_base_state = [self.base_state]
            calls = [self._send_base_state(record) for record in self._records]
        return _All([call for call in calls if call is not None])

    def close(self) -> None:
        """End the workers. Promises still open raise `ClosedError`. Closing again does nothing new."""
        self._closed = True
        if os.getpid() == self._pid:
            with self._lock:
                for call in list(self._calls):
                    call.fail(ClosedError("the workers were closed"))
                self._calls.clear()
        if self._group is not None:
            self._group.close()
        else:
            for record in self._records:
                record.worker.close()
        self._waiter.notify()

    def _check_usable(self) -> None:
        if self._closed:
            raise ClosedError("the workers were closed")
        if os.getpid() != self._pid:
            raise ClosedError(
                "the workers belong to the process that this one was forked from; open another one here"
            )

    # -- dispatch -----------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        """Give out what waits as far as workers have room: a first chunk to each, then a second."""
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
        """Give out what waits, in case a signal handler has interrupted that before."""
        with self._lock:
            self._dispatch()

    def _submit(self, record: WorkerRecord, chunk: Chunk) -> None:
        """Give a chunk to a worker. It is marked as given last: see `Queue`."""
        future = record.worker.submit(chunk.request())
        chunk.future = future
        record.chunks.append(chunk)
        self.stats.num_chunks += chunk.call.request.is_counted
        future.add_done_callback(partial(self._answered, record, chunk))
        if chunk.future is future:  # else its worker was gone, and it is to be given to another
            chunk.is_submitted = True

    def _answered(self, record: WorkerRecord, chunk: Chunk, future: Future[Answer]) -> None:
        """A worker has answered, has failed or is gone."""
        with self._lock:
            if chunk in record.chunks:
                record.chunks.remove(chunk)
            if not future.cancelled():
                self._deliver(record, chunk, future)
            if chunk.call.is_done:
                self._calls.discard(chunk.call)
            # A chunk that is neither given nor done is just being given, by `_dispatch`.
            if self._calls and (chunk.is_submitted or chunk.is_done):
                self._dispatch()
        self._waiter.notify()

    def _deliver(self, record: WorkerRecord, chunk: Chunk, future: Future[Answer]) -> None:
        error = future.exception()
        if error is not None and isinstance(error, WorkerExit):
            self._recovery.chunk_lost(record, chunk, error)
            return
        record.num_exits = 0
        self._recovery.num_idle_exits = 0
        if chunk.is_done:
            return
        if error is None:
            answer = future.result()
            is_informative = chunk.num_rows > 1 or answer.seconds > _INFORMATIVE_SECONDS
            if is_informative and not chunk.is_flagging:
                chunk.call.cutter.learn(chunk.rows, answer.seconds)
            chunk.call.deliver(chunk, answer)
        else:
            named = error if isinstance(error, PlanvecError) else EnvError(f"{type(error).__name__}: {error}")
            chunk.call.fail_chunk(chunk, named)

    def _worker_changed(self, record: WorkerRecord, worker: Worker) -> None:
        """A worker has become ready, or is gone."""
        with self._lock:
            if worker.exit is not None and not self._closed:
                self._recovery.worker_exited(record, worker.exit)
            elif worker.is_ready:
                self._recovery.worker_ready(record)
            self._dispatch()
        self._waiter.notify()

    def _send_base_state(self, record: WorkerRecord) -> Call[None] | None:
        """Give a worker the base state that all were given."""
        if not self._shared_base_state or record.failure is not None:
            return None
        request = SetBaseStateRequest(self._shared_base_state[0])
        call = Call(request, self.description, Pace(), self._waiter, self._lock, self.stats, True)
        chunk = call.next_chunk(1, 1)
        assert chunk is not None
        self._calls.add(call)
        self._submit(record, chunk)  # before anything else, even if it is not ready yet
        return call


class _All(Promise[None]):
    """Kept when all of several calls are done."""

    def __init__(self, calls: Sequence[Call[None]]) -> None:
        self._calls = calls

    def done(self) -> bool:
        return all(call.done() for call in self._calls)

    def result(self, timeout: float | None = None) -> None:
        for call in self._calls:
            call.result(timeout)

    def abandon(self) -> None:
        for call in self._calls:
            call.abandon()


def _common_description(workers: Sequence[Worker]) -> EnvDescription:
    """Return the description that all workers give.

    Raises:
        WorkerStartError: They have no environment, or different ones.
    """
    first = workers[0].description
    for worker in workers:
        description = worker.description
        if description is None or first is None:
            raise WorkerStartError(
                f"workers: expected each to host a planvec.PlanEnv, which {worker.name} does not; "
                "pass ExternalProcess(lambda: planvec.PlanEnv(...))"
            )
        for name, one, other in (
            ("observation_space", first.observation_space, description.observation_space),
            ("action_space", first.action_space, description.action_space),
            ("state_dtype", first.state_dtype, description.state_dtype),
        ):
            if one != other:
                raise WorkerStartError(
                    f"workers: {worker.name} made another environment than the first: its {name} is "
                    f"{other}, not {one}"
                )
        if (description.state_format, description.fingerprint) != (first.state_format, first.fingerprint):
            raise WorkerStartError(
                f"workers: {worker.name} made another environment than the first: {DIFFERENT}"
            )
    assert first is not None
    return first
