"""Defines backends, workers and futures of answers, and their statistics.

BatchEnv --Request--> Backend            a promise holds the answer or the error, on every backend
                         |
                      Sharded --Request--> Worker     a future holds the answer or the error
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import Enum
from typing import Any, Protocol, Self, TypeVar

from planvec.errors import ClosedError, PlanvecError, WorkerStartError
from planvec.rows import Answer, EnvDescription, KernelUse, Perform, Promise, Request


class ExitReason(Enum):
    """Names the reason for the exit of a worker."""

    CRASH = "crash"
    TIMEOUT = "timeout"
    STOPPED = "stopped"
    OUTGROWN = "outgrown"


@dataclass(slots=True)
class Stats:
    """Counts rows, chunks, retries and worker exits since the environment was opened.

    Attributes:
        num_rows: Rows of all steps and rollouts.
        num_chunks: Chunks in which these rows were submitted to workers.
        retries: Chunks that were retried after the exit of a worker.
        masked_rows: Rows that were flagged as failed, with `on_error="mask"`.
        audited_rows: Rows that were stepped a second time and compared; they count in no other number.
        exits: Reason -> number of workers that were replaced for it.
    """

    num_rows: int = 0
    num_chunks: int = 0
    retries: int = 0
    masked_rows: int = 0
    audited_rows: int = 0
    exits: dict[ExitReason, int] = field(default_factory=lambda: dict.fromkeys(ExitReason, 0))

    @property
    def restarts(self) -> int:
        """Workers that were replaced, for any reason."""
        return sum(self.exits.values())

    @property
    def crashes(self) -> int:
        """Workers that crashed, by a signal or an exit."""
        return self.exits[ExitReason.CRASH]

    @property
    def timeouts(self) -> int:
        """Workers that were killed because a chunk took longer than `timeout`."""
        return self.exits[ExitReason.TIMEOUT]

    @property
    def stopped(self) -> int:
        """Workers that were killed because a signal had stopped them (SIGSTOP), or because a signal handler
        of the caller interrupted a message to them or the call that they worked on."""
        return self.exits[ExitReason.STOPPED]

    @property
    def outgrown(self) -> int:
        """Workers that were replaced because they used more memory than `max_worker_rss`."""
        return self.exits[ExitReason.OUTGROWN]


_KILLS_PER_EXIT = 10  # number of workers killed from outside that count as much as one exit of another kind

T = TypeVar("T")


# -- The protocols of backends and workers -------------------------------------------------------------------


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
        return None

    def row_use(self) -> Perform | None:
        """Return a function that performs requests in this process; None if workers perform them."""
        return None

    def sync_base_state(self) -> Promise[None]:
        """Set the base state of every worker, and of every later replacement, to `base_state`."""
        ...

    def close(self) -> None:
        """Close the workers or the environment. Promises that are not complete raise `ClosedError`."""
        ...


@dataclass(eq=False)
class WorkerExit(Exception):  # noqa: N818 - an event, not an error of its own
    """Reports the exit of a worker. The futures of its incomplete requests raise it.

    Attributes:
        reason: The reason, counted in `Stats`.
        what: The worker and how it exited, for messages.
        is_cause: Whether the request of the future may be the cause: the worker was executing it.
        row: The row of that request that was in progress, counted from 0; None if it is not known.
        step: The step in the rollout of that row.
        was_starting: Whether the worker was not ready yet.
        was_killed: Whether it was killed from outside (SIGKILL, SIGTERM).
        error: The reason that the worker cannot start, if a restart would fail in the same way; else None.
    """

    reason: ExitReason
    what: str
    _: KW_ONLY
    is_cause: bool = False
    row: int | None = None
    step: int = 0
    was_starting: bool = False
    was_killed: bool = False
    error: PlanvecError | None = None

    def __str__(self) -> str:
        return self.what

    def of_another(self) -> WorkerExit:
        """Return the exit for a request that the worker had not begun, and that is not the cause."""
        return replace(self, is_cause=False, row=None, step=0)

    @property
    def weight(self) -> float:
        """How much the exit counts against the limits of restarts: kills from outside say little."""
        return 1 / _KILLS_PER_EXIT if self.was_killed else 1.0

    @property
    def was_late(self) -> bool:
        """Whether the worker exceeded the timeout. A retry of the same row would probably exceed it, too."""
        return self.reason is ExitReason.TIMEOUT


@dataclass(slots=True, eq=False)
class Pending:
    """Holds a request to a worker, and is the future of its answer."""

    # `concurrent.futures.Future` has a lock and a condition of its own, which cost several microseconds. This
    # class relies on the lock of the worker, which is held during all calls.

    request: Request[Any]
    is_sent: bool = False  # whether the request is sent to the worker
    _callback: Callable[[Any], object] | None = None
    _answer: Answer | None = None
    _error: BaseException | None = None
    _is_done: bool = False
    _is_cancelled: bool = False
    _is_reported: bool = False  # whether the callback has returned

    def add_done_callback(self, fn: Callable[[Self], object], /) -> None:
        """Call `fn(self)` when the request is done, or at once if it already is. There is one callback."""
        self._callback = fn
        if self._is_done:
            self._report(fn)

    def cancel(self) -> bool:
        """Cancel the request: it is not sent, or its answer is not read. Return False if it is done."""
        if self._is_done:
            return False
        self._is_cancelled = True
        if not self.is_sent:
            self.finish()
        return True

    def cancelled(self) -> bool:
        """Return whether the request was cancelled before it was done."""
        return self._is_cancelled

    def done(self) -> bool:
        """Return whether there is an answer or an error."""
        return self._is_done

    def exception(self) -> BaseException | None:
        """Return the error, or None if the request succeeded."""
        return self._error

    def result(self) -> Answer:
        """Return the answer, or raise the error."""
        if self._error is not None:
            raise self._error
        assert self._answer is not None
        return self._answer

    def finish(self, answer: Answer | None = None, error: BaseException | None = None) -> None:
        """Complete the request, and call the callback."""
        # If a signal handler raises during the callback, this is called again with a `WorkerExit`.
        if not self._is_reported:
            self._answer, self._error, self._is_done = answer, error, True
            if self._callback is not None:
                self._report(self._callback)

    def fail(self, exit: WorkerExit, is_current: bool) -> None:
        """Fail the request after the exit of the worker, or with the error of a worker that was closed."""
        # `is_current`: whether the worker was executing this request; no other one can be the cause.
        if isinstance(exit.error, ClosedError):
            self.finish(error=exit.error)
        else:
            self.finish(error=exit if is_current or not exit.is_cause else exit.of_another())

    def describe(self) -> str:
        """Return the text for messages, such as "step of 8 rows"."""
        count = self.request.num_rows
        rows = f" of {count} row{'s' * (count != 1)}" if count else ""
        return f"{self.request.verb}{rows}"

    def _report(self, callback: Callable[[Any], object]) -> None:
        callback(self)
        self._is_reported = True
        self._callback = None  # it refers to the owner of this future: without the cycle, both are freed now
        self._answer = None  # its views would keep the shared memory alive


# the future of an answer; workers with threads of their own return one of the standard library
Future = concurrent.futures.Future[Answer] | Pending


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

    def submit(self, request: Request[Any]) -> Future:
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


# -- Checks that workers and their replacements have the same environment ------------------------------------

# ends the messages of errors about workers with different environments
_DIFFERENT = (
    "results would depend on the worker. A factory must make the same environment in every process; use a "
    "fixed seed for everything that it draws at random, such as a map, and np.zeros instead of np.empty"
)


def check_same(name: str, first: EnvDescription, description: EnvDescription, how: str = "") -> None:
    """Check that a worker has the same environment as the first one, or as it had before `how`."""
    # Files that only one of them has imported do not count.
    changed = sorted(path for path, code in first.code.items() if description.code.get(path, code) != code)
    if changed:
        who = f"{name} {how}, and" if how else f"workers: {name}"
        raise WorkerStartError(
            f"{who} imported other code than the workers before it: since the environment was opened, "
            f"there was a change of {', '.join(changed)}. Open the environment again to use the new code"
        )
    made = "made another environment"
    made = f"{name} {how} and {made}" if how else f"workers: {name} {made} than the first"
    # A restart makes the same spaces anew, and classes of users may have no `__eq__`. The walk says the rest.
    for what in () if how else ("observation_space", "action_space", "state_dtype"):
        one, other = getattr(first, what), getattr(description, what)
        if one != other:
            raise WorkerStartError(f"{made}: its {what} is {other}, not {one}")
    if (description.state_format, description.fingerprint) != (first.state_format, first.fingerprint):
        raise WorkerStartError(f"{made}: {_DIFFERENT}")
    for number, (one, other) in enumerate(zip(first.walk, description.walk, strict=False), 1):
        if one != other:
            raise WorkerStartError(
                f"{made}: step {number} of the same random walk had another outcome. {_DIFFERENT}. If it "
                "depends on the order of a set of objects, which follows their addresses, use a dict or a "
                "list instead"
            )
