"""Defines `ProcessWorker`, restarted in a new process, `ExternalProcess`, and groups of them.

    starting -> ready -> exited -> (restart) -> pausing -> starting

The parent runs no thread for it. A thread that waits for an answer reads the messages that have arrived,
sends the requests that wait, and checks the deadlines (see `ProcessGroup`). The parent detects the exit of a
process through the channel and through a handle of the process that the operating system provides.

A signal handler may raise anywhere: `messenger` explains how interrupted steps are completed.
"""

from __future__ import annotations

import atexit
import math
import os
import select
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NoReturn, overload

from planvec.backends.base import Backend, ExitReason, Pending, Waiter, WorkerExit
from planvec.backends.in_process import HarmlessFactory, SmallBatches
from planvec.backends.messages import pickle_factory
from planvec.backends.processes.channel import SPIN_SECONDS, yield_core
from planvec.backends.processes.messenger import START_SECONDS, Messenger, make_exit
from planvec.backends.processes.requests import (
    CallMethod,
    GetAttribute,
    HostedRequest,
    Operation,
    SetAttribute,
)
from planvec.backends.processes.slab import WorkerSpec
from planvec.backends.processes.starting import (
    DEFAULT_START_METHOD,
    GRACE_SECONDS,
    START_METHODS,
    Child,
    capture_spec,
)
from planvec.backends.processes.system import num_cores
from planvec.backends.sharded.backend import Sharded
from planvec.backends.signals import delayed_signals
from planvec.errors import (
    ClosedError,
    InvalidBatchError,
    PlanvecError,
    WorkerCrashedError,
    WorkerStartError,
    WorkerTimeoutError,
)
from planvec.rows import EnvDescription, Promise, Transitions, wait_for


