"""Holds the results of the rows of a batch, and the answer to a request. Letters: B rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.errors import PlanvecError
from planvec.rows.infos import Columns
from planvec.rows.space_arrays import copy_rows, raw, take_rows

Errors = dict[int, PlanvecError]  # row -> the error of that row
# rewards, `terminated`, `truncated`, numbers of steps: `[B]` each
Numbers = tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], NDArray[np.int64]]


@dataclass(slots=True)
class Outputs:
    """Holds the results of the rows of a batch: arrays `[B, ...]`, perhaps in shared memory."""

    # A field is None if the request does not ask for it, or if its size varies and it is sent by another way.

    new_states: np.ndarray | None = None  # `[B]` of the state dtype
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

    @property
    def numbers(self) -> Numbers:
        """The numbers of the rows of a request for steps or rollouts, which has all of them."""
        assert self.rewards is not None
        assert self.terminated is not None
        assert self.truncated is not None
        assert self.num_steps is not None
        return self.rewards, self.terminated, self.truncated, self.num_steps

    def part(self, rows: slice | NDArray[np.int64]) -> Outputs:
        """Return some of the rows: views for a slice, copies for an index array."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return Outputs(
            **{name: take_rows(rows_of, rows) for name, rows_of in fields.items() if rows_of is not None}
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
        if self.observations is not None:
            copy_rows(part.observations, self.observations, rows)
        if self.rewards is not None:
            for whole, values in zip(self.numbers, part.numbers, strict=True):
                whole[rows] = values
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
    waits: int = -1  # how often the process waited meanwhile, for anything but a core; -1: unknown
    # whether the arrays will be overwritten soon, so that the caller must copy them
    is_borrowed: bool = False
