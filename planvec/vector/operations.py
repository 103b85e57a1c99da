"""Defines what rows are asked: an operation, its chunks on the workers, the reply, and the call of the user.

    Engine.begin -> RowsCall -- one Chunk per worker --> ResidentEnvs.<name of the operation> -> Reply

Letters: N environments, B rows of an operation.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.backends import ServedRequest, load_pickled
from planvec.errors import EnvError, RemoteTraceback, text_of
from planvec.rows import empty_rows, take_rows
from planvec.vector.env_row import InfoForm, join_infos

# -- Holds the results of rows as arrays, in the shared memory of a worker or in this process ----------------

Rows = slice | NDArray[np.intp]  # selects rows of arrays

_ALL = slice(None)
_NONE, _FALSE = np.zeros(0), np.zeros(0, bool)


def part_of(values: object, rows: Rows) -> Any:
    """Return rows of a list, or of a tree of arrays."""
    if not isinstance(values, list):
        return take_rows(values, rows)
    return values[rows] if isinstance(rows, slice) else [values[row] for row in rows]


@dataclass(slots=True)
class RowArrays:
    """Holds one element per environment."""

    # A tree of arrays `[N, ...]`, or a list if the size of observations varies; None as long as the arrays
    # are not made (`unmade`)
    observations: Any
    rewards: NDArray[np.float64]  # `[N]` float64
    terminated: NDArray[np.bool_]  # `[N]` bool
    truncated: NDArray[np.bool_]  # `[N]` bool

    @classmethod
    def unmade(cls) -> RowArrays:
        """Return a holder for arrays that `make` makes, or that are made from lists, which is faster."""
        return cls(None, _NONE, _FALSE, _FALSE)

    def make(
        self, observation_space: Space[object], num_rows: int, allocate: Callable[..., Any] = np.empty
    ) -> None:
        """Make the arrays, each by `allocate(shape, dtype=...)`, if that was not done."""
        if self.observations is None:
            self.observations = empty_rows(observation_space, num_rows, allocate)
            self.rewards = allocate(num_rows, dtype=np.float64)
            self.terminated = allocate(num_rows, dtype=np.bool_)
            self.truncated = allocate(num_rows, dtype=np.bool_)

    @classmethod
    def joined(cls, parts: Sequence[RowArrays]) -> RowArrays:
        """Return the results of several parts, one after another."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            _concatenated([part.observations for part in parts]),
            np.concatenate([part.rewards for part in parts]),
            np.concatenate([part.terminated for part in parts]),
            np.concatenate([part.truncated for part in parts]),
        )

    def results(self, rows: Rows) -> RowArrays:
        """Return the results of some rows, as views for a slice."""
        observations = part_of(self.observations, rows)
        return RowArrays(observations, self.rewards[rows], self.terminated[rows], self.truncated[rows])


def _concatenated(trees: Sequence[Any]) -> Any:
    first = trees[0]
    if isinstance(first, dict):
        return {key: _concatenated([tree[key] for tree in trees]) for key in first}
    if isinstance(first, tuple):
        return tuple(_concatenated(parts) for parts in zip(*trees, strict=True))
    if isinstance(first, list):
        return [row for tree in trees for row in tree]
    return np.concatenate(trees)


# -- Sends exceptions of environments to the parent, where they are raised as what they were -----------------


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
        pickled = None
        if isinstance(error, Exception):
            attributes = {name: value for name, value in vars(error).items() if name != "__notes__"}
            for kept in (attributes, {}):
                try:
                    pickled = cloudpickle.dumps((type(error), error.args, kept))
                    load_pickled(pickled)
                    break
                except Exception:
                    pickled = None
        text = "".join(traceback.format_exception(error))
        return cls(type(error).__name__, text_of(error), text, pickled)

    def to_error(self) -> Exception:
        """Return the exception to raise, with the remote traceback as its cause."""
        # Its constructor is not called: it may take other arguments than the exception has kept. An exception
        # that cannot be pickled, or that would end this process (`SystemExit`), becomes an `EnvError`.
        error: object = None
        if self.pickled is not None:
            with contextlib.suppress(Exception):  # its class may do anything
                error_class, arguments, attributes = load_pickled(self.pickled)
                rebuilt = error_class.__new__(error_class, *arguments)
                rebuilt.args = arguments
                rebuilt.__dict__.update(attributes)
                error = rebuilt
        raised = error if isinstance(error, Exception) else EnvError(f"{self.type_name}: {self.detail}")
        raised.__cause__ = RemoteTraceback(self.text)
        return raised


