"""Defines the exception tree: every error that planvec raises on purpose derives from `PlanvecError`."""

from __future__ import annotations

__all__ = [
    "ClosedError",
    "EnvError",
    "InvalidBatchError",
    "PlanvecError",
    "RemoteTraceback",
    "UnsupportedEnvError",
    "WorkerCrashedError",
    "WorkerStartError",
    "WorkerTimeoutError",
]


class PlanvecError(Exception):
    """Base class of every error that planvec raises."""

    def moved(self, first_row: int) -> PlanvecError:
        """Return the error with its row counted from the start of the batch, where a part of it begins there.

        Args:
            first_row: Index in the batch of the first row of the part.
        """
        return self


class InvalidBatchError(PlanvecError, ValueError):
    """Raised when an argument of a batch call is wrong. Nothing was sent to a worker.

    The message has the form "actions: expected shape (256, 2), got (256,)".
    """


class UnsupportedEnvError(PlanvecError):
    """Raised when an environment cannot be saved and restored exactly. The message says what to do."""


class _RowError(PlanvecError):
    """Base class of errors that may belong to one row of a batch."""

    def __init__(self, detail: str, *, row: int | None = None, action: object = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.row = row
        self.action = action

    def __str__(self) -> str:
        if self.row is None:
            return self.detail
        action = "" if self.action is None else f", action {self.action!r}"
        return f"row {self.row}{action}: {self.detail}"


class EnvError(_RowError):
    """Raised when the environment raises, or returns something that its spaces do not allow.

    Attributes:
        detail: What failed, without the row.
        row: Index in the batch of the row that failed, or None if the call had no rows.
        action: The action of that row, or None.
    """

    def moved(self, first_row: int) -> EnvError:
        if self.row is None:
            return self
        moved = EnvError(self.detail, row=self.row + first_row, action=self.action)
        moved.__cause__ = self.__cause__
        return moved


class WorkerStartError(PlanvecError):
    """Raised when a worker does not start: its factory raised, hung, or could not be sent."""


class WorkerCrashedError(_RowError):
    """Raised when workers crash (by a signal or an exit) on one row more often than `max_restarts` allows.

    Attributes:
        detail: The worker, how it ended (the signal or the exit code), and the work that it was doing.
        row: Index in the batch of the row on which the workers crashed, or None if the call had no rows.
        action: The action of that row, or None.
    """


class WorkerTimeoutError(_RowError, TimeoutError):
    """Raised when an answer does not come in time: a chunk or a call of `Promise.result` exceeds its timeout.

    Attributes:
        detail: The work that was not complete.
        row: Index in the batch of the row that was being stepped when a chunk exceeded the limit, or None.
        action: The action of that row, or None.
    """


class ClosedError(PlanvecError):
    """Raised when an object is used after `close()`."""


class RemoteTraceback(PlanvecError):  # noqa: N818 - the text of an error, not an error of its own
    """Holds the text of a traceback from a worker. It is the `__cause__` of the error in the parent."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text.rstrip()}\n"""'


def text_of(error: BaseException) -> str:
    """Return the message of an exception of the user, whose `__str__` may raise."""
    try:
        return str(error)
    except Exception as another:
        return f"(its text cannot be read: {type(another).__name__})"
