"""Defines what the rows of one worker are asked to do, and the reply.

Rows are counted from the first row of the worker. Letters: B rows of the operation.
"""

from __future__ import annotations

import copy
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from planvec.backends import load_pickled
from planvec.errors import EnvError, RemoteTraceback
from planvec.rows import copy_tree
from planvec.stepping import text_of

# -- Sends exceptions of environments to the parent, where they are raised as what they were -----------------


class OnCrash(Enum):
    """Says what happens to the rows of a worker that exits."""

    RESTORE = "restore"
    RESET = "reset"
    RAISE = "raise"


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


T = TypeVar("T")

_ALL = slice(None)


@dataclass(slots=True, eq=False)
class Operation:
    """Asks for something of some rows."""

    rows: NDArray[np.intp] | None  # `[B]` intp; None for all rows

    @property
    def selection(self) -> slice | NDArray[np.intp]:
        """The rows as an index into arrays of all rows."""
        return _ALL if self.rows is None else self.rows

    def own_arguments(self) -> None:
        """Replace the arguments by copies, which the caller cannot change."""


@dataclass(slots=True, eq=False)
class Step(Operation):
    """Steps rows."""

    actions: Any  # A tree of arrays `[B, ...]`, or a list of B actions

    def own_arguments(self) -> None:
        self.actions = copy_tree(self.actions)


@dataclass(slots=True, eq=False)
class Reset(Operation):
    """Resets rows."""

    seeds: Sequence[int | None]  # B seeds; None resets without one
    options: Sequence[Mapping[str, Any] | None]  # B options, or None

    def own_arguments(self) -> None:
        self.options = _copied(self.options)


@dataclass(slots=True, eq=False)
class Call(Operation):
    """Calls a method of environments, or reads an attribute if it cannot be called."""

    name: str  # the name, looked up through the wrappers
    arguments: tuple[Any, ...] = ()  # positional arguments
    keywords: dict[str, Any] = field(default_factory=dict)  # keyword arguments
    only_reads: bool = False  # whether it only reads an attribute, which may be a function

    def own_arguments(self) -> None:
        self.arguments, self.keywords = _copied((self.arguments, self.keywords))


@dataclass(slots=True, eq=False)
class Apply(Operation):
    """Calls a function with each environment, which it must not change."""

    function: Callable[[Any], Any]


@dataclass(slots=True, eq=False)
class SetAttribute(Operation):
    """Sets an attribute."""

    name: str
    values: Sequence[Any]  # B values
    on_outermost: bool = False  # whether to set it on the outermost wrapper, instead of where it is found

    def own_arguments(self) -> None:
        self.values = _copied(self.values)


@dataclass(slots=True, eq=False)
class Observe(Operation):
    """Asks for the latest observations of rows."""


@dataclass(slots=True, eq=False)
class GetStates(Operation):
    """Asks for the states of rows: `(states [B], StateFormat)`."""


@dataclass(slots=True, eq=False)
class SetStates(Operation):
    """Puts rows into states."""

    states: NDArray[Any]  # `[B]`


@dataclass(slots=True, eq=False)
class Save(Operation):
    """Asks for a list of `SavedRows`, which holds all rows."""


@dataclass(slots=True, eq=False)
class Load(Operation):
    """Puts all rows into what `Save` returned and a file has kept, which somebody else may have made."""

    parts: Any  # the list of `SavedRows`


@dataclass(slots=True, eq=False)
class Restore(Operation):
    """Puts all rows into a snapshot, in a replacement of their worker."""

    snapshot: bytes  # what `Reply.snapshot` held


@dataclass(slots=True, eq=False)
class Lose(Operation):
    """Marks rows whose episodes were lost with their worker."""

    observations: Any  # the last observation of each row; a tree of arrays `[B, ...]`, or a list


@dataclass(slots=True)
class Reply:
    """Holds the results that do not lie in `RowArrays`."""

    infos: Any = None  # The infos of the rows; see `vector.env_row`. None if all are empty.
    # position in the operation -> what the environment of that row raised
    errors: dict[int, RowFailure] = field(default_factory=dict)
    observations: list[Any] | None = None  # B observations, if their size varies; else None
    rewards: NDArray[Any] | None = None  # `[B, ...]`, if they are not float64 numbers; else None
    value: Any = None  # the results of calls, or states
    # what `Save` would return after the operation, pickled; None if it was not saved
    snapshot: bytes | None = None
    inexact: str = ""  # why the states of the environments cannot be saved any more; "" if they can
    # what the environments have changed that all of this process share; "" if nothing was noticed
    shared: str = ""
    changes_settings: bool = False  # whether a call has changed what no state contains
    seconds: float = 0.0  # time that the operation took in the worker

    @property
    def is_plain(self) -> bool:
        """Whether all results of a step lie in arrays."""
        return self.infos is None and self.rewards is None and self.observations is None and not self.errors


def _copied(value: T) -> T:
    """Return a deep copy; the value itself if it cannot be copied."""
    try:
        return copy.deepcopy(value)
    except Exception:  # classes of the user may refuse; sending it may work nevertheless
        return value
