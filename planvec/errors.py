"""The exception tree: every error that planvec raises on purpose derives from `PlanvecError`."""

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
    """Base class of every error in planvec."""


class InvalidBatchError(PlanvecError, ValueError):
    """An argument of a batch call is wrong; nothing was sent.

    The message reads "actions: expected shape (256, 2), got (256,)".
    """


class UnsupportedEnvError(PlanvecError):
    """The environment cannot be saved and restored faithfully; the message names what to do."""


class _RowError(PlanvecError):
    """An error that may belong to one row of a batch.

    Attributes:
        detail: What went wrong.
        row: Index in the batch of the row that failed, or None where the call had no rows.
        action: The action of that row, or None.
    """

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
    """The environment itself raised, or returned something that its spaces do not allow.

    Attributes:
        detail: What went wrong.
        row: Index in the batch of the row that failed, or None where the call had no rows.
        action: The action of that row, or None.
    """


class WorkerStartError(PlanvecError):
    """A worker process did not come up: its factory raised, hung, or could not be sent."""


class WorkerCrashedError(_RowError):
    """A worker process died (a signal, or an exit) over its work, more often than `max_restarts`.

    Attributes:
        detail: Which worker, how it ended (the signal or the exit code), and over what.
        row: Index in the batch of the row that it died over, or None where the call had no rows.
        action: The action of that row, or None.
    """


class WorkerTimeoutError(_RowError, TimeoutError):
    """An answer did not come in time: a chunk took longer than `timeout`, or a promise was not kept yet.

    Attributes:
        detail: What was waited for.
        row: Index in the batch of the row at which a chunk was given up, or None.
        action: The action of that row, or None.
    """


class ClosedError(PlanvecError):
    """The object was used after `close()`."""


class RemoteTraceback(PlanvecError):  # noqa: N818 - it is the text of one, no error of its own
    """The text of a traceback from a worker; the `__cause__` of the error raised in the parent."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text.rstrip()}\n"""'
