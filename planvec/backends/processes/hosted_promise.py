"""Defines the promise of an operation on a hosted object, and the errors for the exit of its process."""

from __future__ import annotations

import threading
from typing import Any, NoReturn

from planvec.backends.base import WorkerExit
from planvec.backends.pending import Pending
from planvec.backends.waiting import Waiter
from planvec.errors import ClosedError, PlanvecError, WorkerCrashedError, WorkerStartError, WorkerTimeoutError
from planvec.rows import Promise


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
