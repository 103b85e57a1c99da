"""Sends exceptions from a worker to its parent as text.

A pickled exception may fail to pickle, fail to unpickle, or run code when it is unpickled.
"""

from __future__ import annotations

import pickle
import traceback
from dataclasses import dataclass
from typing import Any

from planvec import errors
from planvec.stepping import text_of


@dataclass(slots=True)
class Failure:
    """Describes an exception."""

    type_name: str  # name of its class
    detail: str  # its message
    text: str  # its formatted traceback
    row: int | None = None  # row of the chunk that raised it, or None
    action: Any = None  # action of that row, or its repr if it cannot be pickled; None without a row

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Return the description of a caught exception."""
        if not isinstance(error, errors.EnvError):
            text = "".join(traceback.format_exception(error))
            return cls(type(error).__name__, text_of(error), text)
        # The traceback of the cause: that of an `EnvError` would name the row from the start of the chunk.
        text = "".join(traceback.format_exception(error.__cause__ or error))
        action = error.action
        try:
            pickle.dumps(action)
        except Exception:
            action = repr(action)
        return cls("EnvError", error.detail, text, error.row, action)

    def to_error(self) -> errors.PlanvecError:
        """Return the error to raise in the parent. Its `__cause__` is the remote traceback."""
        known = getattr(errors, self.type_name, None)
        error: errors.PlanvecError
        if self.type_name == "EnvError":
            error = errors.EnvError(self.detail, row=self.row, action=self.action)
        elif isinstance(known, type) and issubclass(known, errors.PlanvecError):
            error = known(self.detail)
        else:
            error = errors.EnvError(f"{self.type_name}: {self.detail}")
        error.__cause__ = errors.RemoteTraceback(self.text)
        return error
