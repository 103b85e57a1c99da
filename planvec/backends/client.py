"""Defines `WorkerClient`, the parent's side of one worker: its requests, its limits, its exits and restarts.

    starting -> ready -> exited -> (restart) -> pausing -> starting
    request:  submitted -> waiting (any number) -> sent -> done

A subclass is the transport: it starts a process or an actor, sends requests and hands in answers. The parent
runs no thread for it: a thread that waits reads the messages and checks the deadlines (see `WorkerGroup`).

A signal handler of the user may raise anywhere. A step that must not stay half done is marked while it lasts.
If a call finds such a mark, a handler has raised in the step: the worker is replaced, and its requests are
retried.
"""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from planvec.backends.base import ExitReason, Pending, WorkerExit, check_same
from planvec.backends.messages import Failure, load_pickled
from planvec.backends.signals import DelayedSignals, is_from_handler
from planvec.errors import (
    ClosedError,
    EnvError,
    InvalidBatchError,
    PlanvecError,
    UnsupportedEnvError,
    WorkerStartError,
    WorkerTimeoutError,
)
from planvec.rows import Answer, EnvDescription, Request, check_integer

START_SECONDS = 60.0  # longest time for a worker that runs to make its object
_CANCELLED_SECONDS = 1.0  # longest time that a worker may spend on a cancelled request
_GRACE_SECONDS = 1.0  # longest time for idle workers to close their objects


class Blame(NamedTuple):
    """Says which request, row and step a worker was executing when it exited; see `WorkerExit`."""

    is_cause: bool = False
    row: int | None = None
    step: int = 0


NOBODY = Blame()  # no request is the cause


