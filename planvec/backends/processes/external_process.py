"""`ExternalProcess`: one process that hosts an object of the user's."""

from __future__ import annotations

import atexit
import os
import time
import weakref
from collections.abc import Callable
from typing import Any

import cloudpickle

from planvec.backends.processes.child.host import Call
from planvec.backends.processes.jobs import CallJob
from planvec.backends.processes.link import START_SECONDS, Link
from planvec.backends.processes.os.ending import GRACE_SECONDS
from planvec.backends.processes.os.signals import undisturbed
from planvec.backends.processes.os.start_methods import DEFAULT_START_METHOD, START_METHODS
from planvec.backends.processes.promises import JobsPromise
from planvec.backends.processes.waiting import Watch
from planvec.envs.plan_env import EnvDescription
from planvec.errors import WorkerStartError, WorkerTimeoutError
from planvec.rows.promises import Promise

__all__ = ["DEFAULT_START_METHOD", "ExternalProcess", "close_all"]

_live: weakref.WeakSet[ExternalProcess] = weakref.WeakSet()


class ExternalProcess(Link):
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
            raise WorkerStartError(f"start_method: expected one of {[*START_METHODS]}, got {start_method!r}")
        try:
            pickled = cloudpickle.dumps(factory)
        except Exception as error:
            raise WorkerStartError(
                f"factory: {factory!r} cannot be pickled ({type(error).__name__}: {error}); "
                "nothing was started"
            ) from error
        super().__init__(pickled, start_method, name)
        self._watch = Watch([self])
        _live.add(self)
        _register_exit()

    def wait_ready(self, timeout: float | None = START_SECONDS) -> EnvDescription | None:
        """Wait until the object is made.

        Args:
            timeout: Seconds.

        Returns:
            What the object's `describe()` says; None where it has none.

        Raises:
            WorkerStartError: The factory raised, or took too long; the process is gone.
        """
        self.check()
        if not self.is_ready:
            try:
                self._watch.wait_for(lambda: self.is_settled, timeout)
            except WorkerTimeoutError:
                self.give_up_starting(timeout or 0.0)
            self.check()
        return self.description

    def close(self) -> None:
        """Close the object and end the process. Closing again does nothing.

        An idle worker gets a second to close its object; a busy one is killed.
        """
        close_all([self])

    def __enter__(self) -> ExternalProcess:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "failed" if self.failure else "open"
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
        return self._ask(Call(name, args, kwargs))

    def get_attr(self, name: str) -> Any:
        """An attribute of the hosted object."""
        return self._ask(Call(name, kind="get")).result()

    def set_attr(self, name: str, value: Any) -> None:
        """Set an attribute of the hosted object."""
        self._ask(Call(name, (value,), kind="set")).result()

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

    def _ask(self, call: Call) -> Promise[Any]:
        self.check()
        job = CallJob(call)
        self.submit(job)
        return JobsPromise(self._watch, [job], lambda: job.value)


def close_all(processes: list[ExternalProcess]) -> None:
    """Close several processes in the time of one."""
    with undisturbed():
        for process in processes:
            process.hang_up()
        deadline = time.monotonic() + GRACE_SECONDS
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