class ProcessWorker(Messenger):
    """Executes requests in a process. Implements `backends.base.Worker`."""

    is_delayed = False  # A process never waits for a place

    def __init__(self, spec: WorkerSpec, start_method: str) -> None:
        super().__init__(spec.name)
        self.spec = spec  # what its processes are started with
        self.start_method = start_method
        self.generation = 0  # A number that changes whenever `filenos` does
        self._starts_at = math.inf
        self._is_in_callback = False
        self._start()

    def listen(self, changed: Callable[[ProcessWorker], None], lock: threading.RLock) -> None:
        """Set the callback for changes, and the lock to hold. See `backends.base.Worker.listen`."""
        self._changed, self.lock = changed, lock
        if self.exit is not None:
            changed(self)

    # -- life ---------------------------------------------------------------------------------------

    def _start(self) -> None:
        with delayed_signals():  # an interrupt between start and assignment would leave an unknown process
            self._child = Child(self.spec, self.start_method)
            self._conversation.begin(self._child.channel)
            self.watchdog.begin()
            self._is_outgrown = False
            self.description, self.is_ready = None, False
            self.generation += 1
            self._starts_at, self._is_disconnected = math.inf, False

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid

    @property
    def is_busy(self) -> bool:
        """Whether the process has requests to answer."""
        return bool(self._conversation.sent)

    def restart(self, pause: float = 0.0) -> None:
        """Start a new process in `pause` seconds. Requests wait until it is ready."""
        self.exit = None
        self._starts_at = time.monotonic() + pause
        self._start_if_due()

    def kill(self) -> None:
        """Kill the process and all of its child processes (SIGKILL)."""
        self._check_own()
        with self.lock:
            self._child.kill()

    def abort(self, how: str) -> None:
        """Kill the process. Its requests raise `WorkerExit`, whose message ends with `how`."""
        with self.lock:
            if not self._is_disconnected:
                self._child.kill()
                self._unreported_exit = WorkerExit(ExitReason.STOPPED, f"{self.name} (pid {self.pid}) {how}")
                self._report_exit()

    def memory_used(self) -> int:
        """Return the bytes of memory that the process uses; 0 if the system does not show it."""
        return self._child.memory_used()

    def close(self) -> None:
        """Close the worker. An idle process has one second to close its object; a busy one is killed."""
        self.begin_close()
        self.finish_close(time.monotonic() + 1.0)

    def begin_close(self) -> None:
        """Close the channel: an idle process reads the end of the stream and exits. Kill a busy process."""
        if self._child.is_foreign:
            self.is_closed = True
            return  # without the lock: another thread may have held it during the fork
        with self.lock:
            if not self.is_closed:
                self.is_closed = self._is_disconnected = True
                self.is_ready = False
                self.generation += 1
                if self._conversation.sent:
                    self._child.kill()
                self._conversation.is_open = False
                self._child.channel.close()
                self._unreported_exit, self._starts_at = None, math.inf
                error = ClosedError(f"{self.name} was closed")
                for pending in self._conversation.end():
                    pending.finish(error=error)
                self.exit = WorkerExit(ExitReason.STOPPED, str(error), error=error)
                self._changed(self)

    def finish_close(self, deadline: float) -> None:
        """Wait for the process until `deadline` (`time.monotonic()`), then kill it and free its resources."""
        self._child.join(max(0.0, deadline - time.monotonic()))
        self._child.kill()
        self._child.end()

    # -- time ---------------------------------------------------------------------------------------

    def seconds_left(self, now: float) -> float:
        """Return the seconds until `check_clock` must be called; infinite if there is no deadline."""
        if self._unreported_exit is not None or self._conversation.is_interrupted:
            return 0.0
        if self._is_disconnected:
            return self._starts_at - now
        return self.watchdog.seconds_left(now, self._conversation, self.is_ready)

    def check_clock(self, now: float) -> None:
        """Start or kill the process if it is time to. `now` is `time.monotonic()`."""
        if self._unreported_exit is not None or self._conversation.is_interrupted or self._starts_at <= now:
            with self.lock:
                self._repair()
                self._start_if_due()
        elif not self._is_disconnected and self.watchdog.is_due(now, self._conversation, self.is_ready):
            with self.lock:
                if self._is_disconnected:
                    return  # another thread has ended it
                kill_reason = self.watchdog.inspect(self._child, self._conversation, self.is_ready)
                if kill_reason is None:
                    return
                if not self.is_ready and kill_reason.reason is ExitReason.TIMEOUT:
                    self.give_up_starting(kill_reason.how)
                else:
                    self._kill_and_end(*kill_reason)

    def _start_if_due(self) -> None:
        if self._starts_at > time.monotonic() or self.is_closed:
            return
        try:
            self._start()
        except WorkerStartError as error:  # out of processes, memory or files
            self._starts_at = math.inf
            self._unreported_exit = WorkerExit(ExitReason.CRASH, str(error), was_starting=True)
            self._report_exit()

    # -- the end of a process -----------------------------------------------------------------------

    def handle_exit(self) -> None:
        """Handle the exit of the process: read the answers that it sent before, then report the exit."""
        with self.lock:
            self._check_own()
            child = self._child
            while self._child is child and not self._is_disconnected and child.channel.is_readable():
                self.receive()
            if self._child is child and not self._is_disconnected and not child.is_alive():
                self._end_crashed()

    def give_up_starting(self, how: str) -> None:
        """Kill a process that does not become ready. `how` says in the message what it did."""
        with self.lock:
            if not self.is_ready and not self._is_disconnected:
                self._child.kill()
                self._give_up(WorkerStartError(f"{self.name} {how}"))

    def _end_crashed(self, may_be_cause: bool = True) -> None:
        self._end(ExitReason.CRASH, self._child.how_it_ended(), may_be_cause)

    def _kill_and_end(self, reason: ExitReason, how: str, may_be_cause: bool = True) -> None:
        self._child.kill()
        self._end(reason, f"{how}, and was killed", may_be_cause)

    def _end(self, reason: ExitReason, how: str, may_be_cause: bool = True) -> None:
        exit = make_exit(
            f"{self.name} (pid {self.pid}) {how}",
            reason,
            self._conversation,
            is_ready=self.is_ready,
            was_killed=reason is not ExitReason.TIMEOUT and self._child.was_killed,
            may_be_cause=may_be_cause,
        )
        self._unreported_exit = exit
        self._report_exit()

    def _give_up(self, error: PlanvecError) -> None:
        """End a process that cannot make its object. A restart would fail in the same way."""
        self._unreported_exit = WorkerExit(ExitReason.CRASH, str(error), was_starting=True, error=error)
        self._report_exit()

    def _report_exit(self) -> None:
        """Report a recorded exit. If a signal handler raises in it, the next call reports the exit again."""
        exit = self._unreported_exit
        if exit is None or self._is_in_callback:
            return
        self._is_in_callback = True
        try:
            with delayed_signals():
                self._is_disconnected, self.is_ready = True, False
                self.generation += 1
                current = self._conversation.sent[0].pending if self._conversation.sent else None
                lost = self._conversation.end()
                self._child.end()
                self.exit = exit
                for pending in reversed(lost):  # each is retried first, so that the oldest comes first
                    pending.fail(exit, is_current=pending is current)
                self._unreported_exit, self._is_in_callback = None, False
                self._changed(self)
        finally:
            self._is_in_callback = False


