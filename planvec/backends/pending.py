"""Defines `Pending`, a request to a worker and the future of its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from planvec.backends.base import WorkerExit
from planvec.rows import Answer, Request


class Pending:
    """Holds a request and is the future of its answer. Implements `backends.base.Future`."""

    # `concurrent.futures.Future` has a lock and a condition of its own, which cost several microseconds. This
    # class relies on the lock of the worker, which is held during all calls.

    __slots__ = (
        "_answer",
        "_callback",
        "_error",
        "_is_cancelled",
        "_is_done",
        "_is_reported",
        "is_sent",
        "request",
    )

    def __init__(self, request: Request[Any]) -> None:
        self.request = request
        self.is_sent = False  # whether the request is sent to the worker
        self._callback: Callable[[Any], object] | None = None
        self._answer: Answer | None = None
        self._error: BaseException | None = None
        self._is_done = self._is_cancelled = self._is_reported = False

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
        """Fail the request after the exit of the worker."""
        if not is_current and exit.is_cause:
            exit = exit.of_another()
        self.finish(error=exit)

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
