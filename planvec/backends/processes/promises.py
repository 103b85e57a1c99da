"""Promises that are kept by worker processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from planvec.backends.processes.jobs import Job
from planvec.backends.processes.waiting import Watch
from planvec.errors import ClosedError
from planvec.rows.promises import Promise

__all__ = ["JobsPromise"]

T = TypeVar("T")


class JobsPromise(Promise[T]):
    """Kept when all of its jobs are done.

    Args:
        watch: Over the processes that do the jobs.
        jobs: In the order of their rows.
        finish: Makes the value once all jobs have succeeded.
    """

    def __init__(self, watch: Watch, jobs: Sequence[Job], finish: Callable[[], T]) -> None:
        self._watch = watch
        self._jobs = jobs
        self._finish: Callable[[], T] | None = finish
        self._value: Any = None

    def _is_done(self) -> bool:
        return all(job.is_done for job in self._jobs)

    def done(self) -> bool:
        if not self._is_done():
            self._watch.pump()
        return self._is_done()

    def result(self, timeout: float | None = None) -> T:
        self._watch.wait_for(self._is_done, timeout)
        for job in self._jobs:  # the first row that failed, whichever failed first
            if job.error is not None:
                raise job.error
        finish = self._finish
        if finish is not None:  # twice from two threads gives the same
            self._value = finish()
            self._finish = None
        value: T = self._value
        return value

    def abandon(self) -> None:
        """Nobody will ask for it: what was not begun is not done, and what takes long is ended."""
        for job in self._jobs:
            if not job.is_done:
                job.finish(ClosedError("the call was interrupted"))