# -- Waits for several worker processes at once, and closes them together ------------------------------------

_CLOCK_SECONDS = 0.05  # interval of the deadline checks while answers arrive without a pause
# Longest sleep. A worker that another thread has restarted has a new channel, which must be polled.
_MAX_SECONDS = 0.5


def close_all(workers: Sequence[ProcessWorker]) -> None:
    """Close several processes at the same time, with one common deadline."""
    with delayed_signals():
        for worker in workers:
            worker.begin_close()
        deadline = time.monotonic() + GRACE_SECONDS
        for worker in workers:
            worker.finish_close(deadline)


class ProcessGroup:
    """Polls the channels and the handles of several processes. Implements `backends.base.WorkerGroup`."""

    def __init__(self, workers: Sequence[ProcessWorker]) -> None:
        self._workers = workers
        self._poll = select.poll()
        self._generations: list[int] = []
        self._owners: dict[int, tuple[ProcessWorker, bool]] = {}
        self._next_clock_check = 0.0
        self._num_cores = num_cores()
        self._is_slow = False  # whether the latest answer took longer than polling lasts

    def poll(self) -> None:
        """Handle all messages that have arrived, without waiting."""
        self._refresh()
        while events := self._poll.poll(0):
            self._handle(events)
            self._refresh()
        self._check_clock()

    def wait(self, timeout: float | None) -> bool:
        """Wait until a message arrives or a process exits, and handle it."""
        # `timeout`: Seconds to wait, or None for no limit.
        # Returns whether anything was handled.
        self._refresh()
        events = self._spin()
        now = time.monotonic()
        if not events or now >= self._next_clock_check:
            self._check_clock()
        if not events:
            self._refresh()
            events = self._poll.poll(self._seconds(timeout, now) * 1000)
            self._is_slow = time.monotonic() - now > SPIN_SECONDS
        self._handle(events)
        return bool(events)

    def close(self) -> None:
        """Close all processes at the same time, with one common deadline."""
        close_all(self._workers)

    def _refresh(self) -> None:
        """Poll the present processes: a restarted one has new file descriptors."""
        generations = [worker.generation for worker in self._workers]
        if generations == self._generations:
            return
        poll = select.poll()
        owners = {}
        for worker in self._workers:
            for fd, is_channel in zip(worker.filenos(), (True, False), strict=False):
                owners[fd] = (worker, is_channel)
                poll.register(fd, select.POLLIN)
        # `_generations` is set last, since a signal handler may raise anywhere in this method.
        self._poll, self._owners = poll, owners
        self._generations = generations

    def _handle(self, events: list[tuple[int, int]]) -> None:
        """Handle the events of a poll."""
        if len(events) > 1:  # answers first: an answer that was sent before the exit counts
            events.sort(key=lambda event: not self._owners[event[0]][1])
        for fd, _ in events:
            worker, is_channel = self._owners[fd]
            if is_channel:
                worker.receive()
            else:
                worker.handle_exit()

    def _spin(self) -> list[tuple[int, int]]:
        """Poll without sleeping, and return the events."""
        # It polls only once if the workers use every core and need longer: polling would take a core from
        # them.
        poll, now = self._poll.poll, time.perf_counter
        if self._is_slow and sum(worker.is_busy for worker in self._workers) >= self._num_cores:
            return poll(0)
        deadline = now() + SPIN_SECONDS
        while not (events := poll(0)):
            if now() > deadline:
                break
            yield_core()
        return events

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


# -- Defines the promise of an operation on a hosted object, and the errors for the exit of its process ------


