"""A promise: the answer to a call that may still be under way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from planvec.errors import PlanvecError

__all__ = ["Broken", "Completed", "Promise"]

T = TypeVar("T")


class Promise(ABC, Generic[T]):
    """The answer to a call: ask with `done()`, take with `result()` or by calling it.

    Several promises may be pending; they may be read in any order, more than once, or never.
    """

    @abstractmethod
    def done(self) -> bool:
        """Whether `result()` would return (or raise) at once. Does not wait for an answer."""

    @abstractmethod
    def result(self, timeout: float | None = None) -> T:
        """Wait for the answer and return it.

        Args:
            timeout: Seconds to wait; None waits as long as it takes.

        Raises:
            WorkerTimeoutError: Not ready in time; the promise stays valid and may be asked again.
            PlanvecError: The error of the call itself.
        """

    def abandon(self) -> None:
        """Give up on the answer, which nobody will ask for any more. What was not begun is not done."""
        return

    def __call__(self) -> T:
        """The same as `result()`."""
        return self.result()


class Completed(Promise[T]):
    """A promise that was kept when it was made: what stepping in this process returns."""

    def __init__(self, value: T) -> None:
        self._value = value

    def done(self) -> bool:
        return True

    def result(self, timeout: float | None = None) -> T:
        return self._value


class Broken(Promise[Any]):
    """A promise that is known to be broken: `result()` raises."""

    def __init__(self, error: PlanvecError) -> None:
        self._error = error

    def done(self) -> bool:
        return True

    def result(self, timeout: float | None = None) -> Any:
        raise self._error
