"""The protocols of this folder: what a `BatchEnv` needs of a backend, and `Sharded` of a worker.

BatchEnv --Request--> Backend            answers and errors come by promise, alike on every backend
                         |
                      Sharded --Request--> Worker     answers and errors come by future
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol, Self, TypeVar

from planvec.backends.stats import ExitReason, Stats
from planvec.errors import PlanvecError
from planvec.rows import Answer, EnvDescription, Promise, Request

__all__ = ["Backend", "Future", "Worker", "WorkerExit"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Backend(Protocol):
    """Answers requests about the states of one environment.

    Attributes:
        description: Of the environment.
        stats: Counts.
        base_state: The state that rows start from where none are given.
    """

    description: EnvDescription
    stats: Stats
    base_state: Any

    @property
    def num_workers(self) -> int:
        """Workers; 0 steps in this process."""
        ...

    def run(self, request: Request[T], *, keep: bool = False) -> Promise[T]:
        """Do what a request asks for.

        Args:
            request: Its arguments were checked.
            keep: Whether the caller goes on before the answer is there, and may change the arrays.

        Returns:
            A promise of the user's form of the answer, which also raises every error.
        """
        ...

    def sync_base_state(self) -> Promise[None]:
        """Make `base_state` the base state of every worker, and of those that will replace one."""
        ...

    def close(self) -> None:
        """End the workers, or close the environment. Promises still open raise `ClosedError`."""
        ...


class WorkerExit(Exception):  # noqa: N818 - an event rather than an error of its own
    """A worker is gone. Raised by the futures of all that it was still to do.

    Args:
        reason: For `Stats`.
        what: Which worker, how it ended and over what, for messages.
        is_cause: Whether the request whose future raises this may be the cause: it was at work.
        row: The row of that request that the worker had come to; None where that is not known.
        step: The step of that row's rollout.
        was_starting: Whether the worker was not ready yet.
        was_killed: Whether somebody else ended it (SIGKILL, SIGTERM), rather than it itself.
        error: Why it cannot be started, where starting it again now would fail in the same way.
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
        """Return the same for a request that the worker was not at work on."""
        return WorkerExit(
            self.reason,
            self.what,
            was_starting=self.was_starting,
            was_killed=self.was_killed,
            error=self.error,
        )

    @property
    def was_late(self) -> bool:
        """Whether its time was up: the same row would take as long again."""
        return self.reason is ExitReason.TIMEOUT


class Future(Protocol[T_co]):
    """The part of `concurrent.futures.Future` that `Sharded` uses; any such future will do."""

    def add_done_callback(self, fn: Callable[[Self], object], /) -> None:
        """Call `fn(self)` when it is done or cancelled; at once if it is."""
        ...

    def cancel(self) -> bool:
        """Nobody wants the answer any more."""
        ...

    def cancelled(self) -> bool:
        """Return whether it was cancelled before it was done."""
        ...

    def exception(self) -> BaseException | None:
        """Return the error; None if there is none."""
        ...

    def result(self) -> T_co:
        """Return the answer, or raise the error."""
        ...


class Worker(Protocol):
    """Executes requests, one after another: a process, an actor, a thread.

    Errors of the environment are raised by the future of the request; it can be used on. If the worker is
    gone, the futures of all that it was to do raise `WorkerExit`.

    Attributes:
        name: For messages.
        capacity: The most rows that one request can have, once it is ready.
        description: Of its environment, once it is ready; None where it has none.
        exit: How it ended, until it is started again; None while it runs.
    """

    name: str
    capacity: int
    description: EnvDescription | None
    exit: WorkerExit | None

    @property
    def is_ready(self) -> bool:
        """Whether its environment is made and it can be asked."""
        ...

    def listen(self, changed: Callable[[Self], None], lock: threading.RLock) -> None:
        """Have `changed(worker)` called whenever it has become ready or has ended.

        Args:
            changed: Called with `lock` held.
            lock: Held while anything of the backend changes. A worker that is no thread-safe object by
                itself holds it, too.
        """
        ...

    def submit(self, request: Request[Any]) -> Future[Answer]:
        """Ask for something. A worker may be asked again before it has answered."""
        ...

    def restart(self, pause: float = 0.0) -> None:
        """Start it again after its exit, in `pause` seconds, with the same environment."""
        ...

    def close(self) -> None:
        """End it; futures that are not done raise `ClosedError`."""
        ...
