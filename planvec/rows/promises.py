"""Defines promises: the answers to calls that may not be complete yet."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, NoReturn, TypeVar

from planvec.errors import PlanvecError, WorkerTimeoutError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# time for which one of several promises is waited for, before the others are asked again
_POLL_SECONDS = 0.002


class Promise(ABC, Generic[T_co]):
    """Holds the answer to a call: `done()` says whether it has come, `result()` waits for it and returns it.

    Calling the promise is the same as `result()`. Several promises may be pending. They may be read in any
    order, more than once, or never.
    """

    @abstractmethod
    def done(self) -> bool:
        """Return whether `result()` would return (or raise) at once. Does not wait."""

    @abstractmethod
    def result(self, timeout: float | None = None) -> T_co:
        """Wait for the answer and return it.

        Every call returns the same object, with the same arrays: copy what you change in place.

        Args:
            timeout: Seconds to wait; None waits without a limit.

        Raises:
            WorkerTimeoutError: The answer did not come in time. The promise stays valid and can be read
                later.
            PlanvecError: The call failed with this error.
        """

    def abandon(self) -> None:
        """Cancel the call because its answer is not needed. Rows that have not begun are not stepped."""
        return

    def __call__(self) -> T_co:
        """Return `result()`."""
        return self.result()

    def __repr__(self) -> str:
        return f"<Promise, {'done' if self.done() else 'pending'}>"


class Completed(Promise[T_co]):
    """Holds a value that is known from the start. Stepping in this process returns it."""

    def __init__(self, value: T_co) -> None:
        self._value = value

    def done(self) -> bool:
        return True

    def result(self, timeout: float | None = None) -> T_co:
        return self._value


class Failed(Completed[NoReturn]):
    """Holds the error of a call that has failed: `result()` raises it."""

    def __init__(self, error: PlanvecError) -> None:
        self._error = error

    def result(self, timeout: float | None = None) -> NoReturn:
        raise self._error


class AllDone(Promise[None]):
    """Promises that several calls are done."""

    def __init__(self, calls: Sequence[Promise[None]]) -> None:
        self._calls = calls

    def done(self) -> bool:
        return all(call.done() for call in self._calls)

    def result(self, timeout: float | None = None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        for call in self._calls:
            call.result(None if deadline is None else max(0.0, deadline - time.monotonic()))

    def abandon(self) -> None:
        for call in self._calls:
            call.abandon()


def as_completed(promises: Iterable[Promise[T]], timeout: float | None = None) -> Iterator[Promise[T]]:
    """Yield promises as they are done, the earliest first; of several that are done, in their order.

    The promises may belong to several environments. Those that have failed are yielded too: `result()` raises
    their error.

    Args:
        promises: The promises.
        timeout: Seconds to wait for all of them; None waits without a limit.

    Raises:
        WorkerTimeoutError: Some are not done in time. They stay valid.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    pending = list(promises)
    while pending:
        done = [promise for promise in pending if promise.done()]
        yield from done
        pending = [promise for promise in pending if not any(promise is one for one in done)]
        if done or not pending:
            continue
        if deadline is not None and time.monotonic() >= deadline:
            raise WorkerTimeoutError(f"as_completed: {len(pending)} promises are not done after {timeout} s")
        try:
            pending[0].result(_POLL_SECONDS)
        except PlanvecError:
            continue  # not done yet, or it has failed, and is yielded


def wait_for(promise: Promise[T]) -> T:
    """Wait for a promise and return its result. If the user interrupts the wait, abandon the promise."""
    try:
        return promise.result()
    except PlanvecError:
        raise
    except BaseException:  # Ctrl-C, or a signal handler of the user
        promise.abandon()
        raise