class HostedPromise(Promise[Any]):
    """Promises the value of an operation on a hosted object."""

    def __init__(self, waiter: Waiter, pending: Pending, name: str, lock: threading.RLock) -> None:
        self._waiter = waiter
        self._lock = lock
        self._pending = pending
        self._name = name

    def done(self) -> bool:
        if not self._pending.done():
            self._waiter.poll()
        return self._pending.done()

    def result(self, timeout: float | None = None) -> Any:
        self._waiter.wait_for(self._pending.done, timeout)
        error = self._pending.exception()
        if isinstance(error, WorkerExit):
            raise_exit(error, f" during the call of {self._name}" if error.is_cause else "")
        if self._pending.cancelled():
            raise ClosedError(f"the call of {self._name} was interrupted")
        return self._pending.result().value

    def abandon(self) -> None:
        with self._lock:
            self._pending.cancel()


def raise_exit(exit: WorkerExit, when: str = "") -> NoReturn:
    """Raise the error for the exit of a process."""
    if exit.error is not None:
        raise exit.error
    make: type[PlanvecError] = WorkerTimeoutError if exit.was_late else WorkerCrashedError
    raise (WorkerStartError if exit.was_starting else make)(f"{exit.what}{when}")


# -- Defines `ExternalProcess`, a process that hosts one object of the user ----------------------------------

_FORK_CURE = ', or pass start_method="fork" (context="fork" to AsyncVectorEnv), which sends nothing'

_live: weakref.WeakSet[ExternalProcess] = weakref.WeakSet()


