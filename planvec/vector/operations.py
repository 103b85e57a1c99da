"""Defines what rows are asked: an operation, its chunks on the workers, the reply, and the call of the user.

    Engine.begin -> RowsCall -- one Chunk per worker --> ResidentEnvs.<name of the operation> -> Reply

Letters: N environments, B rows of an operation.
"""

from __future__ import annotations

import contextlib
import copy
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from planvec.backends import ServedRequest, load_pickled
from planvec.errors import EnvError, RemoteTraceback
from planvec.rows import copy_tree
from planvec.stepping import text_of
from planvec.vector.arrays import RowArrays, Rows, part_of
from planvec.vector.env_row import InfoForm, join_infos

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


# -- Defines operations --------------------------------------------------------------------------------------

_ALL = slice(None)

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

    def own_arguments(self) -> None:
        """Replace the arguments by copies, which the caller cannot change."""
        if self.name == "step" and self.per_row:
            self.per_row = (copy_tree(self.per_row[0]),)
        else:
            with contextlib.suppress(Exception):  # classes of the user may refuse; sending them may work
                self.per_row, self.common = copy.deepcopy((self.per_row, self.common))


@dataclass(slots=True)
class Reply:
    """Holds the results that do not lie in `RowArrays`."""

    infos: Any = None  # The infos of the rows; see `vector.env_row`. None if all are empty.
    # position in the operation -> what the environment of that row raised
    errors: dict[int, RowFailure] = field(default_factory=dict)
    observations: list[Any] | None = None  # B observations, if their size varies; else None
    rewards: NDArray[Any] | None = None  # `[B, ...]`, if they are not float64 numbers; else None
    value: Any = None  # the results of calls, or states
    # what `save` would return after the operation, pickled; None if it was not saved
    snapshot: bytes | None = None
    inexact: str = ""  # why the states of the environments cannot be saved any more; "" if they can
    # what the environments have changed that all of this process share; "" if nothing was noticed
    shared: str = ""
    changes_settings: bool = False  # whether a call has changed what no state contains
    seconds: float = 0.0  # time that the operation took in the worker

    @property
    def replaces_arrays(self) -> bool:
        """Whether it has observations or rewards, in place of those in arrays."""
        return self.observations is not None or self.rewards is not None

    @property
    def is_plain(self) -> bool:
        """Whether all results of a step lie in arrays."""
        return not (self.infos is not None or self.replaces_arrays or self.errors)


# -- Defines chunks, and what performs them ------------------------------------------------------------------

# time of a part of the rows of a worker that are done one after another: many times what a message costs
_PART_SECONDS = 2e-3


class Chunk(ServedRequest):
    """Holds an operation until it is done, and the arrays that its results go to."""

    # `rows`: `[B]`, counted from the first row of the vector environment. `out`: receives the results, `[B]`;
    # None if the operation has none, or if the caller wants none.

    def __init__(
        self, operation: Operation, rows: NDArray[np.intp], out: RowArrays | None, is_internal: bool = False
    ) -> None:
        self.operation = operation
        self.rows = rows
        self.out = out
        self.is_internal = is_internal  # whether it belongs to the recovery of a worker
        # `has_actions_in_memory`: whether the worker may still read its actions in the shared memory.
        # `is_abandoned`: whether the caller wants no result any more
        self.is_abandoned = self.has_actions_in_memory = False
        self.num_exits = 0.0  # how often a worker exited while it worked on this chunk
        self.writer: Callable[[Chunk], bytes] | None = None  # writes the operation for a worker
        # the operation as bytes; None if its actions go into the shared memory
        self.payload: bytes | None = None
        self.reply: Reply | None = None  # the results that are no arrays; None until it is done
        # What ended the operation: the crash of the worker, for example. None if there is a reply.
        self.error: Exception | None = None
        self.on_done: Callable[[], None] | None = None

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

    @property
    def has_errors(self) -> bool:
        """Whether something failed."""
        reply = self.reply
        return self.error is not None or (reply is not None and bool(reply.errors))

    def errors(self) -> dict[int, Exception]:
        """Return what failed: row -> the error of its environment or its worker."""
        if self.error is not None:
            row = getattr(self.error, "row", None)
            return {int(self.rows[0]) if row is None else row: self.error}
        failures = self.reply.errors if self.reply is not None else {}
        return {int(self.rows[index]): failure.to_error() for index, failure in sorted(failures.items())}

    def take_failed_rows(self) -> NDArray[np.intp]:
        """Return the rows without a result, and forget their errors."""
        if self.reply is None:
            return self.rows
        failed, self.reply.errors = sorted(self.reply.errors), {}
        return self.rows[failed]

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


