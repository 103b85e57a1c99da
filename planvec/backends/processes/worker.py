"""Defines `ProcessWorker`, the client of a worker process, `ExternalProcess`, and groups of them.

    parent                                                child (child.py)
    ------                                                ---------------------
    Form.write  -> slot  -- frame (ticket, verb) -->      Form.read
                                                          EnvStepper.perform, row by row in `progress`
    read_answer <- slot  <-- frame (ticket, done) --      write_answer

At most two requests are sent and not answered, one per slot. A process answers in the order of the tickets,
which count its requests; any other ticket is a fault of the process. The parent detects the exit of a process
through the channel and through a handle of the process that the operating system provides.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import select
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NoReturn, overload

from planvec.backends.base import Backend, ExitReason, Pending, WorkerExit
from planvec.backends.client import NOBODY, START_SECONDS, Blame, Waiter, WorkerClient, WorkerGroup, limit
from planvec.backends.messages import Failure, pickle_factory, read_value
from planvec.backends.processes.channel import (
    FAILED,
    LONG_SPIN_SECONDS,
    SPIN_SECONDS,
    ChannelError,
    Frame,
    Poller,
)
from planvec.backends.processes.requests import (
    FORMS,
    HostedRequest,
    ServedRequest,
    call_method,
    get_attribute,
    read_answer,
    set_attribute,
    write_request,
)
from planvec.backends.processes.slab import NUM_SLOTS, Slab, Slot, WorkerSpec
from planvec.backends.processes.starting import DEFAULT_START_METHOD, START_METHODS, Child, capture_spec
from planvec.backends.processes.system import bytes_used, default_num_workers, num_cores
from planvec.backends.sharded.backend import Sharded
from planvec.errors import (
    ClosedError,
    PlanvecError,
    WorkerCrashedError,
    WorkerStartError,
    WorkerTimeoutError,
)
from planvec.rows import Answer, EnvDescription, Outputs, Promise, Request, Transitions, wait_for
from planvec.stepping import ROW, STEP, TICKET

_SMALL = 32 << 10  # A payload of at most this size fits into the buffer of the socket: sending it never waits
# time without an answer after which the state of a process is checked: a signal may have stopped it
_STOPPED_SECONDS = 1.0
# Interval of these checks. Two in a row must agree, since some tools stop a process for a moment.
_STOP_CHECK_SECONDS = 0.25
_MEMORY_CHECK_SECONDS = 0.25  # interval of the memory checks


class ProcessWorker(WorkerClient):
    """Executes requests in a process. Implements `backends.base.Worker`."""

    def __init__(self, spec: WorkerSpec, start_method: str) -> None:
        self.spec = spec  # what its processes are started with
        self.start_method = start_method
        self.generation = 0  # A number that changes whenever `filenos` does
        # The layout of the hosted `Server`, with the shared memory mapped, or None if the object is no
        # `Server`. Valid once the process is ready; a replacement has another one.
        self.layout: Any = None
        self._first: Any = None  # the description or the layout of the first process; None for another object
        super().__init__(spec.name)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid

    @property
    def is_foreign(self) -> bool:
        return self._child.is_foreign

    def text(self) -> str:
        return f"{self.name} (pid {self.pid})"

    def memory_used(self) -> int:
        return bytes_used(self.pid)

    def kill(self) -> None:
        """Kill the process and all of its child processes (SIGKILL)."""
        if self.is_foreign:
            self.check()
        with self.lock:
            self._child.kill()

    # -- start and end ------------------------------------------------------------------------------

    def _launch(self) -> None:
        self._child = Child(self.spec, self.start_method)
        self._slots: list[Slot] = []
        # the ticket, the row and the step that the process is executing; None if it steps no rows
        self._progress: memoryview | None = None
        self._next_memory_check = self._next_stop_check = 0.0
        self._was_stopped = False
        self.generation += 1

    def _kill(self) -> None:
        self._child.kill()

    def _release(self) -> None:
        self.generation += 1
        if not self.is_closed:
            self._child.end()
        else:  # an idle process reads the end of the stream and exits
            if self._sent:
                self._child.kill()
            self._child.channel.close()
        self._slots, self._progress = [], None  # the slab is freed with its last view

    def finish_close(self, deadline: float) -> None:
        self._child.join(max(0.0, deadline - time.monotonic()))
        self._child.kill()
        self._child.end()

    def handle_exit(self) -> None:
        """Handle the exit of the process: read the answers that it sent before, then report the exit."""
        with self.lock:
            if self.is_foreign:
                self.check()
            child = self._child
            while self._child is child and self._is_running and child.channel.is_readable():
                self.receive()
            if self._child is child and self._is_running and not child.is_alive():
                self._end_crashed(self._blame())

    def _end_crashed(self, blame: Blame) -> None:
        how = self._child.how_it_ended()
        self.end(ExitReason.CRASH, how, blame, self._child.was_killed)

    def _blame(self) -> Blame:
        """Return the row that the process is executing, or was when it exited."""
        progress = self._progress
        # A process that had not begun the oldest request exited for another reason.
        if not self._sent or (progress is not None and progress[TICKET] != self._num_answered + 1):
            return NOBODY
        if progress is None or progress[ROW] < 0:
            return Blame(True)
        return Blame(True, progress[ROW], progress[STEP])

    # -- limits -------------------------------------------------------------------------------------

    def seconds_left(self, now: float) -> float:
        left = super().seconds_left(now)
        if self._is_running and (self._sent or not self.is_ready):
            return min(left, max(self._since + _STOPPED_SECONDS, self._next_stop_check) - now)
        return left

    def _check_limits(self, now: float) -> None:
        if self.is_ready and (not self._sent or self._child.channel.is_readable()):
            return  # it has answered
        if now >= max(self._since + _STOPPED_SECONDS, self._next_stop_check):
            self._next_stop_check = now + _STOP_CHECK_SECONDS
            was_stopped, self._was_stopped = self._was_stopped, self._child.is_stopped()
            if was_stopped and self._was_stopped:
                self._end_stopped()
                return
        super()._check_limits(now)

    def _end_stopped(self) -> None:
        self.kill_and_end(ExitReason.STOPPED, "had been stopped by a signal", self._blame())

    def _end_late(self, now: float) -> None:
        if self._child.is_stopped():
            self._end_stopped()
        else:
            how = f"did not finish within {self.timeout:g} s"
            self.kill_and_end(ExitReason.TIMEOUT, how, self._blame())

    # -- messages -----------------------------------------------------------------------------------

    def filenos(self) -> tuple[int, ...]:
        """Return the file descriptors of the channel and of the process handle, or () after the exit."""
        # The first becomes readable when an answer arrives, the second when the process exits.
        with self.lock:
            return (self._child.channel.fileno(), self._child.handle) if self._is_running else ()

    def _pack(self, request: Request[Any]) -> tuple[bytes, bytes] | None:
        """Return the verb and the payload, or None."""
        if len(self._sent) >= NUM_SLOTS:
            return None
        form = FORMS.get(type(request))
        if form is None:
            verb, payload = write_request(request)
        else:
            ticket = self._num_answered + len(self._sent) + 1
            slot = self._slots[ticket % NUM_SLOTS]  # those of two tickets in a row are different
            verb, payload = form.verb, form.write(request, slot.first(request.num_rows))
        # The process may be writing, too: if both sides write, neither reads.
        return None if len(payload) > _SMALL and self._sent else (verb, payload)

    def _post(self, pending: Pending, message: tuple[bytes, bytes]) -> None:
        verb, payload = message
        ticket = self._num_answered + len(self._sent)
        num_rows = pending.request.num_rows
        try:
            self._child.channel.send(ticket, verb, ticket % NUM_SLOTS, num_rows, payload)
        except ChannelError:  # the process exited before this request: the request is not the cause
            self._end_crashed(self._blame() if len(self._sent) > 1 else NOBODY)

    def receive(self) -> None:
        """Read one answer, if one has arrived, and send the requests that waited for its slot."""
        with self.lock:
            if self.is_foreign:
                self.check()
            self._replace_if_interrupted()
            if not self._is_running:
                return
            self._in_step = True
            try:
                frame = self._child.channel.receive()
            except ChannelError:
                self._end_crashed(self._blame())
                return
            if frame is not None:  # else another thread has read it
                if self.is_ready:
                    self._on_answer(frame)
                else:
                    self._on_ready_message(frame)
            self._in_step = False

    def _on_answer(self, frame: Frame) -> None:
        """Complete the oldest request."""
        ticket = self._num_answered + 1
        if not self._sent or frame.ticket != ticket:
            blame = self._blame()
            self.kill_and_end(ExitReason.CRASH, "answered a request that was not sent to it", blame)
            return
        pending = self._sent[0]
        has_slot = type(pending.request) in FORMS
        may_step = has_slot or isinstance(pending.request, ServedRequest)
        slot = self._slots[ticket % NUM_SLOTS].first(frame.num_rows) if has_slot else None
        rss, now = 0, time.monotonic()
        if self.max_rss is not None and may_step and now >= self._next_memory_check:
            self._next_memory_check, rss = now + _MEMORY_CHECK_SECONDS, self.memory_used()
        self.complete(pending, partial(_read, pending.request, slot, frame), rss)

    def _on_ready_message(self, frame: Frame) -> None:
        """Handle the first frame: become ready, or end a process that could not make its object."""
        first = self._first
        try:
            sent = pickle.loads(frame.payload) if frame.verb == FAILED else frame.payload
            described = self._read_ready(sent, first)
            if not (isinstance(described, EnvDescription) or described is None or first is None):
                difference = first.difference(described)
                if difference is not None:
                    what = f"its factories made something else after a restart: {difference}"
                    raise WorkerStartError(f"{self.name}: {what}")
        except PlanvecError as error:
            self.give_up(error)
            return
        self._first = first or described
        description = None
        if isinstance(described, EnvDescription):
            description, slab = described, Slab(described, self._child.memory)
            self._slots, self._progress, self.capacity = slab.slots, slab.progress, slab.capacity
        elif described is not None:
            self.layout, self._progress = described, described.map_memory(self._child.memory)
        self.become_ready(description)


def _read(request: Request[Any], slot: Slot | None, frame: Frame) -> Answer | PlanvecError:
    """Return the answer of a worker, or the error that it sent."""
    if frame.verb == FAILED:
        failure: Failure = pickle.loads(frame.payload)
        return failure.to_error()
    if slot is not None:
        return read_answer(slot, frame.payload)
    if isinstance(request, ServedRequest):
        return Answer(Outputs(), value=frame.payload)
    return read_value(frame.payload)


class ProcessGroup(WorkerGroup):
    """Polls the channels and the handles of several processes."""

    def __init__(self, workers: Sequence[ProcessWorker]) -> None:
        super().__init__(workers)
        self._processes = workers
        self._poll = select.poll()
        self._generations: list[int] = []
        self._owners: dict[int, tuple[ProcessWorker, bool]] = {}
        self._poller = Poller()
        # The caller may poll for longer if there is a core that no worker needs.
        self._longest_spin = LONG_SPIN_SECONDS if len(workers) < num_cores() else SPIN_SECONDS

    def poll(self) -> None:
        self._refresh()
        while events := self._poll.poll(0):
            self._handle(events)
            self._refresh()
        self._check_clock()

    def wait(self, timeout: float | None) -> bool:
        self._refresh()
        started, longest = time.monotonic(), self._longest_spin
        events = self._poller.spin(self._poll.poll, longest if timeout is None else min(longest, timeout))
        now = time.monotonic()
        if timeout is not None:
            timeout = max(0.0, timeout - (now - started))
        if not events or now >= self._next_clock_check:
            self._check_clock()
        if not events:
            self._refresh()
            events = self._poller.sleep(self._poll.poll, self._seconds(timeout, now) * 1000)
        self._handle(events)
        return bool(events)

    def _refresh(self) -> None:
        """Poll the present processes: a restarted one has new file descriptors."""
        generations = [worker.generation for worker in self._processes]
        if generations == self._generations:
            return
        poll = select.poll()
        owners = {}
        for worker in self._processes:
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


_FORK_CURE = ', or pass start_method="fork" (context="fork" to AsyncVectorEnv), which sends nothing'

_live: weakref.WeakSet[ExternalProcess] = weakref.WeakSet()
_exit_registered: list[int] = []  # the id of the process that closes them when it exits


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
        # Registered after the exit function of multiprocessing, this one runs before it. That function would
        # wait for the processes without a limit.
        if os.getpid() not in _exit_registered:
            _exit_registered[:] = [os.getpid()]
            atexit.register(lambda: ProcessGroup([process._worker for process in _live]).close())

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

    def call(self, name: str, *args: object, **kwargs: object) -> Promise[Any]:
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
        return self._submit(call_method, name, args, kwargs)

    def get_attr(self, name: str) -> Any:
        """Return an attribute of the object; if the object is a `PlanEnv`, of its environment.

        Args:
            name: A dotted name, such as "gravity" or "ale.lives".
        """
        return wait_for(self._submit(get_attribute, name))

    def set_attr(self, name: str, value: object) -> None:
        """Set an attribute of the object; if the object is a `PlanEnv`, of its environment.

        No other process gets the value, nor does a replacement of this one. Use it for processes that do not
        belong to a `BatchEnv`, since restoring a state changes only what is part of it.
        """
        wait_for(self._submit(set_attribute, name, value))

    def get_state(self) -> Any:
        """Return the base state of the hosted environment."""
        return wait_for(self.call("get_state"))

    def set_state(self, state: object) -> None:
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
        self,
        actions: object,
        states: object = None,
        dt: object = 1,
        *,
        blocking: bool = True,
        **options: object,
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

    def _submit(self, function: Callable[..., Any], name: str, *arguments: object) -> Promise[Any]:
        self._worker.check()
        if self._worker.exit is not None:
            raise_exit(self._worker.exit)
        pending = self._worker.submit(HostedRequest.of(function, name, *arguments))
        return HostedPromise(self._waiter, pending, name, self._worker.lock)


def open_processes(
    factories: Sequence[Callable[[], Any]],
    *,
    start_method: str | None,
    name: str = "planvec-worker",
    preload: Sequence[str] = (),
) -> list[ExternalProcess]:
    """Start a process for each factory. If one cannot be started, close the others."""
    processes: list[ExternalProcess] = []
    with contextlib.ExitStack() as undo:
        for index, factory in enumerate(factories):
            processes.append(
                ExternalProcess(factory, start_method=start_method, name=f"{name}-{index}", preload=preload)
            )
            undo.callback(processes[-1].close)
        undo.pop_all()
    return processes


def over_processes(
    processes: Sequence[ExternalProcess],
    *,
    timeout: float | None,
    max_restarts: int,
    audit: float,
    max_worker_rss: int | None,
) -> Backend:
    """Return a backend over processes that each host a `PlanEnv`. For the limits, see `limit`."""
    workers = [process._worker for process in processes]
    factory = processes[0].factory
    are_alike = all(process.factory is factory for process in processes)
    is_limited = timeout is not None or max_worker_rss is not None
    # It is None if the environment must not be stepped in this process: its code may crash or hang.
    open_here = getattr(factory, "open_here", None) if are_alike and not is_limited else None
    backend = Sharded(
        workers,
        group=ProcessGroup(workers),
        max_restarts=max_restarts,
        audit=audit,
        open_here=open_here,
        num_busy=default_num_workers(),
    )
    try:
        limit(workers, timeout, max_worker_rss)
    except BaseException:
        backend.close()
        raise
    return backend


class ServedProcesses(Waiter):
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
        self.processes = open_processes(factories, start_method=start_method, name=name, preload=preload)
        # their parts that send requests
        self.workers: list[ProcessWorker] = [process._worker for process in self.processes]
        self._processes = ProcessGroup(self.workers)
        super().__init__(self._processes)

    def limit(self, timeout: float | None, max_worker_rss: int | None) -> None:
        """Limit the time and the memory of the processes, which must be ready. See `limit`."""
        limit(self.workers, timeout, max_worker_rss)

    def close(self) -> None:
        """Close all processes at the same time, with one common deadline."""
        self._processes.close()