class ExternalProcess:
    """Hosts one object in a process of its own, and forwards calls to it.

    The process starts at once, and makes the object in the background. The first call waits until it is made.

    Args:
        factory: Makes the object. It is called in the process without arguments. It is sent with the
            variables that it uses, and may be a lambda, a closure, or a function from a notebook or from
            `__main__`. The ids that are registered with Gymnasium here are registered there, too.
        start_method: "template" (default), "spawn" or "fork". With "fork" nothing is sent: the
            process inherits all variables as they are when it is started, and a replacement as they are then.
        name: The name in messages and process listings.
        preload: Names of modules that take long to import. The start method "template" imports them once, and
            forks all processes, also replacements, from there. They must not start threads.
        environ: Environment variables of the process besides those of this one.

    Raises:
        WorkerStartError: The start method does not exist on this system, the factory cannot be pickled, or
            the system cannot start another process.
    """

    def __init__(
        self,
        factory: Callable[[], Any],
        *,
        start_method: str | None = None,
        name: str = "planvec-worker",
        preload: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        start_method = start_method or DEFAULT_START_METHOD
        if start_method not in START_METHODS:
            raise WorkerStartError(
                f"start_method: expected one of {list(START_METHODS)}, got {start_method!r}"
            )
        can_fork = "fork" in START_METHODS
        sent = factory if start_method == "fork" else pickle_factory(factory, _FORK_CURE if can_fork else "")
        self.factory = factory
        spec = capture_spec(sent, name, preload)
        self._open(replace(spec, environ={**spec.environ, **(environ or {})}), start_method)

    def _open(self, spec: WorkerSpec, start_method: str) -> None:
        self._worker = ProcessWorker(spec, start_method)
        self._waiter = Waiter(ProcessGroup([self._worker]))
        _live.add(self)
        _register_exit()

    def clone(self, *, name: str | None = None) -> ExternalProcess:
        """Start another process with a new object from the same factory.

        It is started with the same environment variables, `sys.path` and working directory as this one.

        Args:
            name: The name of the new process; None uses the name of this one.
        """
        other = object.__new__(ExternalProcess)
        other.factory = self.factory
        spec = replace(self._worker.spec, name=name or self.name)
        other._open(spec, self._worker.start_method)
        return other

    @property
    def name(self) -> str:
        """The name in messages and process listings."""
        return self._worker.name

    @property
    def pid(self) -> int:
        """The process id."""
        return self._worker.pid

    @property
    def is_ready(self) -> bool:
        """Whether the object is made and the process accepts calls."""
        return self._worker.is_ready

    def wait_ready(self, timeout: float | None = START_SECONDS) -> EnvDescription | None:
        """Wait until the object is made.

        Args:
            timeout: Seconds to wait; None waits without a limit.

        Returns:
            The description of the environment if the object is a `PlanEnv`, else None.

        Raises:
            WorkerStartError: The factory raised, or did not return within `timeout`. The process has ended.
        """
        worker = self._worker
        worker.check()
        try:
            self._waiter.wait_for(
                lambda: worker.is_ready or worker.is_closed or worker.exit is not None, timeout
            )
        except WorkerTimeoutError:
            worker.give_up_starting(f"was not ready within {timeout:g} s")
        worker.check()
        if worker.exit is not None:
            raise_exit(worker.exit)
        return worker.description

    def kill(self) -> None:
        """Kill the process and all of its child processes (SIGKILL).

        Calls that are not complete raise `WorkerCrashedError`; in a `BatchEnv` they are retried.
        """
        self._worker.kill()

    def restart(self) -> None:
        """Restart the process with a new object from the same factory.

        Calls that are not complete raise `WorkerCrashedError`; in a `BatchEnv` they are retried.

        Raises:
            ClosedError: The process was closed.
            WorkerStartError: The system cannot start another process.
        """
        worker = self._worker
        worker.check()
        with worker.lock:
            worker.abort("was restarted")
            if worker.exit is not None:  # otherwise a `BatchEnv` has restarted it
                worker.restart()
            if worker.exit is not None:
                raise_exit(worker.exit)

    def close(self) -> None:
        """Close the object and end the process. Further calls do nothing.

        An idle process has one second to close its object; a busy one is killed.
        """
        self._worker.close()

    def __enter__(self) -> ExternalProcess:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an ExternalProcess cannot be copied or pickled: it is a running process; clone() starts another"
        )

    def __repr__(self) -> str:
        worker = self._worker
        state = "closed" if worker.is_closed else "failed" if worker.exit is not None else "open"
        return f"<ExternalProcess {self.name}, pid {self.pid}, {state}>"

    # -- calls --------------------------------------------------------------------------------------

    def call(self, name: str, *args: Any, **kwargs: Any) -> Promise[Any]:
        """Call a method of the hosted object.

        Args:
            name: Name of the method.
            args: Positional arguments, sent by cloudpickle.
            kwargs: Keyword arguments, sent by cloudpickle.

        Returns:
            A promise of the return value.

        Raises:
            InvalidBatchError: An argument cannot be pickled. Nothing was sent.
            WorkerCrashedError: The process has exited.
        """
        return self._submit(CallMethod(name, args, kwargs))

    def get_attr(self, name: str) -> Any:
        """Return an attribute of the object; if the object is a `PlanEnv`, of its environment.

        Args:
            name: A dotted name, such as "gravity" or "ale.lives".
        """
        return wait_for(self._submit(GetAttribute(name)))

    def set_attr(self, name: str, value: Any) -> None:
        """Set an attribute of the object; if the object is a `PlanEnv`, of its environment.

        No other process gets the value, nor does a replacement of this one. Use it for processes that do not
        belong to a `BatchEnv`, since restoring a state changes only what is part of it.
        """
        wait_for(self._submit(SetAttribute(name, value)))

    def get_state(self) -> Any:
        """Return the base state of the hosted environment."""
        return wait_for(self.call("get_state"))

    def set_state(self, state: Any) -> None:
        """Set the base state of the hosted environment."""
        wait_for(self.call("set_state", state))

    @overload
    def step_batch(
        self, actions: Any, states: Any = ..., dt: Any = ..., *, blocking: Literal[True] = ..., **options: Any
    ) -> Transitions: ...

    @overload
    def step_batch(
        self, actions: Any, states: Any = ..., dt: Any = ..., *, blocking: Literal[False], **options: Any
    ) -> Promise[Transitions]: ...

    def step_batch(
        self, actions: Any, states: Any = None, dt: Any = 1, *, blocking: bool = True, **options: Any
    ) -> Transitions | Promise[Transitions]:
        """Call `PlanEnv.step_batch` in the process.

        Args:
            actions: `[B, *action shape]`.
            states: `[B]`; None starts every row at the base state.
            dt: Number of environment steps, an int or `[B]`.
            blocking: Whether to wait for the result; otherwise a promise of it is returned.
            options: Further arguments of `PlanEnv.step_batch`.
        """
        promise: Promise[Transitions] = self.call("step_batch", actions, states, dt, **options)
        return wait_for(promise) if blocking else promise

    def _submit(self, operation: Operation) -> Promise[Any]:
        self._worker.check()
        if self._worker.exit is not None:
            raise_exit(self._worker.exit)
        pending = self._worker.submit(HostedRequest.of(operation))
        return HostedPromise(self._waiter, pending, operation.name, self._worker.lock)


