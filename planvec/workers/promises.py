"""Promises that are kept by worker processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from planvec.promise import Promise
from planvec.workers.jobs import Job
from planvec.workers.waiting import pump, wait_for

if TYPE_CHECKING:
    from planvec.workers.external_process import ExternalProcess

__all__ = ["JobsPromise"]

T = TypeVar("T")


class JobsPromise(Promise[T]):
    """Kept when all of its jobs are done.

    Args:
        processes: That it may be waiting for, or that may have other work to be sent meanwhile.
        jobs: In the order of their rows.
        finish: Makes the value once all jobs have succeeded.
        timeout: Seconds that one request may take, or None.
    """

    def __init__(
        self,
        processes: Sequence[ExternalProcess],
        jobs: Sequence[Job],
        finish: Callable[[], T],
        timeout: float | None = None,
    ) -> None:
        self._processes = processes
        self._jobs = jobs
        self._finish: Callable[[], T] | None = finish
        self._timeout = timeout
        self._value: Any = None

    def _is_done(self) -> bool:
        return all(job.is_done for job in self._jobs)

    def done(self) -> bool:
        if not self._is_done():
            pump(self._processes, self._timeout)
        return self._is_done()

    def result(self, timeout: float | None = None) -> T:
        if not self._is_done():
            wait_for(self._processes, self._is_done, timeout, self._timeout)
        for job in self._jobs:  # the first row that failed, whichever failed first
            if job.error is not None:
                raise job.error
        if self._finish is not None:
            self._value, self._finish = self._finish(), None
        value: T = self._value
        return value