class RowGroup(Protocol):
    """Performs operations on consecutive rows of a vector environment."""

    first_row: int  # index of the first row
    num_rows: int
    # time that a step of one row takes in the worker, the latest measurement; 0 at first
    seconds_per_step: float

    def prepare(self, chunk: Chunk) -> None:
        """Prepare an operation, so that `submit` raises no error."""
        ...

    def submit(self, chunk: Chunk) -> None:
        """Begin an operation that is prepared. It may be done at once."""
        ...


def rows_per_part(group: RowGroup) -> int:
    """Return how many rows of a group are done at once, so that none waits long for the others."""
    if not group.seconds_per_step:
        return group.num_rows
    return max(1, min(group.num_rows, int(_PART_SECONDS / group.seconds_per_step)))


# -- Defines the calls of the user ---------------------------------------------------------------------------


class RowsResult(NamedTuple):
    """Holds the results of rows."""

    observations: Any  # A tree of arrays `[B, ...]`, or a list if the size of observations varies
    rewards: NDArray[Any]  # `[B]`, or `[B, ...]` if rewards are vectors
    terminated: NDArray[np.bool_]  # `[B]` bool
    truncated: NDArray[np.bool_]  # `[B]` bool
    infos: Any  # in the form of the face; `{}` if all are empty


class RowsCall:
    """Holds the chunks of one call, and joins their results when all are done."""

    # `out`: the results, `[B]`, in the order of the chunks; None: they are joined from those of the chunks.
    # `order`: positions in the chunks of the rows to return, in this order; None: all.

    def __init__(
        self,
        chunks: Sequence[Chunk],
        out: RowArrays | None = None,
        order: NDArray[np.intp] | None = None,
    ) -> None:
        self.chunks = chunks
        self.out = out
        self.order = order

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
            if chunk.has_errors:
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
        values = [value for reply in self._replies() for value in reply.value]
        return values if self.order is None else [values[position] for position in self.order]

    def result(self, form: InfoForm) -> RowsResult:
        """Return the results of the rows, in the order of the caller. Raises the errors of rows."""
        self.raise_errors()
        order = self.order
        replies = self._replies()
        out = self.out
        if out is None or any(reply.replaces_arrays for reply in replies):
            out = RowArrays.joined([chunk.out for chunk in self.chunks if chunk.out is not None])
        observations, rewards = out.observations, out.rewards
        infos: Any = {}
        if any(reply.infos is not None for reply in replies):
            sizes = [len(chunk.rows) for chunk in self.chunks]
            infos = join_infos(list(zip([r.infos for r in replies], sizes, strict=True)), form, order)
        if order is None:
            return RowsResult(observations, rewards, out.terminated, out.truncated, infos)
        observations = part_of(observations, order)
        return RowsResult(observations, rewards[order], out.terminated[order], out.truncated[order], infos)

    def _replies(self) -> list[Reply]:
        return [chunk.reply for chunk in self.chunks if chunk.reply is not None]


class DoneCall(RowsCall):
    """Holds a step of all rows that was done at once, whose results lie in arrays."""

    def __init__(self, out: RowArrays) -> None:
        self.chunks, self._out = (), out

    def result(self, form: InfoForm) -> RowsResult:
        out = self._out
        return RowsResult(out.observations, out.rewards, out.terminated, out.truncated, {})
