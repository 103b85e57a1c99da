"""Defines `ExternalProcess`, a process that hosts one object of the user."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NoReturn, overload

from planvec.backends.messages.factories import pickle_factory
from planvec.backends.processes.group import ProcessGroup, close_all
from planvec.backends.processes.hosted_promise import HostedPromise, raise_exit
from planvec.backends.processes.starting.capture import capture_spec
from planvec.backends.processes.starting.start_methods import DEFAULT_START_METHOD, START_METHODS
from planvec.backends.processes.watchdog import START_SECONDS
from planvec.backends.processes.wire.hosted import (
    CallMethod,
    GetAttribute,
    HostedRequest,
    Operation,
    SetAttribute,
)
from planvec.backends.processes.wire.spec import WorkerSpec
from planvec.backends.processes.worker import ProcessWorker
from planvec.backends.waiting import Waiter
from planvec.errors import (
    WorkerStartError,
    WorkerTimeoutError,
)
from planvec.rows import EnvDescription, Promise, Transitions, wait_for

_FORK_CURE = ', or pass start_method="fork" (context="fork" to AsyncVectorEnv), which sends nothing'

_live: weakref.WeakSet[ExternalProcess] = weakref.WeakSet()


class ExternalProcess:
    """Hosts one object in a process of its own, and forwards calls to it.

    The process starts at once, and makes the object in the background. The first call waits until it is made.

    Args:
        factory: Makes the object. It is called in the process without arguments. It is sent with the
            variables that it uses, and may be a lambda, a closure, or a function from a notebook or from
            `__main__`. The ids that are registered with Gymnasium here are registered there, too.
        start_method: "template" (default), "spawn", "forkserver" or "fork". With "fork" nothing is sent: the
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