# -- Defines operations --------------------------------------------------------------------------------------

# names of the operations whose results are observations, rewards and flags
WITH_ARRAYS = frozenset(("step", "reset", "observe", "set_states", "load"))


class OnCrash(Enum):
    """Says what happens to the rows of a worker that exits."""

    RESTORE = "restore"
    RESET = "reset"
    RAISE = "raise"


@dataclass(slots=True, eq=False)
class Operation:
    """Asks something of some rows: the method of `ResidentEnvs` with this name performs it."""

    name: str  # "step", for example
    rows: NDArray[np.intp] | None  # `[B]` intp, counted from the first row of the worker; None for all rows
    # Arguments with one element per row: lists `[B]`, or trees of arrays `[B, ...]`. None if those of a step
    # lie in the shared memory.
    per_row: tuple[Any, ...] | None = ()
    common: tuple[Any, ...] = ()  # arguments that all rows have in common

    @property
    def selection(self) -> Rows:
        """The rows as an index into arrays of all rows."""
        return _ALL if self.rows is None else self.rows


@dataclass(slots=True)
class Reply:
    """Holds the results that do not lie in `RowArrays`."""

    infos: Any = None  # The infos of the rows; see `vector.env_row`. None if all are empty.
    # position in the operation -> what the environment of that row raised
    errors: dict[int, RowFailure] = field(default_factory=dict)
    observations: list[Any] | None = None  # B observations, if their size varies; else None
    rewards: np.ndarray | None = None  # `[B, ...]`, if they are not float64 numbers; else None
    value: Any = None  # the results of calls, or states
    # what `save` would return after the operation, pickled; None if it was not saved
    snapshot: bytes | None = None
    inexact: str = ""  # why the states of the environments cannot be saved any more; "" if they can
    # what the environments have changed that all of this process share; "" if nothing was noticed
    shared: str = ""
    changes_settings: bool = False  # whether a call has changed what no state contains
    seconds: float = 0.0  # time that the operation took in the worker

    @property
    def is_plain(self) -> bool:
        """Whether all results of a step lie in arrays."""
        return self.infos is None and self.observations is None and self.rewards is None and not self.errors


# -- Defines chunks ------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Chunk(ServedRequest):
    """Holds an operation until it is done, and the arrays that its results go to."""

    operation: Operation
    rows: NDArray[np.intp]  # `[B]`, counted from the first row of the vector environment
    out: RowArrays | None  # receives the results, `[B]`; None if the operation has none, or nobody wants them
    is_internal: bool = False  # whether it belongs to the recovery of a worker
    is_abandoned: bool = False  # whether the caller wants no result any more
    has_actions_in_memory: bool = False  # whether the worker may still read its actions in the shared memory
    num_exits: float = 0.0  # how often a worker exited while it worked on this chunk
    writer: Callable[[Chunk], bytes] | None = None  # writes the operation for a worker
    payload: bytes | None = None  # the operation as bytes; None if its actions go into the shared memory
    reply: Reply | None = None  # the results that are no arrays; None until it is done
    error: Exception | None = None  # what ended it, such as the crash of the worker; None if there is a reply
    on_done: Callable[[], None] | None = None

    @property
    def num_rows(self) -> int:
        return len(self.rows)

    @property
    def verb(self) -> str:  # type: ignore[override]
        return self.operation.name

    def write(self) -> bytes:
        assert self.writer is not None
        return self.writer(self)

    @property
    def is_done(self) -> bool:
        """Whether there is a reply or an error."""
        return self.reply is not None or self.error is not None

    def errors(self) -> dict[int, Exception]:
        """Return what failed: row -> the error of its environment or its worker."""
        if self.error is not None:
            row = getattr(self.error, "row", None)
            return {int(self.rows[0]) if row is None else row: self.error}
        if self.reply is None or not self.reply.errors:
            return {}
        return {int(self.rows[index]): error.to_error() for index, error in sorted(self.reply.errors.items())}

    def finish(self, reply: Reply | None, error: Exception | None = None) -> None:
        """End the operation."""
        self.reply, self.error = reply, error
        if self.out is not None and reply is not None:
            if reply.observations is not None:
                self.out.observations = reply.observations
            if reply.rewards is not None:
                self.out.rewards = reply.rewards
        on_done, self.on_done = self.on_done, None  # it refers to the call: arrays would outlive it
        if on_done is not None:
            on_done()


