"""Holds the results of the rows of a batch, and the answer to a request. Letters: B rows."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import DTypeLike, NDArray

from planvec.errors import PlanvecError
from planvec.rows.infos import Columns
from planvec.rows.space_arrays import copy_rows, empty_rows, raw, take_rows

# -- Allocates large arrays from memory that earlier results no longer use.
#
# The first write to each page of new memory costs up to a microsecond, which would be more than the steps of
# a compiled environment. NumPy returns large arrays to the operating system, so that every batch would pay
# again.

_MIN_BYTES = 1 << 16  # smallest array that is recycled
_MAX_KEPT = 1 << 28  # bytes that are kept for later arrays
_MAX_ALIKE = 16  # blocks of one size that are kept

_Blocks = list[NDArray[np.uint8]]

_lock = threading.Lock()
# Size -> blocks of memory, the size used last at the end. An array is a view of its block, and keeps it in
# use.
_kept: OrderedDict[int, _Blocks] = OrderedDict()


def empty(shape: int | tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Return an uninitialised array, as `numpy.empty`. Its memory is reused once it is garbage."""
    new: NDArray[Any] = np.empty(shape, dtype)
    num_bytes = new.nbytes
    if num_bytes < _MIN_BYTES or num_bytes > _MAX_KEPT or new.dtype.hasobject or not _CAN_COUNT:
        return new
    # Not waited for: a signal handler may interrupt its holder, and a forked child may inherit it locked.
    if not _lock.acquire(blocking=False):
        return new
    try:
        block = _take(_rounded(num_bytes))
    finally:
        _lock.release()
    array: NDArray[Any] = block[:num_bytes].view(dtype).reshape(shape)
    return array


def _rounded(num_bytes: int) -> int:
    """Return a size of at most one eighth more, so that batches of about the same size share blocks."""
    step = 1 << max(num_bytes.bit_length() - 4, 0)
    return -(-num_bytes // step) * step


def _take(size: int) -> NDArray[np.uint8]:
    """Return an unused block of a size, or a new one."""
    blocks = _kept.setdefault(size, [])
    _kept.move_to_end(size)
    for index in range(len(blocks)):
        if _count(blocks, index) == _UNUSED:
            return blocks[index]
    block = np.empty(size, np.uint8)
    if len(blocks) < _MAX_ALIKE:
        blocks.append(block)
        while sum(size * len(alike) for size, alike in _kept.items()) > _MAX_KEPT:
            _kept.popitem(last=False)
    return block


def _count(blocks: _Blocks, index: int) -> int:
    """Return the number of references to a block, with those of this function and of the list."""
    return sys.getrefcount(blocks[index])


def _measure() -> tuple[int, bool]:
    """Return the count of a block that no array uses, and whether counts tell such blocks from others."""
    # The count of a block that only its list holds depends on the version of Python.
    blocks = [np.empty(8, np.uint8)]
    unused = _count(blocks, 0)
    array = blocks[0][:4].view(np.uint16).reshape(2, 1)
    used = _count(blocks, 0)
    del array
    has_gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    return unused, has_gil and used > unused == _count(blocks, 0)


_UNUSED, _CAN_COUNT = _measure()


Errors = dict[int, PlanvecError]  # row -> the error of that row


@dataclass(slots=True)
class Outputs:
    """Holds the results of the rows of a batch: arrays `[B, ...]`, perhaps in shared memory."""

    # A field is None if the request does not ask for it, or if its size varies and it is sent by another way.

    new_states: NDArray[Any] | None = None  # `[B]` of the state dtype
    # the tree of arrays, or the list, that `empty_rows` makes for the observation space
    observations: Any = None
    rewards: NDArray[np.float64] | None = None  # `[B]` float64; for rollouts, their returns
    terminated: NDArray[np.bool_] | None = None  # `[B]` bool
    truncated: NDArray[np.bool_] | None = None  # `[B]` bool
    num_steps: NDArray[np.int64] | None = None  # `[B]` int64, environment steps taken
    values: list[Any] | None = None  # A list of B values of any type, such as frames or attributes
    # the new states as blocks of bytes, which NumPy copies faster; None for objects, or if nothing was copied
    # yet
    state_blocks: NDArray[np.void] | None = None

    @classmethod
    def of_steps(
        cls,
        num_rows: int,
        state_dtype: np.dtype[Any],  # the dtype of one state
        observation_space: gymnasium.Space[Any] | None,
        return_state: bool = True,
    ) -> Outputs:
        """Return uninitialised arrays for the results of steps or rollouts."""
        space = observation_space
        states = empty(num_rows, state_dtype) if return_state else None
        return cls(
            new_states=states,
            observations=None if space is None else empty_rows(space, num_rows, empty),
            rewards=empty(num_rows, np.float64),
            terminated=empty(num_rows, np.bool_),
            truncated=empty(num_rows, np.bool_),
            num_steps=empty(num_rows, np.int64),
        )

    def part(self, rows: slice) -> Outputs:
        """Return some of the rows, as views."""
        return Outputs(
            new_states=None if self.new_states is None else self.new_states[rows],
            observations=None if self.observations is None else take_rows(self.observations, rows),
            rewards=None if self.rewards is None else self.rewards[rows],
            terminated=None if self.terminated is None else self.terminated[rows],
            truncated=None if self.truncated is None else self.truncated[rows],
            num_steps=None if self.num_steps is None else self.num_steps[rows],
            values=None if self.values is None else self.values[rows],
            state_blocks=None if self.state_blocks is None else self.state_blocks[rows],
        )

    def _blocks(self) -> NDArray[np.void]:
        """Return the new states as blocks of bytes."""
        if self.state_blocks is None:
            assert self.new_states is not None
            self.state_blocks = raw(self.new_states)
        return self.state_blocks

    def put(self, rows: slice, part: Outputs) -> None:
        """Copy the outputs of some rows into these. Every field that is set here must be set there, too."""
        if self.new_states is not None:
            assert part.new_states is not None
            if self.new_states.dtype.hasobject:
                self.new_states[rows] = part.new_states
            else:
                self._blocks()[rows] = part._blocks()
        if isinstance(self.observations, (np.ndarray, list)):
            self.observations[rows] = part.observations
        elif self.observations is not None:
            copy_rows(part.observations, take_rows(self.observations, rows))
        if self.rewards is not None:
            assert self.terminated is not None
            assert self.truncated is not None
            assert self.num_steps is not None
            assert part.num_steps is not None
            self.rewards[rows] = part.rewards
            self.terminated[rows] = part.terminated
            self.truncated[rows] = part.truncated
            self.num_steps[rows] = part.num_steps
        if self.values is not None:
            assert part.values is not None
            self.values[rows] = part.values


@dataclass(slots=True)
class Answer:
    """Holds the answer to a request, or to a part of one."""

    outputs: Outputs  # the results of its rows
    columns: Columns = field(default_factory=dict)  # the infos of its rows
    # the errors of the rows that failed and are flagged, by row of the request
    errors: Errors = field(default_factory=dict)
    value: Any = None  # the result of a request without rows
    seconds: float = 0.0  # time that the request took
    # whether the arrays will be overwritten soon, so that the caller must copy them
    is_borrowed: bool = False
