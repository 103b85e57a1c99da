"""Sends exceptions of environments to the parent, where they are raised as what they were."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

import cloudpickle

from planvec.backends import load_pickled
from planvec.errors import EnvError, RemoteTraceback
from planvec.stepping import text_of


@dataclass(slots=True)
class RowFailure:
    """Describes an exception that one environment has raised."""

    type_name: str  # name of its class
    detail: str  # its message
    text: str  # its formatted traceback
    pickled: bytes | None  # its class, arguments and attributes, pickled; None if they cannot be

    @classmethod
    def of(cls, error: BaseException) -> RowFailure:
        """Return the description of a caught exception."""
        text = "".join(traceback.format_exception(error))
        return cls(type(error).__name__, text_of(error), text, _pickle(error))

    def to_error(self) -> Exception:
        """Return the exception to raise, with the remote traceback as its cause."""
        # Its constructor is not called: it may take other arguments than the exception has kept. An exception
        # that cannot be pickled, or that would end this process (`SystemExit`), becomes an `EnvError`.
        error = self._rebuild()
        if error is None:
            error = EnvError(f"{self.type_name}: {self.detail}")
        error.__cause__ = RemoteTraceback(self.text)
        return error

    def _rebuild(self) -> Exception | None:
        if self.pickled is None:
            return None
        try:
            error_class, arguments, attributes = load_pickled(self.pickled)
            error = error_class.__new__(error_class, *arguments)
            error.args = arguments
            error.__dict__.update(attributes)
        except Exception:  # its class may do anything
            return None
        return error if isinstance(error, Exception) else None


def _pickle(error: BaseException) -> bytes | None:
    if not isinstance(error, Exception):
        return None
    attributes = {name: value for name, value in vars(error).items() if name != "__notes__"}
    for kept in (attributes, {}):
        try:
            data: bytes = cloudpickle.dumps((type(error), error.args, kept))
            load_pickled(data)
        except Exception:
            continue
        return data
    return None