def _close_live() -> None:
    close_all([process._worker for process in _live])


_exit_registered: list[int] = []


def _register_exit() -> None:
    """Register a function that closes all processes when the interpreter exits."""
    # It is registered after the exit function of multiprocessing, and therefore runs before it. That function
    # would wait for the processes without a limit.
    if os.getpid() not in _exit_registered:
        _exit_registered[:] = [os.getpid()]
        atexit.register(_close_live)


# -- Opens a backend over worker processes -------------------------------------------------------------------


def over_processes(
    processes: Sequence[ExternalProcess],
    *,
    timeout: float | None,  # seconds that one chunk may take before its worker is killed; None for no limit
    max_restarts: int,
    audit: float,
    max_worker_rss: int | None,
) -> Backend:
    """Return a backend over processes that each host a `PlanEnv`."""
    # Where neither their environment nor a limit needs the isolation of processes, it steps small batches
    # here.
    # `max_worker_rss`: Bytes of memory above which a worker is replaced between two chunks; None for no
    # limit.
    workers = [process._worker for process in processes]
    backend = Sharded(workers, group=ProcessGroup(workers), max_restarts=max_restarts, audit=audit)
    try:
        limit(workers, timeout, max_worker_rss)
    except BaseException:
        backend.close()
        raise
    factory = processes[0].factory
    if not isinstance(factory, HarmlessFactory) or not factory.is_harmless:
        return backend
    are_alike = all(process.factory is factory for process in processes)
    has_limits = timeout is not None or max_worker_rss is not None
    return SmallBatches(backend, factory, audit) if are_alike and not has_limits else backend


def limit(workers: Sequence[ProcessWorker], timeout: float | None, max_worker_rss: int | None) -> None:
    """Limit the time and the memory of workers that are ready."""
    # `timeout`: Seconds that one request may take; None for no limit. `max_worker_rss`: Bytes of memory that
    # a worker may use between two requests; None for no limit.
    if max_worker_rss is not None:
        _check_rss(workers, max_worker_rss)
    for worker in workers:
        worker.watchdog.timeout, worker.watchdog.max_rss = timeout, max_worker_rss


def _check_rss(workers: Sequence[ProcessWorker], max_worker_rss: int) -> None:
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


# -- Runs processes that each host a `Server` ----------------------------------------------------------------


class ServedProcesses:
    """Runs processes that each host a `Server`. The caller decides what happens when one exits."""

    def __init__(
        self,
        factories: Sequence[Callable[[], Any]],
        *,
        start_method: str | None,
        name: str = "planvec-worker",
        preload: Sequence[str] = (),
    ) -> None:
        self.lock = threading.RLock()  # protects all state
        self.processes: list[ExternalProcess] = []
        try:
            for index, factory in enumerate(factories):
                self.processes.append(
                    ExternalProcess(
                        factory, start_method=start_method, name=f"{name}-{index}", preload=preload
                    )
                )
        except BaseException:
            for process in self.processes:
                process.close()
            raise
        # their parts that send requests
        self.workers: list[ProcessWorker] = [process._worker for process in self.processes]
        self._group = ProcessGroup(self.workers)
        self._waiter = Waiter(self._group)

    def limit(self, timeout: float | None, max_worker_rss: int | None) -> None:
        """Limit the time and the memory of the processes, which must be ready. See `limit`."""
        limit(self.workers, timeout, max_worker_rss)

    def poll(self) -> None:
        """Handle all messages that have arrived, without waiting."""
        self._waiter.poll()

    def wait_for(self, is_done: Callable[[], bool], timeout: float | None = None) -> None:
        """Wait until `is_done()`, which is evaluated after every message, returns True."""
        self._waiter.wait_for(is_done, timeout)

    def close(self) -> None:
        """Close all processes at the same time, with one common deadline."""
        self._group.close()