class WorkerClient(ABC):
    """Sends requests to a worker until it is closed, and restarts it. Implements `backends.base.Worker`."""

    def __init__(self, name: str) -> None:
        self.name = name  # the name in messages
        self.lock = threading.RLock()  # Protects all state. The lock of the backend, once there is one.
        self.capacity = 0  # Largest number of rows in one request. Valid once the worker is ready.
        self.timeout: float | None = None  # seconds that one request may take, or None for no limit
        # bytes of memory that the worker may use between two requests, or None for no limit
        self.max_rss: int | None = None
        # The description of the hosted environment, or None if the object is not a `PlanEnv`. Valid once the
        # worker is ready.
        self.description: EnvDescription | None = None
        self.exit: WorkerExit | None = None  # the exit of the worker until it is restarted
        # `is_ready`: whether the object is made and the worker accepts requests
        self.is_ready = self.is_closed = False  # `is_closed`: whether `close` was called
        self._changed: Callable[[Any], None] = lambda worker: None
        self._waiting: deque[Pending] = deque()  # requests that are not sent, the oldest first
        self._sent: deque[Pending] = deque()  # requests that are not answered, the oldest first
        self._answering: Pending | None = None  # its answer is being delivered
        self._in_step = self._in_callback = False
        self._starts_at = math.inf  # time of a restart that is due (`time.monotonic()`)
        self._begin()

    # -- the transport ------------------------------------------------------------------------------

    @abstractmethod
    def _launch(self) -> None:
        """Start a process or an actor. Raises WorkerStartError if the system cannot."""

    @abstractmethod
    def _pack(self, request: Request[Any]) -> Any:
        """Return the message for a request; None if there is no room for it now."""

    @abstractmethod
    def _post(self, pending: Pending, message: Any) -> None:
        """Send a request, the last one in `_sent`."""

    @abstractmethod
    def _kill(self) -> None:
        """Kill the process or the actor."""

    @abstractmethod
    def _release(self) -> None:
        """Free what belongs to the process or the actor, which has ended or is to be closed."""

    @abstractmethod
    def _end_late(self, now: float) -> None:
        """Kill a worker that exceeds `timeout`, and report its exit."""

    @abstractmethod
    def memory_used(self) -> int:
        """Return the bytes of memory that the worker uses; 0 if they are not known."""

    @abstractmethod
    def text(self) -> str:
        """Return the worker in words, for messages."""

    @property
    @abstractmethod
    def is_foreign(self) -> bool:
        """Whether this is a copy in a fork of the process that owns the worker."""

    @property
    def has_place(self) -> bool:
        """Whether the worker has a process, so that the time to make its object counts."""
        return True

    @property
    def is_delayed(self) -> bool:
        """Whether it waits for a place, so that the others should go on without it."""
        return False

    # -- life ---------------------------------------------------------------------------------------

    def listen(self, changed: Callable[[Any], None], lock: threading.RLock) -> None:
        """Set the callback for changes, and the lock to hold. See `backends.base.Worker.listen`."""
        self._changed, self.lock = changed, lock
        if self.exit is not None:
            changed(self)

    def _begin(self) -> None:
        with DelayedSignals():  # an interrupt between start and assignment would leave an unknown process
            self._is_running = self._is_outgrown = self._in_step = False
            self._num_answered = 0  # by this process: it numbers requests from 1
            # time at which the worker was started, or began the oldest request (`time.monotonic()`)
            self._since = time.monotonic()
            self._launch()
            # Last: if it fails while a handler raises, the start is still due.
            self._is_running, self._starts_at = True, math.inf

    def restart(self, pause: float = 0.0) -> None:
        """Start the worker again in `pause` seconds. Requests wait until it is ready."""
        self.exit, self._starts_at = None, time.monotonic() + pause
        self._start_if_due()

    def _start_if_due(self) -> None:
        if self._starts_at > time.monotonic() or self.is_closed:
            return
        try:
            self._begin()
        except ClosedError as error:
            self.give_up(error)
        except WorkerStartError as error:  # out of processes, memory or files
            self._end(WorkerExit(ExitReason.CRASH, str(error), was_starting=True))

    def _read_ready(self, sent: bytes | Failure, first: object, how: str = "was restarted") -> Any:
        """Return the description of the object that the worker has made; None if it has none."""
        # `sent`: the pickled description, or what went wrong. `first`: the description from before `how`.
        if isinstance(sent, Failure):
            error = sent.to_error()
            if isinstance(error, UnsupportedEnvError):
                raise error
            text = f"{self.name} could not be started: {sent.type_name}: {sent.detail}"
            raise WorkerStartError(text) from error.__cause__
        try:
            described = load_pickled(sent)
        except Exception as unreadable:  # the spaces may be of classes of the user
            if is_from_handler(unreadable):
                raise
            raise WorkerStartError(
                f"{self.name}: the description of its environment cannot be read in this process "
                f"({type(unreadable).__name__}: {unreadable}); define the classes of its spaces in a module "
                "that this process can import"
            ) from unreadable
        if isinstance(first, EnvDescription) and isinstance(described, EnvDescription):
            check_same(self.name, first, described, how)
        return described

    def become_ready(self, description: EnvDescription | None) -> None:
        """Accept requests: the object is made."""
        self.description = description
        self.is_ready, self._since = True, time.monotonic()
        self._send_waiting()  # before what the change makes others send, which is newer
        if self.is_ready:  # else it has ended meanwhile, and this was told
            self._call_back(self._changed, self)

    def check(self) -> None:
        """Raise `ClosedError` if the worker was closed, or if this is a fork of the process that owns it."""
        if self.is_closed:
            raise ClosedError(f"{self.name} was closed")
        if self.is_foreign:
            raise ClosedError(f"{self.name} belongs to the process that forked this one; open a new one here")

    def close(self) -> None:
        """Close the worker. Futures that are not done raise `ClosedError`."""
        self.begin_close()
        self.finish_close(time.monotonic() + _GRACE_SECONDS)

    def begin_close(self) -> None:
        """Begin to close the worker."""
        if self.is_foreign:
            self.is_closed = True
            return  # without the lock: another thread may have held it during the fork
        with self.lock, DelayedSignals():
            if not self.is_closed:
                self.is_closed = True
                error = ClosedError(f"{self.name} was closed")
                self._end(WorkerExit(ExitReason.STOPPED, str(error), error=error))

    @abstractmethod
    def finish_close(self, deadline: float) -> None:
        """Wait for the process until `deadline` (`time.monotonic()`), then kill it and free its resources."""

    # -- requests -----------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether the worker has requests to answer."""
        return bool(self._sent)

    def submit(self, request: Request[Any]) -> Pending:
        """Queue a request and return its future. It is sent at once if there is room, else during a wait."""
        if self.is_foreign:
            self.check()
        pending = Pending(request)
        with self.lock:
            if self._is_interrupted and self._is_running:
                self._waiting.append(pending)  # lost like those before it: their owner sends them all again
                self._replace_if_interrupted()
                return pending
            self._replace_if_interrupted()
            was_in_step, self._in_step = self._in_step, True  # a callback of another step may call this
            if self.exit is not None:
                pending.fail(self.exit, is_current=False)
            else:
                self._waiting.append(pending)
                self._send_waiting()
                if not (pending.is_sent or pending.done()):
                    pending.request = request.copy()  # the caller may change its arrays
            self._in_step = was_in_step
        return pending

    def _send_waiting(self) -> None:
        """Send waiting requests while there is room."""
        while self._waiting and self.is_ready and not self._is_outgrown:
            pending = self._waiting[0]
            if pending.done():
                self._waiting.popleft()
                continue
            try:
                message = self._pack(pending.request)
            except Exception as error:  # pickling runs code of the user, which may raise anything
                if is_from_handler(error):
                    raise
                # A request that cannot be sent must not block the next ones.
                if self._waiting and self._waiting[0] is pending:  # else the code has closed this worker
                    self._waiting.popleft()
                if not isinstance(error, PlanvecError):
                    cause = f"{type(error).__name__}: {error}"
                    error = InvalidBatchError(
                        f"{pending.describe()}: an argument cannot be pickled ({cause})"
                    )
                self._call_back(pending.finish, None, error)
                continue
            if message is None or not self.is_ready:
                return
            if not self._sent:
                self._since = time.monotonic()
            self._sent.append(pending)
            pending.is_sent = True
            self._waiting.popleft()
            self._post(pending, message)

    def complete(self, pending: Pending, read: Callable[[], Answer | PlanvecError], rss: int = 0) -> None:
        """Complete a request that the worker has answered, and send the requests that waited for it."""
        # `read` returns the answer, or the error of the environment. `rss`: bytes of memory that the worker
        # uses now; 0 if nobody has asked.
        self._since = time.monotonic()
        self._answering = pending
        self._sent.remove(pending)
        self._num_answered += 1
        if self.max_rss is not None and rss > self.max_rss:
            self._is_outgrown = True
        outcome: Answer | PlanvecError | None = None
        if not pending.cancelled():
            try:
                outcome = read()
            except Exception as cause:
                if is_from_handler(cause):
                    raise
                outcome = EnvError(
                    f"{pending.describe()}: the answer cannot be read in this process "
                    f"({type(cause).__name__}: {cause}); exclude infos of such types with info_keys="
                )
        # The callback copies what lies in shared memory before another request is sent.
        if isinstance(outcome, PlanvecError):
            self._call_back(pending.finish, None, outcome)
        else:
            self._call_back(pending.finish, outcome, None)
        self._answering = None
        if self._is_outgrown and self._is_running and not self._sent:
            self.end(ExitReason.OUTGROWN, f"took more memory than max_worker_rss={self.max_rss:,} bytes")
        self._send_waiting()

    def _call_back(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function that may submit requests to this worker in the middle of a step."""
        was_in_callback, self._in_callback = self._in_callback, True
        try:
            function(*arguments)
        finally:
            self._in_callback = was_in_callback

    @property
    def _is_interrupted(self) -> bool:
        """Whether a signal handler has raised in a step. Without the lock, also while another thread acts."""
        return self._in_step and not self._in_callback

    def _replace_if_interrupted(self) -> None:
        """Replace a worker whose messages may be incomplete. Called with the lock held."""
        if self._is_interrupted:
            if self._is_running:
                self.kill_and_end(ExitReason.STOPPED, "was interrupted in a message")
            self._in_step = False

    # -- time ---------------------------------------------------------------------------------------

    def seconds_left(self, now: float) -> float:
        """Return the seconds until `check_clock` must be called; infinite if there is no deadline."""
        if self._is_interrupted:
            return 0.0
        if not self._is_running:
            return self._starts_at - now
        if not self.is_ready:
            return self._since + START_SECONDS - now if self.has_place else math.inf
        try:
            oldest = self._sent[0]
        except IndexError:  # there is none, or another thread has just read its answer
            return math.inf
        allowed = math.inf if self.timeout is None else self.timeout
        if oldest.cancelled():
            allowed = min(allowed, _CANCELLED_SECONDS)
        return self._since + allowed - now

    def check_clock(self, now: float) -> None:
        """Start or kill the worker if it is time to. `now` is `time.monotonic()`."""
        if self.seconds_left(now) > 0:
            return
        with self.lock:
            self._replace_if_interrupted()
            if self._is_running:
                self._check_limits(now)
            else:
                self._start_if_due()

    def _check_limits(self, now: float) -> None:
        waited = now - self._since
        if not self.is_ready:
            if self.has_place and waited >= START_SECONDS:
                self.give_up_starting(f"was not ready within {START_SECONDS:g} s")
        elif not self._sent:
            return
        elif self.timeout is not None and waited >= self.timeout:
            self._end_late(now)
        elif self._sent[0].cancelled() and waited >= _CANCELLED_SECONDS:
            self.kill_and_end(ExitReason.STOPPED, "worked on a request that was cancelled")

    # -- the end of a process -----------------------------------------------------------------------

    def give_up_starting(self, how: str) -> None:
        """Kill a worker that does not become ready. `how` says in the message what it did."""
        with self.lock:
            if self._is_running and not self.is_ready:
                self._kill()
                self.give_up(WorkerStartError(f"{self.text()} {how}"))

    def give_up(self, error: PlanvecError) -> None:
        """End a worker that cannot make its object. A restart would fail in the same way."""
        with self.lock:
            if self.exit is None:
                self._end(WorkerExit(ExitReason.CRASH, str(error), was_starting=True, error=error))

    def abort(self, how: str) -> None:
        """Kill the worker. Its requests raise `WorkerExit`, whose message ends with `how`."""
        with self.lock:
            if self._is_running:
                self._kill()
                self._end(WorkerExit(ExitReason.STOPPED, f"{self.text()} {how}"))

    def kill_and_end(self, reason: ExitReason, how: str, blame: Blame = NOBODY) -> None:
        """Kill the worker, and report its exit."""
        self._kill()
        self.end(reason, f"{how}, and was killed", blame)

    def end(self, reason: ExitReason, how: str, blame: Blame = NOBODY, was_killed: bool = False) -> None:
        """Report the exit of the worker. `was_killed`: from outside."""
        if not self.is_ready:
            blame = NOBODY
        if not self.is_ready and self.has_place:
            how += ", while its environment was made and verified with random actions"
        self._end(
            WorkerExit(
                reason,
                f"{self.text()} {how}",
                **blame._asdict(),
                was_starting=not self.is_ready,
                was_killed=was_killed,
            )
        )

    def _end(self, exit: WorkerExit) -> None:
        """End the worker, and report its exit to the futures and to the callback for changes."""
        with DelayedSignals():
            current = self._sent[0] if self._sent else None
            answering = [] if self._answering is None or self._in_callback else [self._answering]
            # Without duplicates: a request whose sending was interrupted is in both queues.
            lost = list(dict.fromkeys([*answering, *self._sent, *self._waiting]))
            self._is_running = self.is_ready = False
            self._release()
            self._sent.clear()
            self._waiting.clear()
            self._answering, self._starts_at = None, math.inf
            self.exit = exit
            for pending in reversed(lost):  # each is retried first, so that the oldest comes first
                pending.fail(exit, is_current=pending is current)
            self._in_step = False
            self._changed(self)


def check_limits(timeout: object, max_restarts: object, max_worker_rss: Any) -> None:
    """Check the limits of workers."""
    # `timeout`: Seconds above 0, or None. `max_worker_rss`: Bytes above 0, or None.
    if timeout is not None and not (isinstance(timeout, (int, float)) and timeout > 0):
        raise InvalidBatchError(f"timeout: expected seconds above 0, or None, got {timeout!r}")
    check_integer("max_restarts", max_restarts, 0)
    is_bytes = isinstance(max_worker_rss, int) and not isinstance(max_worker_rss, bool)
    if max_worker_rss is not None and not (is_bytes and max_worker_rss > 0):
        raise InvalidBatchError(f"max_worker_rss: expected bytes above 0, or None, got {max_worker_rss!r}")


def limit(workers: Sequence[WorkerClient], timeout: float | None, max_worker_rss: int | None) -> None:
    """Limit the time and the memory of workers that are ready."""
    # `timeout`: Seconds that one request may take; None for no limit. `max_worker_rss`: Bytes of memory that
    # a worker may use between two requests; None for no limit.
    if max_worker_rss is not None:
        used = max(worker.memory_used() for worker in workers)
        if not used:
            raise InvalidBatchError(
                "max_worker_rss: expected None on a system without /proc, which shows the memory of a process"
            )
        if used >= max_worker_rss:
            raise InvalidBatchError(
                f"max_worker_rss: expected more than the {used:,} bytes that a worker uses before its first "
                f"step, got {max_worker_rss:,}"
            )
    for worker in workers:
        worker.timeout, worker.max_rss = timeout, max_worker_rss


_CLOCK_SECONDS = 0.05  # interval of the deadline checks while answers arrive without a pause
# Longest sleep: another thread may have restarted a worker, or have left without notifying a follower
_MAX_SECONDS = 0.5


class WorkerGroup(ABC):
    """Handles several workers together. A subclass reads their messages."""

    def __init__(self, workers: Sequence[WorkerClient]) -> None:
        self._workers = workers
        self._next_clock_check = 0.0

    @abstractmethod
    def poll(self) -> None:
        """Handle all messages that have arrived, without waiting."""

    @abstractmethod
    def wait(self, timeout: float | None) -> bool:
        """Wait until something happens, handle it, and return True; False after `timeout` seconds."""

    def _seconds(self, timeout: float | None, now: float) -> float:
        """Return the seconds until the next deadline."""
        seconds = [_MAX_SECONDS, *(worker.seconds_left(now) for worker in self._workers)]
        if timeout is not None:
            seconds.append(timeout)
        return max(0.0, min(seconds))

    def _check_clock(self) -> None:
        now = time.monotonic()
        self._next_clock_check = now + _CLOCK_SECONDS
        for worker in self._workers:
            worker.check_clock(now)

    def close(self) -> None:
        """Close all workers at the same time, with one common deadline."""
        with DelayedSignals():
            for worker in self._workers:
                worker.begin_close()
            deadline = time.monotonic() + _GRACE_SECONDS
            for worker in self._workers:
                worker.finish_close(deadline)


# -- Lets several threads wait for answers at once.
#
# Workers with threads of their own (actors) call `notify` after each answer. Processes have no such thread:
# a thread that waits reads their messages. Leader and followers: one waiting thread at a time, the leader,
# reads the messages of all workers; the other threads wait until it notifies them.


class Waiter:
    """Lets threads wait until their call is done."""

    # `group`: None if the workers have threads of their own. `on_idle` is called when no message came for a
    # while; it completes what an interrupt left undone.

    def __init__(self, group: WorkerGroup | None = None, on_idle: Callable[[], None] = lambda: None) -> None:
        self._group = group
        self._on_idle = on_idle
        self._condition = threading.Condition()
        # Reentrant: if a signal handler raises just after this thread acquired it, the thread can go on.
        self._leader_lock = threading.RLock()
        self._num_followers = 0

    def notify(self) -> None:
        """Wake the threads that wait, after an answer or a change."""
        if self._num_followers:
            with self._condition:
                self._condition.notify_all()

    def poll(self) -> None:
        """Handle all messages that have arrived, without waiting."""
        if self._group is not None and self._leader_lock.acquire(blocking=False):
            try:
                self._group.poll()
            finally:
                self._give_up_lead()

    def wait_for(self, is_done: Callable[[], bool], timeout: float | None = None) -> None:
        """Wait until `is_done()` returns True."""
        # `is_done` is evaluated after every message, so it must be cheap.
        # `timeout`: Seconds to wait in total, or None for no limit.
        deadline = None if timeout is None else time.monotonic() + timeout
        if deadline is not None:
            self.poll()  # messages that have arrived count, even if the timeout is 0
        while not is_done():
            if deadline is not None and time.monotonic() >= deadline:
                raise WorkerTimeoutError(
                    f"not ready within {timeout:g} s; the promise stays valid: call result() again"
                )
            if self._group is None or not self._leader_lock.acquire(blocking=False):
                self._follow(is_done, deadline)
                continue
            try:
                left: float | None = None
                while not is_done():
                    if deadline is not None and (left := deadline - time.monotonic()) <= 0:
                        break
                    if not self._group.wait(left):
                        self._on_idle()
                    self.notify()
            finally:
                self._give_up_lead()

    def _give_up_lead(self) -> None:
        self._leader_lock.release()
        self.notify()

    def _follow(self, is_done: Callable[[], bool], deadline: float | None) -> None:
        with self._condition:
            self._num_followers += 1
            try:
                if is_done():
                    return
                if self._group is not None and self._leader_lock.acquire(blocking=False):
                    self._leader_lock.release()  # there is no leader: become it
                    return
                left = _MAX_SECONDS if deadline is None else min(_MAX_SECONDS, deadline - time.monotonic())
                was_notified = self._condition.wait(max(0.0, left))
            finally:
                self._num_followers -= 1
        if not was_notified:
            self._on_idle()