# -- Defines the calls of the user ---------------------------------------------------------------------------


class RowsResult(NamedTuple):
    """Holds the results of rows."""

    observations: Any  # A tree of arrays `[B, ...]`, or a list if the size of observations varies
    rewards: np.ndarray  # `[B]`, or `[B, ...]` if rewards are vectors
    terminated: NDArray[np.bool_]  # `[B]` bool
    truncated: NDArray[np.bool_]  # `[B]` bool
    infos: Any  # in the form of the face; `{}` if all are empty


@dataclass(slots=True, eq=False)
class RowsCall:
    """Holds the chunks of one call, and joins their results when all are done."""

    chunks: Sequence[Chunk]
    # the results, `[B]`, in the order of the chunks; None: they are joined from those of the chunks
    out: RowArrays | None = None
    # positions in the chunks of the rows to return, in this order; None: all
    order: NDArray[np.intp] | None = None

    def is_done(self) -> bool:
        """Return whether all chunks are done."""
        return all(chunk.is_done for chunk in self.chunks)

    def abandon(self) -> None:
        """Give up the results. The operations are performed nevertheless."""
        for chunk in self.chunks:
            chunk.is_abandoned = True

    def errors(self) -> dict[int, Exception]:
        """Return what failed: row -> the error of its environment or its worker."""
        errors: dict[int, Exception] = {}
        for chunk in self.chunks:
            errors |= chunk.errors()
        return errors

    def raise_errors(self) -> None:
        """Raise the error of the first row that failed, with a note of the others."""
        errors = self.errors()
        if errors:
            row, *others = sorted(errors)
            errors[row].add_note(f"raised by environment {row}" + (f"; so did {others}" if others else ""))
            raise errors[row]

    def values(self) -> list[Any]:
        """Return the values of all rows, in the order of the caller. Raises the errors of rows."""
        self.raise_errors()
        values = [value for chunk in self.chunks if chunk.reply is not None for value in chunk.reply.value]
        return values if self.order is None else [values[position] for position in self.order]

    def result(self, form: InfoForm) -> RowsResult:
        """Return the results of the rows, in the order of the caller. Raises the errors of rows."""
        out, order = self.out, self.order
        if not self.chunks and out is not None:  # a step that was done at once, whose results lie in arrays
            return RowsResult(out.observations, out.rewards, out.terminated, out.truncated, {})
        self.raise_errors()
        replies = [chunk.reply for chunk in self.chunks if chunk.reply is not None]
        if out is None or any(r.observations is not None or r.rewards is not None for r in replies):
            out = RowArrays.joined([chunk.out for chunk in self.chunks if chunk.out is not None])
        infos: Any = {}
        if any(reply.infos is not None for reply in replies):
            sizes = [len(chunk.rows) for chunk in self.chunks]
            infos = join_infos(list(zip([r.infos for r in replies], sizes, strict=True)), form, order)
        if order is not None:
            out = out.results(order)
        return RowsResult(out.observations, out.rewards, out.terminated, out.truncated, infos)
