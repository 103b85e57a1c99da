"""Promises: answers to calls that may still be under way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, NoReturn, TypeVar

from planvec.errors import PlanvecError

__all__ = ["Completed", "Failed", "Promise"]

T_co = TypeVar("T_co", covariant=True)


class Promise(ABC, Generic[T_co]):
    """The answer to a call: ask with `done()`, take with `result()` or by calling it.

    Several promises may be pending; they may be read in any order, more than once, or never.
    """

    @abstractmethod
    def done(self) -> bool:
        """Return whether `result()` would return (or raise) at once. Does not wait for an answer."""

    @abstractmethod
    def result(self, timeout: float | None = None) -> T_co:
        """Wait for the answer and return it.

        Args:
            timeout: Seconds to wait; None waits as long as it takes.

        Raises:
            WorkerTimeoutError: Not ready in time; the promise stays valid and may be asked again.
            PlanvecError: The error of the call itself.
        """

    def abandon(self) -> None:
        """Cancel the call: nobody will ask for the answer. Rows that were not begun are not stepped."""
        return

    def __call__(self) -> T_co:
        """Return `result()`."""
        return self.result()


class Completed(Promise[T_co]):
    """A promise that has its value from the start: what stepping in this process returns."""

    def __init__(self, value: T_co) -> None:
        self._value = value

    def done(self) -> bool:
        return True

    def result(self, timeout: float | None = None) -> T_co:
        return self._value


class Failed(Promise[NoReturn]):
    """A promise of a call that has failed: `result()` raises its error."""

    def __init__(self, error: PlanvecError) -> None:
        self._error = error

    def done(self) -> bool:
        return True

    def result(self, timeout: float | None = None) -> NoReturn:
        raise self._error
