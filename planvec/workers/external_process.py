"""One worker process, seen from its parent.

    parent                                              child (host.py)
    ------                                              -----
    Job.write -> slab slot  -- frame (ticket, verb) -->  reads the slot
                                                         steps its rows
    Job.read  <- slab slot  <-- frame (ticket, done) --  writes the slot

    asked for -> waiting (any number) -> sent (at most two, one per slot) -> done

No thread runs in the parent: whoever waits for an answer reads what has arrived and sends what waits.
A ticket is used once, and an answer under another ticket than the oldest one sent is a broken worker.
Death is seen by the operating system's own handle of the process, beside the channel.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing.reduction import DupFd
from typing import Any, NamedTuple

import cloudpickle

from planvec.errors import (
    ClosedError,
    InvalidBatchError,
    PlanvecError,
    UnsupportedEnvError,
    WorkerCrashedError,
    WorkerStartError,
    WorkerTimeoutError,
)
from planvec.plan_env import EnvDescription
from planvec.promise import Promise
from planvec.workers import host
from planvec.workers.jobs import CallJob, Job
from planvec.workers.messages import Channel, Frame
from planvec.workers.promises import JobsPromise
from planvec.workers.slab import NUM_SLOTS, Slab, Slot, open_memory
from planvec.workers.waiting import Watch

__all__ = ["DEFAULT_START_METHOD", "ExternalProcess", "close_all"]

DEFAULT_START_METHOD = "spawn"
_STALL_SECONDS = 10.0
_GRACE_SECONDS = 1.0
_START_SECONDS = 60.0
_SMALL = 32 << 10
"""A frame below this size fits into the socket's buffer, so sending it never waits for the worker."""

_starting = threading.Lock()
_live: weakref.WeakSet[ExternalProcess] = weakref.WeakSet()


Supervisor = Callable[["ExternalProcess", PlanvecError, Job | None, list[Job]], list[Job]]
"""Told that a process is gone, with the job at work and all that were not done; returns those to fail."""


class _Sent(NamedTuple):
    """A job that was sent: under which ticket, and where in the slab its rows lie."""

    ticket: int
    slot: int
    job: Job


