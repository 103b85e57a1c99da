"""`ExternalProcess`: one process that hosts an object of the user's."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable
from typing import Any, Literal, NoReturn, overload

import cloudpickle

from planvec.backends.processes.group import ProcessGroup, close_all
from planvec.backends.processes.hosted_promise import HostedPromise, raise_exit
from planvec.backends.processes.starting.start_methods import DEFAULT_START_METHOD, START_METHODS
from planvec.backends.processes.watchdog import START_SECONDS
from planvec.backends.processes.wire.hosted import (
    CallMethod,
    GetAttribute,
    HostedRequest,
    Operation,
    SetAttribute,
)
from planvec.backends.processes.worker import ProcessWorker
from planvec.backends.waiting import Waiter
from planvec.errors import (
    WorkerStartError,
    WorkerTimeoutError,
)
from planvec.rows import EnvDescription, Promise, Transitions

__all__ = ["ExternalProcess"]

_live: weakref.WeakSet[ExternalProcess] = weakref.WeakSet()


class ExternalProcess:
    """A process that hosts the object that `factory` makes.

    It starts at once and gets ready in the background; the first call waits for it.

    Args:
        factory: Called in the process, without arguments. A lambda, a closure, a function from a
            notebook or from `__main__`: what cloudpickle can send.
        start_method: "template" (default), "spawn", "forkserver" or "fork".
        name: For messages and process listings.

    Raises:
        WorkerStartError: The factory cannot be pickled, or no process can be started.
    """

    def __init__(
        self,
        factory: Callable[[], Any],
        *,
        start_method: str | None = None,
        name: str = "planvec-worker",
    ) -> None:
        start_method = start_method or DEFAULT_START_METHOD
        if start_method not in START_METHODS:
            raise WorkerStartError(
                f"start_method: expected one of {list(START_METHODS)}, got {start_method!r}"
            )
        try:
            pickled = cloudpickle.dumps(factory)
        except Exception as error:
            raise WorkerStartError(
                f"factory: {factory!r} cannot be pickled ({type(error).__name__}: {error}); "
                "nothing was started"
            ) from error
        self._open(pickled, start_method, name)

    def _open(self, factory: bytes, start_method: str, name: str) -> None:
        self._worker = ProcessWorker(factory, start_method, name)
        self._waiter = Waiter(ProcessGroup([self._worker]))
        _live.add(self)
        _register_exit()

    def clone(self, *, name: str | None = None) -> ExternalProcess:
        """Start another process with a new object from the same factory.

        Args:
            name: For messages; None takes the name of this one.
        """
        other = object.__new__(ExternalProcess)
        other._open(self._worker.factory, self._worker.start_method, name or self._worker.name)
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
        """Whether the object is made."""
        return self._worker.is_ready

    def wait_ready(self, timeout: float | None = START_SECONDS) -> EnvDescription | None:
        """Wait until the object is made.

        Args:
            timeout: Seconds.

        Returns:
            The description of the environment, where the object is a `PlanEnv`; else None.

        Raises:
            WorkerStartError: The factory raised, or took too long; the process is gone.
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
        """Kill the process at once (SIGKILL), and what it has started.

        Calls under way raise `WorkerCrashedError`, or, in a `BatchEnv`, are done again.
        """
        self._worker.kill()

    def restart(self) -> None:
        """Start the process anew, with a new object from the same factory. Calls under way raise.

        Raises:
            ClosedError: It was closed.
            WorkerStartError: No process can be started.
        """
        worker = self._worker
        worker.check()
        with worker.lock:
            worker.abort("was restarted")
            if worker.exit is not None:  # else a `BatchEnv` has done it
                worker.restart()
            if worker.exit is not None:
                raise_exit(worker.exit)

    def close(self) -> None:
        """Close the object and end the process. Closing again does nothing.

        An idle worker gets a second to close its object; a busy one is killed.
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
            name: The method.
            args: Arguments, sent by cloudpickle.
            kwargs: Keyword arguments.

        Returns:
            A promise of its value.

        Raises:
            InvalidBatchError: An argument cannot be pickled; nothing was sent.
            WorkerCrashedError: The process is gone.
        """
        return self._submit(CallMethod(name, args, kwargs))

    def get_attr(self, name: str) -> Any:
        """Return an attribute: of the environment where the object is a `PlanEnv`, else of the object.

        Args:
            name: A dotted name, such as "gravity" or "ale.lives".
        """
        return self._submit(GetAttribute(name)).result()

    def set_attr(self, name: str, value: Any) -> None:
        """Set an attribute: of the environment where the object is a `PlanEnv`, else of the object."""
        self._submit(SetAttribute(name, value)).result()

    def get_state(self) -> Any:
        """Return the base state of the hosted environment."""
        return self.call("get_state").result()

    def set_state(self, state: Any) -> None:
        """Set the base state of the hosted environment."""
        self.call("set_state", state).result()

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
            dt: int or `[B]`.
            blocking: False returns a promise.
            options: Further arguments of `PlanEnv.step_batch`.
        """
        promise: Promise[Transitions] = self.call("step_batch", actions, states, dt, **options)
        return promise.result() if blocking else promise

    def _submit(self, operation: Operation) -> Promise[Any]:
        self._worker.check()
        if self._worker.exit is not None:
            raise_exit(self._worker.exit)
        pending = self._worker.submit(HostedRequest.of(operation))
        return HostedPromise(self._waiter, pending, operation.name)


def _close_live() -> None:
    close_all([process._worker for process in _live])


_exit_registered: list[int] = []


def _register_exit() -> None:
    """Close what is open when the interpreter exits.

    Registered after multiprocessing's own exit function, so that it runs before that one, which would
    wait for the workers for ever.
    """
    if os.getpid() not in _exit_registered:
        _exit_registered[:] = [os.getpid()]
        atexit.register(_close_live)
