"""An exception on its way from a worker to its parent.

It travels as text: an exception may fail to pickle, fail to unpickle, or run code while doing so.
"""

from __future__ import annotations

import pickle
import traceback
from dataclasses import dataclass
from typing import Any

from planvec import errors

__all__ = ["Failure"]


@dataclass(slots=True)
class Failure:
    """What is left of an exception.

    Attributes:
        type_name: The name of its class.
        detail: Its message.
        text: Its traceback.
        row: The row of the chunk that it came from, or None.
        action: That row's action, or its repr where it cannot be sent.
    """

    type_name: str
    detail: str
    text: str
    row: int | None = None
    action: Any = None

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Take down an exception that was just caught."""
        if not isinstance(error, errors.EnvError):
            text = "".join(traceback.format_exception(error))
            return cls(type(error).__name__, str(error), text)
        # Of the environment's own error: the worker counts its rows from 0.
        text = "".join(traceback.format_exception(error.__cause__ or error))
        action = error.action
        try:
            pickle.dumps(action)
        except Exception:
            action = repr(action)
        return cls("EnvError", error.detail, text, error.row, action)

    def to_error(self, first_row: int = 0) -> errors.PlanvecError:
        """The error to raise in the parent, with the remote traceback as its cause.

        Args:
            first_row: Where the chunk begins in the batch.
        """
        known = getattr(errors, self.type_name, None)
        error: errors.PlanvecError
        if self.type_name == "EnvError":
            row = None if self.row is None else self.row + first_row
            error = errors.EnvError(self.detail, row=row, action=self.action)
        elif isinstance(known, type) and issubclass(known, errors.PlanvecError):
            error = known(self.detail)
        else:
            error = errors.EnvError(f"{self.type_name}: {self.detail}")
        error.__cause__ = errors.RemoteTraceback(self.text)
        return error
