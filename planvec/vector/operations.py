"""Defines what the rows of one worker are asked to do, and the reply.

Rows are counted from the first row of the worker. Letters: B rows of the operation.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from planvec.rows import copy_tree
from planvec.vector.row_failure import RowFailure

__all__ = [
    "Apply",
    "Call",
    "GetStates",
    "Load",
    "Lose",
    "Observe",
    "Operation",
    "Reply",
    "Reset",
    "Restore",
    "Save",
    "SetAttribute",
    "SetStates",
    "Step",
]

T = TypeVar("T")

_ALL = slice(None)


@dataclass(slots=True, eq=False)
class Operation:
    """Asks for something of some rows.

    Attributes:
        rows: `[B]` intp; None for all rows.
    """

    rows: NDArray[np.intp] | None

    @property
    def selection(self) -> slice | NDArray[np.intp]:
        """The rows as an index into arrays of all rows."""
        return _ALL if self.rows is None else self.rows

    def own_arguments(self) -> None:
        """Replace the arguments by copies, which the caller cannot change."""


@dataclass(slots=True, eq=False)
class Step(Operation):
    """Steps rows.

    Attributes:
        actions: A tree of arrays `[B, ...]`, or a list of B actions.
    """

    actions: Any

    def own_arguments(self) -> None:
        self.actions = copy_tree(self.actions)


@dataclass(slots=True, eq=False)
class Reset(Operation):
    """Resets rows.

    Attributes:
        seeds: B seeds; None resets without one.
        options: B options, or None.
    """

    seeds: Sequence[int | None]
    options: Sequence[Mapping[str, Any] | None]

    def own_arguments(self) -> None:
        self.options = _copied(self.options)


@dataclass(slots=True, eq=False)
class Call(Operation):
    """Calls a method of environments, or reads an attribute if it cannot be called.

    Attributes:
        name: The name, looked up through the wrappers.
        arguments: Positional arguments.
        keywords: Keyword arguments.
        only_reads: Whether it only reads an attribute, which may be a function.
    """

    name: str
    arguments: tuple[Any, ...] = ()
    keywords: dict[str, Any] = field(default_factory=dict)
    only_reads: bool = False

    def own_arguments(self) -> None:
        self.arguments, self.keywords = _copied((self.arguments, self.keywords))


@dataclass(slots=True, eq=False)
class Apply(Operation):
    """Calls a function with each environment, which it must not change.

    Attributes:
        function: The function.
    """

    function: Callable[[Any], Any]


@dataclass(slots=True, eq=False)
class SetAttribute(Operation):
    """Sets an attribute.

    Attributes:
        name: The name.
        values: B values.
        on_outermost: Whether to set it on the outermost wrapper, instead of where it is found.
    """

    name: str
    values: Sequence[Any]
    on_outermost: bool = False

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
    """Puts rows into states.

    Attributes:
        states: `[B]`.
    """

    states: NDArray[Any]


@dataclass(slots=True, eq=False)
class Save(Operation):
    """Asks for a list of `SavedRows`, which holds all rows."""


@dataclass(slots=True, eq=False)
class Load(Operation):
    """Puts all rows into what `Save` returned and a file has kept, which somebody else may have made.

    Attributes:
        parts: The list of `SavedRows`.
    """

    parts: Any


@dataclass(slots=True, eq=False)
class Restore(Operation):
    """Puts all rows into a snapshot, in a replacement of their worker.

    Attributes:
        snapshot: What `Reply.snapshot` held.
    """

    snapshot: bytes


@dataclass(slots=True, eq=False)
class Lose(Operation):
    """Marks rows whose episodes were lost with their worker.

    Attributes:
        observations: The last observation of each row; a tree of arrays `[B, ...]`, or a list.
    """

    observations: Any


@dataclass(slots=True)
class Reply:
    """Holds the results that do not lie in `RowArrays`.

    Attributes:
        infos: The infos of the rows; see `vector.infos`. None if all are empty.
        errors: Position in the operation -> what the environment of that row raised.
        observations: B observations, if their size varies; else None.
        rewards: `[B, ...]`, if they are not float64 numbers; else None.
        value: The results of calls, or states.
        snapshot: What `Save` would return after the operation, pickled; None if it was not saved.
        inexact: Why the states of the environments cannot be saved any more; "" if they can.
        shared: What the environments have changed that all of this process share; "" if nothing was noticed.
        changes_settings: Whether a call has changed what no state contains.
        seconds: Time that the operation took in the worker.
    """

    infos: Any = None
    errors: dict[int, RowFailure] = field(default_factory=dict)
    observations: list[Any] | None = None
    rewards: NDArray[Any] | None = None
    value: Any = None
    snapshot: bytes | None = None
    inexact: str = ""
    shared: str = ""
    changes_settings: bool = False
    seconds: float = 0.0

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
