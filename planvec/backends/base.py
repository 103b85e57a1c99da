"""Defines the protocols of backends and workers.

BatchEnv --Request--> Backend            a promise holds the answer or the error, on every backend
                         |
                      Sharded --Request--> Worker     a future holds the answer or the error
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol, Self, TypeVar

from planvec.backends.stats import ExitReason, Stats
from planvec.backends.waiting import Events
from planvec.errors import PlanvecError
from planvec.rows import Answer, EnvDescription, KernelUse, Perform, Promise, Request

_KILLS_PER_EXIT = 10  # number of workers killed from outside that count as much as one exit of another kind

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Backend(Protocol):
    """Answers requests about the states of one environment.

    Attributes:
        description: The description of the environment.
        stats: Counts of rows, chunks and worker exits.
        base_state: The state at which rows start if a request gives none.
    """

    description: EnvDescription
    stats: Stats
    base_state: Any

    @property
    def num_workers(self) -> int:
        """Number of workers; 0 for a backend that steps in this process."""
        ...

    def run(self, request: Request[T], *, keep: bool = False) -> Promise[T]:
        """Execute a request.

        Args:
            request: The request. Its arguments are already checked.
            keep: Whether the caller continues before the answer is complete, and may then change the arrays
                of the request.

        Returns:
            A promise of the result for the user. Every error is raised by the promise.
        """
        ...

    def kernel_use(self, num_steps: int) -> KernelUse | None:
        """Return the use of a kernel in this process, if it would perform requests for so many steps."""
        ...

    def row_use(self) -> Perform | None:
        """Return a function that performs requests in this process; None if workers perform them."""
        ...

    def sync_base_state(self) -> Promise[None]:
        """Set the base state of every worker, and of every later replacement, to `base_state`."""
        ...

    def close(self) -> None:
        """Close the workers or the environment. Promises that are not complete raise `ClosedError`."""
        ...


class StepsElsewhere:
    """The part of a `Backend` over workers that planners ask for the use of this process."""

    def kernel_use(self, num_steps: int) -> None:
        """Return None: the kernels of workers are in other processes."""

    def row_use(self) -> None:
        """Return None: workers perform requests."""


class WorkerExit(Exception):  # noqa: N818 - an event, not an error of its own
    """Reports the exit of a worker. The futures of its incomplete requests raise it.

    Args:
        reason: The reason, counted in `Stats`.
        what: The worker and how it exited, for messages.
        is_cause: Whether the request of the future may be the cause: the worker was executing it.
        row: The row of that request that was in progress, counted from 0; None if it is not known.
        step: The step in the rollout of that row.
        was_starting: Whether the worker was not ready yet.
        was_killed: Whether it was killed from outside (SIGKILL, SIGTERM).
        error: The reason that the worker cannot start, if a restart would fail in the same way; else None.
    """

    def __init__(
        self,
        reason: ExitReason,
        what: str,
        *,
        is_cause: bool = False,
        row: int | None = None,
        step: int = 0,
        was_starting: bool = False,
        was_killed: bool = False,
        error: PlanvecError | None = None,
    ) -> None:
        super().__init__(what)
        self.reason = reason
        self.what = what
        self.is_cause = is_cause
        self.row = row
        self.step = step
        self.was_starting = was_starting
        self.was_killed = was_killed
        self.error = error

    def of_another(self) -> WorkerExit:
        """Return the exit for a request that the worker had not begun, and that is not the cause."""
        return WorkerExit(
            self.reason,
            self.what,
            was_starting=self.was_starting,
            was_killed=self.was_killed,
            error=self.error,
        )

    @property
    def weight(self) -> float:
        """How much the exit counts against the limits of restarts: kills from outside say little."""
        return 1 / _KILLS_PER_EXIT if self.was_killed else 1.0

    @property
    def was_late(self) -> bool:
        """Whether the worker exceeded the timeout. A retry of the same row would probably exceed it, too."""
        return self.reason is ExitReason.TIMEOUT


class Future(Protocol[T_co]):
    """Declares the methods of `concurrent.futures.Future` that `Sharded` uses."""

    def add_done_callback(self, fn: Callable[[Self], object], /) -> None:
        """Call `fn(self)` when the future is done or cancelled, or at once if it already is."""
        ...

    def cancel(self) -> bool:
        """Cancel the request, whose answer is not needed. Return whether it is cancelled."""
        ...

    def cancelled(self) -> bool:
        """Return whether the request was cancelled before it was done."""
        ...

    def exception(self) -> BaseException | None:
        """Return the error, or None if the request succeeded."""
        ...

    def result(self) -> T_co:
        """Return the answer, or raise the error."""
        ...


class Worker(Protocol):
    """Executes requests in order, for example in a process, an actor or a thread.

    The future of a request raises an error of the environment; the worker remains usable. If the worker
    exits, the futures of its incomplete requests raise `WorkerExit`.

    Attributes:
        name: The name in messages.
        capacity: Largest number of rows in one request. Valid once the worker is ready.
        description: The description of its environment, or None if it has none. Valid once it is ready.
        exit: The exit of the worker until it is restarted; None while it runs.
    """

    name: str
    capacity: int
    description: EnvDescription | None
    exit: WorkerExit | None

    @property
    def is_ready(self) -> bool:
        """Whether its environment is made and it accepts requests."""
        ...

    @property
    def is_delayed(self) -> bool:
        """Whether it waits for a place in a cluster, so that the other workers should begin without it."""
        ...

    def listen(self, changed: Callable[[Self], None], lock: threading.RLock) -> None:
        """Set the callback for changes: the worker calls it when it becomes ready and when it exits.

        Args:
            changed: The callback `changed(worker)`. After an exit, the futures of incomplete requests must
                raise before it is called, the newest first: each is retried before all others. If the worker
                has exited already, it is called at once.
            lock: The lock that protects the state of the backend. A worker that is not thread-safe holds it
                while its own state changes.
        """
        ...

    def submit(self, request: Request[Any]) -> Future[Answer]:
        """Queue a request and return its future. Several requests may be pending.

        A worker that reads the request after this returns must copy it (`request.copy()`), because the caller
        may change its arrays then. A worker that is not ready yet keeps the request until it is. The future
        raises errors of every kind; an exception that is raised here fails the call of the request.
        """
        ...

    def restart(self, pause: float = 0.0) -> None:
        """Restart the worker after its exit, in `pause` seconds, with the same environment."""
        ...

    def close(self) -> None:
        """Close the worker. Futures that are not done raise `ClosedError`."""
        ...


class WorkerGroup(Events, Protocol):
    """Handles the messages of several workers in one poll, and closes the workers together."""

    def close(self) -> None:
        """Close all workers at the same time, with one common deadline."""
        ...
