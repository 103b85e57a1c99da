"""A worker that answers, exits and becomes ready when a test tells it to. See `planvec.backends.Worker`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from planvec import BatchEnv, PlanEnv, Promise
from planvec.backends import ExitReason, Sharded, WorkerExit
from planvec.errors import ClosedError
from planvec.rows import Answer, Request, RowRequest, StepBatch

DEADLY = 1
"""The action on which a worker exits."""


class ScriptedWorker:
    """Keeps requests, and performs one when a test calls `work`.

    Args:
        make: Makes its environment.
        name: The name in messages.
        is_ready: Whether it is ready from the start.

    Attributes:
        pending: The requests that it has not answered, the oldest first, with their futures.
        done: What it has performed, in order: the `dt` of the rows of a step, or the verb of another request.
        listens: Set when `listen` is called.
        pauses: The pauses of its restarts, in seconds.
        num_lives: How often it exits on the action `DEADLY`; later it steps this action like any other.
        waits: How often it waits in each row; None: its answers do not tell.
        stepper: The stepper of its environment.
        is_closed: Whether it was closed.
    """

    capacity = 100
    is_delayed = False

    def __init__(self, make: Callable[[], PlanEnv], name: str = "worker", *, is_ready: bool = True) -> None:
        self.name = name
        self.exit: WorkerExit | None = None
        self.is_ready = is_ready
        self.pending: list[tuple[Request[Any], Future[Answer]]] = []
        self.done: list[Any] = []
        self.listens = threading.Event()
        self.pauses: list[float] = []
        self.num_lives = 0
        self.waits: int | None = None
        self.is_closed = False
        self._env = make()
        self.stepper = self._env.stepper
        self.description = self.stepper.description
        self._changed: Any = lambda worker: None
        self._lock = threading.RLock()

    def listen(self, changed: Any, lock: threading.RLock) -> None:
        self._changed, self._lock = changed, lock
        self.listens.set()

    def submit(self, request: Request[Any]) -> Future[Answer]:
        future: Future[Answer] = Future()
        if self.exit is not None:
            future.set_exception(self.exit.of_another())
        else:
            self.pending.append((request.copy() if isinstance(request, RowRequest) else request, future))
        return future

    def restart(self, pause: float = 0.0) -> None:
        self.exit = None
        self.pauses.append(pause)

    def close(self) -> None:
        self.is_closed = True
        for _, future in self.pending:
            if future.set_running_or_notify_cancel():
                future.set_exception(ClosedError("it was closed"))
        self._env.close()

    # -- called by tests -----------------------------------------------------------------------

    def become_ready(self) -> None:
        """Become ready."""
        self.is_ready = True
        self._changed(self)

    def work(self) -> None:
        """Become ready, or else perform the oldest request: answer it, or exit on it."""
        if not self.is_ready:
            self.become_ready()
            return
        if not self.pending:
            return
        request, future = self.pending[0]
        self.done.append(_note(request))
        deadly = np.flatnonzero(request.actions == DEADLY) if isinstance(request, StepBatch) else []
        if len(deadly) and self.num_lives:
            self.num_lives -= 1
            self.die(row=int(deadly[0]))
            return
        del self.pending[0]
        if not future.set_running_or_notify_cancel():
            self.done.pop()
            return
        try:
            answer = self.stepper.perform(request)
            if self.waits is not None:
                answer.waits = self.waits * request.num_rows
            future.set_result(answer)
        except Exception as error:
            future.set_exception(error)

    def die(
        self,
        *,
        row: int | None = None,
        error: Any = None,
        reason: ExitReason = ExitReason.CRASH,
        is_cause: bool | None = None,
        was_killed: bool = False,
    ) -> None:
        """Exit.

        Args:
            row: The row of the oldest request that was in progress; None if it is not known.
            error: The reason that it cannot be restarted, or None.
            reason: The reason of the exit.
            is_cause: Whether the oldest request may be the cause; None means: if `row` is given.
            was_killed: Whether it was killed from outside.
        """
        exit = WorkerExit(
            reason,
            f"{self.name} fell over",
            is_cause=row is not None if is_cause is None else is_cause,
            row=row,
            was_starting=not self.is_ready,
            was_killed=was_killed,
            error=error,
        )
        with self._lock:
            self.is_ready, self.exit = False, exit
            lost, self.pending = self.pending, []
            # The oldest last, so that it is the first that is done again.
            for number, (_, future) in reversed(list(enumerate(lost))):
                if future.set_running_or_notify_cancel():
                    future.set_exception(exit.of_another() if number else exit)
            self._changed(self)


def _note(request: Request[Any]) -> Any:
    """Return an entry of `done`: the rows of a step, which differ in `dt`, or the verb."""
    return request.dt.tolist() if isinstance(request, StepBatch) else request.verb


def over(workers: Sequence[ScriptedWorker], *, audit: float = 0.0, **options: Any) -> BatchEnv:
    """Open a `BatchEnv` over scripted workers."""
    return BatchEnv(Sharded(workers, audit=audit, **options))


def finish(promise: Promise[Any], workers: Sequence[ScriptedWorker]) -> Any:
    """Let workers work in turn until a promise is done, and return its result."""
    while not promise.done():
        for worker in workers:
            worker.work()
    return promise.result()