class _InheritedMemory:
    """A file descriptor that is handed to a child under any start method."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def detach(self) -> int:
        return self._fd

    def __reduce__(self) -> Any:
        return _identity, (DupFd(self._fd),)


def _identity(handle: Any) -> Any:
    return handle


@contextlib.contextmanager
def _hidden_main() -> Iterator[None]:
    """Hide the user's script from multiprocessing while a process is started.

    The child would run it again otherwise, which is why scripts need a `__main__` guard elsewhere.
    What the factory needs of it is sent by value.
    """
    module = sys.modules["__main__"]
    names = ("__file__", "__spec__")
    kept = {name: module.__dict__[name] for name in names if name in module.__dict__}
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    with _starting:
        try:
            module.__dict__.pop("__file__", None)
            module.__dict__["__spec__"] = None
            yield
        finally:
            module.__dict__.update(kept)
            if "__spec__" not in kept:
                module.__dict__.pop("__spec__", None)
            signal.pthread_sigmask(signal.SIG_SETMASK, previous)


class ExternalProcess:
    """A process that hosts the object that `factory` makes.

    It starts at once and gets ready in the background; the first call waits for it.

    Args:
        factory: Called in the process, without arguments. A lambda, a closure, a function from a
            notebook or from `__main__`: what cloudpickle can send.
        start_method: "spawn" (default), "forkserver" or "fork".
        name: For messages and process listings.

    Raises:
        WorkerStartError: The factory cannot be pickled.
    """

    def __init__(
        self,
        factory: Callable[[], Any],
        *,
        start_method: str | None = None,
        name: str = "planvec-worker",
    ) -> None:
        methods = multiprocessing.get_all_start_methods()
        self._start_method = start_method or DEFAULT_START_METHOD
        if self._start_method not in methods:
            raise WorkerStartError(f"start_method: expected one of {methods}, got {start_method!r}")
        try:
            self._factory = cloudpickle.dumps(factory)
        except Exception as error:
            raise WorkerStartError(
                f"factory: {factory!r} cannot be pickled ({type(error).__name__}: {error}); "
                "nothing was started"
            ) from error
        self.name = name
        self.lock = threading.RLock()
        self.supervisor: Supervisor | None = None
        self.generation = 0
        self._watch = Watch([self])
        self._closed = False
        self._tickets = 0
        self._busy_since = 0.0
        self._capacity = 0
        self._waiting: deque[Job] = deque()
        self._start()
        _live.add(self)

    # -- life ---------------------------------------------------------------------------------

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        self._memory = open_memory()
        context = multiprocessing.get_context(self._start_method)
        self._process: Any = context.Process(  # type: ignore[attr-defined]
            target=host.main,
            name=self.name,
            args=(
                theirs,
                _InheritedMemory(self._memory),
                self._factory,
                self._start_method == "fork",
            ),
        )
        self._channel = Channel(ours, _STALL_SECONDS)
        self._sent: deque[_Sent] = deque()
        self._free_slots = list(range(NUM_SLOTS))
        self._slots: list[Slot] = []
        self._description: EnvDescription | None = None
        self._is_ready = False
        self._midway = False
        self._failure: PlanvecError | None = None
        self.generation += 1
        try:
            with _hidden_main():
                self._process.start()
        finally:
            theirs.close()
        self._handle = _process_handle(self._process)
        self._finalizer = weakref.finalize(
            self, _reap, self._process, self._channel, self._memory, self._handle, os.getpid()
        )
        _register_exit()

    def wait_ready(self, timeout: float | None = _START_SECONDS) -> EnvDescription | None:
        """Wait until the object is made.

        Args:
            timeout: Seconds.

        Returns:
            What the object's `describe()` says; None where it has none.

        Raises:
            WorkerStartError: The factory raised, or took too long; the process is gone.
        """
        self.check()
        if not self._is_ready:
            try:
                self._watch.wait_for(lambda: self._is_ready or self._failure is not None, timeout)
            except WorkerTimeoutError:
                self._fail(WorkerStartError(f"{self.name}: the factory took longer than {timeout} s"))
            self.check()
        return self._description

    def restart(self) -> None:
        """Start the process anew, with a new object from the same factory. Loses what was sent."""
        with self.lock:
            if self._closed:
                raise ClosedError(f"{self.name} was closed")
            jobs = self._take_jobs()
            self._finalizer()
            self._start()
            for job in jobs:
                job.fail(WorkerCrashedError(f"{self.name} was restarted during the {job.describe()}"))

    def kill(self) -> None:
        """Kill the process at once (SIGKILL). Calls under way raise `WorkerCrashedError`."""
        self._process.kill()

    def close(self) -> None:
        """Close the object and end the process. Closing again does nothing.

        An idle worker gets a second to close its object; a busy one is killed.
        """
        close_all([self])

    def hang_up(self) -> None:
        """Begin to close: the worker ends when it has read the end of the stream."""
        with self.lock:
            if not self._closed:
                self._closed = True
                self.generation += 1
                if self._sent:
                    self._process.kill()
                self._channel.close()
                for job in self._take_jobs():
                    job.fail(ClosedError(f"{self.name} was closed"))

    def reap(self, deadline: float) -> None:
        """Finish closing: wait until `deadline` (`time.monotonic()`), then kill."""
        self._process.join(max(0.0, deadline - time.monotonic()))
        self._finalizer()

    @property
    def pid(self) -> int | None:
        """The process id."""
        pid: int | None = self._process.pid
        return pid

    @property
    def failure(self) -> PlanvecError | None:
        """Why the process is gone, or None."""
        return self._failure

    @property
    def capacity(self) -> int:
        """The most rows that one request can carry."""
        return self._capacity

    def __enter__(self) -> ExternalProcess:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "failed" if self._failure else "open"
        return f"<ExternalProcess {self.name}, pid {self.pid}, {state}>"

    # -- calls --------------------------------------------------------------------------------

    def call(self, name: str, *args: Any, **kwargs: Any) -> Promise[Any]:
        """Call a method of the hosted object.

        Args:
            name: The method.
            args: Arguments, sent by cloudpickle.
            kwargs: Keyword arguments.

        Returns:
            A promise of its value.

        Raises:
            InvalidBatchError: An argument cannot be pickled; nothing was sent.
            WorkerCrashedError: The process is gone.
        """
        return self._ask(host.Call(name, args, kwargs))

    def get_attr(self, name: str) -> Any:
        """An attribute of the hosted object."""
        return self._ask(host.Call(name, kind="get")).result()

    def set_attr(self, name: str, value: Any) -> None:
        """Set an attribute of the hosted object."""
        self._ask(host.Call(name, (value,), kind="set")).result()

    def get_state(self) -> Any:
        """The base state of the hosted environment."""
        return self.call("get_state").result()

    def set_state(self, state: Any) -> None:
        """Set the base state of the hosted environment."""
        self.call("set_state", state).result()

    def step_batch(
        self,
        actions: Any,
        states: Any = None,
        dt: Any = 1,
        *,
        blocking: bool = True,
        **options: Any,
    ) -> Any:
        """`PlanEnv.step_batch` in the process; with `blocking=False` a promise of it."""
        promise = self.call("step_batch", actions, states, dt, **options)
        return promise.result() if blocking else promise

    def _ask(self, call: host.Call) -> Promise[Any]:
        self.check()
        job = CallJob(call)
        self.submit(job)
        return JobsPromise(self._watch, [job], lambda: job.value)

    # -- jobs: what the pool uses ------------------------------------------------------------------

    def check(self) -> None:
        """Raise if the process is closed or gone."""
        if self._closed:
            raise ClosedError(f"{self.name} was closed")
        if self._failure is not None:
            raise self._failure

    def submit(self, job: Job) -> None:
        """Ask for a job; it is sent now if there is room, else while somebody waits."""
        with self.lock:
            self._repair()
            self._waiting.append(job)
            self._send_waiting()

    def _repair(self) -> None:
        """A signal handler that raised has left a frame half sent or half read: start over."""
        if self._midway and not self._is_gone:
            self._process.kill()
            self._crash(None, is_own_fault=False)

    def filenos(self) -> tuple[int, ...]:
        """What becomes readable when an answer comes, and when the process dies; none if it is gone.

        `generation` changes whenever these do.
        """
        return () if self._is_gone else (self._channel.fileno(), self._handle)

    def seconds_busy(self, now: float) -> float:
        """How long the request at work has been there. Args: now: `time.monotonic()`."""
        return now - self._busy_since if self._sent else 0.0

    def _send_waiting(self) -> None:
        while self._waiting and self._is_ready and self._failure is None:
            job = self._waiting[0]
            slot = self._slots[self._free_slots[-1]] if self._free_slots and job.rows else None
            if len(self._sent) >= NUM_SLOTS or (job.rows and slot is None):
                return
            try:
                payload = job.write(slot)
            except (pickle.PicklingError, TypeError, AttributeError) as error:  # actions of a custom space
                self._waiting.popleft()
                job.fail(InvalidBatchError(f"{job.describe()}: cannot be pickled ({error})"))
                continue
            if len(payload) > _SMALL and self._sent:
                return  # the worker may be writing to us: neither side would read
            self._send(job, payload, self._free_slots[-1] if slot is not None else 0)

    def _send(self, job: Job, payload: bytes, slot: int) -> None:
        self._tickets += 1
        frame = Frame(self._tickets, job.verb, slot, job.num_rows, payload)
        if not self._sent:
            self._busy_since = time.monotonic()
        self._midway = True
        self._sent.append(_Sent(self._tickets, slot, job))
        self._waiting.popleft()
        if job.rows:
            self._free_slots.pop()
        job.num_attempts += 1
        try:
            self._channel.send(frame)
        except OSError as error:
            self._crash(error)
        self._midway = False

    def receive(self) -> None:
        """Read one answer, which is there, and send what waits for its room."""
        with self.lock:
            if self._is_gone:
                return
            self._repair()
            self._midway = True
            try:
                frame = self._channel.receive()
            except OSError as error:
                self._crash(error)
                return
            if frame is None:  # another thread was here first
                self._midway = False
            elif self._is_ready:
                self._finish(frame)
            else:
                self._greet(frame)
            self._midway = False
            self._send_waiting()

    def _greet(self, frame: Frame) -> None:
        """The first frame: the object was made, or not."""
        if frame.verb == host.FAILED:
            failure: Any = pickle.loads(frame.payload)
            error = failure.revive()
            if not isinstance(error, UnsupportedEnvError):
                cause = error.__cause__
                error = WorkerStartError(
                    f"{self.name}: the factory raised {failure.type_name}: {failure.detail}"
                )
                error.__cause__ = cause
            self._fail(error)
            return
        self._description = pickle.loads(frame.payload)
        if isinstance(self._description, EnvDescription):
            slab = Slab(self._description, self._memory)
            self._slots, self._capacity = slab.slots, slab.capacity
        self._is_ready = True

    def _finish(self, frame: Frame) -> None:
        ticket, slot_index, job = self._sent[0]
        if frame.ticket != ticket:
            self._process.kill()
            self._crash(None)
            return
        slot = self._slots[slot_index] if job.rows else None
        self._busy_since = time.monotonic()
        if frame.verb == host.FAILED:
            job.error = pickle.loads(frame.payload).revive(job.first_row)
        else:
            job.read(slot, frame.payload)
        job.is_done = True
        self._sent.popleft()
        if slot is not None:
            self._free_slots.append(slot_index)

    # -- death --------------------------------------------------------------------------------

    def notice_death(self) -> None:
        """The process is gone: keep what it had answered, fail the rest."""
        with self.lock:
            process = self._process
            while self._process is process and not self._is_gone and self._channel.is_readable():
                self.receive()
            if self._process is process and not self._is_gone and not process.is_alive():
                self._crash(None)

    @property
    def _is_gone(self) -> bool:
        return self._closed or self._failure is not None

    def time_out(self, seconds: float) -> None:
        """Give up on the request at work: kill the process."""
        with self.lock:
            self._process.kill()
            what = self._sent[0].job.describe() if self._sent else "start"
            self._fail(
                WorkerTimeoutError(
                    f"{self.name} (pid {self.pid}) did not finish the {what} within {seconds:g} s; "
                    "it was killed"
                )
            )

    def _crash(self, cause: BaseException | None, is_own_fault: bool = True) -> None:
        self._process.join(_GRACE_SECONDS)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join(_GRACE_SECONDS)
        what = f" during the {self._sent[0].job.describe()}" if self._sent else ""
        how = _how(self._process.exitcode)
        message = f"{self.name} (pid {self.pid}) {how}{what}"
        error: PlanvecError = WorkerCrashedError(message)
        if not self._is_ready:
            error = WorkerStartError(f"{message}, before its object was made")
        error.__cause__ = cause
        self._fail(error, is_own_fault)

    def _fail(self, error: PlanvecError, is_own_fault: bool = True) -> None:
        self._failure = error
        self.generation += 1
        at_work = self._sent[0].job if self._sent and is_own_fault else None
        jobs = self._take_jobs()
        self._finalizer()
        if self.supervisor is not None:
            jobs = self.supervisor(self, error, at_work, jobs)
        for job in jobs:
            job.fail(error)

    def _take_jobs(self) -> list[Job]:
        """All jobs that are not done, each once: an interrupted one may be in both queues."""
        jobs = dict.fromkeys([*(sent.job for sent in self._sent), *self._waiting])
        self._sent.clear()
        self._waiting.clear()
        return [job for job in jobs if not job.is_done]


def _process_handle(process: Any) -> int:
    """A file descriptor that becomes readable when the process dies."""
    if hasattr(os, "pidfd_open"):
        return os.pidfd_open(process.pid)
    return os.dup(process.sentinel)


def _how(exitcode: int | None) -> str:
    if exitcode is None:
        return "stopped answering"
    if exitcode < 0:
        try:
            name = signal.Signals(-exitcode).name
        except ValueError:
            name = f"signal {-exitcode}"
        return f"was killed by {name}"
    return f"exited with code {exitcode}"


def _reap(process: Any, channel: Channel, memory: int, handle: int, owner: int) -> None:
    """End a process and let go of all that belonged to it. Runs once, also at garbage collection."""
    if os.getpid() != owner:
        return  # a forked copy of the parent owns nothing
    channel.close()
    process.join(_GRACE_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()
    os.close(memory)
    os.close(handle)


def close_all(processes: list[ExternalProcess]) -> None:
    """Close several processes in the time of one."""
    for process in processes:
        process.hang_up()
    deadline = time.monotonic() + _GRACE_SECONDS
    for process in processes:
        process.reap(deadline)


def _close_live() -> None:
    close_all(list(_live))


_exit_registered: list[int] = []


def _register_exit() -> None:
    """Close what is open when the interpreter exits.

    Registered after multiprocessing's own exit function, so that it runs before that one, which would
    wait for the workers for ever.
    """
    if os.getpid() not in _exit_registered:
        _exit_registered[:] = [os.getpid()]
        atexit.register(_close_live)
