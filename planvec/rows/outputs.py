"""Holds the results of the rows of a batch, and the answer to a request. Letters: B rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from planvec.errors import PlanvecError
from planvec.rows.infos import Columns
from planvec.rows.recycled import empty
from planvec.rows.space_arrays import copy_rows, empty_rows, raw, take_rows

__all__ = ["Answer", "Errors", "Outputs"]

Errors = dict[int, PlanvecError]
"""Row -> the error of that row."""


@dataclass(slots=True)
class Outputs:
    """Holds the results of the rows of a batch: arrays `[B, ...]`, perhaps in shared memory.

    A field is None if the request does not ask for it, or if its size varies and it is sent by another way.

    Attributes:
        new_states: `[B]` of the state dtype.
        observations: The tree of arrays, or the list, that `empty_rows` makes for the observation space.
        rewards: `[B]` float64; for rollouts, their returns.
        terminated: `[B]` bool.
        truncated: `[B]` bool.
        num_steps: `[B]` int64, environment steps taken.
        values: A list of B values of any type, such as frames or attributes.
        state_blocks: The new states as blocks of bytes, which NumPy copies faster; None for objects, or if
            nothing was copied yet.
    """

    new_states: NDArray[Any] | None = None
    observations: Any = None
    rewards: NDArray[np.float64] | None = None
    terminated: NDArray[np.bool_] | None = None
    truncated: NDArray[np.bool_] | None = None
    num_steps: NDArray[np.int64] | None = None
    values: list[Any] | None = None
    state_blocks: NDArray[np.void] | None = None

    @classmethod
    def of_steps(
        cls,
        num_rows: int,
        state_dtype: np.dtype[Any],
        observation_space: gymnasium.Space[Any] | None,
        return_state: bool = True,
    ) -> Outputs:
        """Return uninitialised arrays for the results of steps or rollouts.

        Args:
            num_rows: B.
            state_dtype: The dtype of one state.
            observation_space: The space of one observation; None for rollouts, which return none.
            return_state: Whether there are new states.
        """
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
        """Copy the outputs of some rows into these.

        Args:
            rows: The rows to overwrite.
            part: The outputs of these rows. Every field that is set here must be set there too.
        """
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
    """Holds the answer to a request, or to a part of one.

    Attributes:
        outputs: The results of its rows.
        columns: The infos of its rows.
        errors: The errors of the rows that failed and are flagged, by row of the request.
        value: The result of a request without rows.
        seconds: Time that the request took.
        is_borrowed: Whether the arrays will be overwritten soon, so that the caller must copy them.
    """

    outputs: Outputs
    columns: Columns = field(default_factory=dict)
    errors: Errors = field(default_factory=dict)
    value: Any = None
    seconds: float = 0.0
    is_borrowed: bool = False
