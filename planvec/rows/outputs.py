"""Arrays that the rows of a batch are written into, and the answer to a request. Letters: B rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from planvec.errors import PlanvecError
from planvec.rows.infos import Columns
from planvec.rows.space_arrays import copy_rows, copy_tree, empty_rows, raw, take_rows

__all__ = ["Answer", "Errors", "Outputs"]

Errors = dict[int, PlanvecError]
"""Row -> the error that it failed with."""


@dataclass(slots=True)
class Outputs:
    """Holds what the rows of a batch give: arrays `[B, ...]`, perhaps in shared memory.

    Every field may be None: it was not asked for, or its size varies and it travels elsewhere.

    Attributes:
        new_states: Of the state dtype.
        observations: What `empty_rows` gives for the observation space.
        rewards: float64; the returns of rollouts.
        terminated: bool.
        truncated: bool.
        num_steps: int64.
        values: A list of B values of any kind: frames, attributes.
    """

    new_states: NDArray[Any] | None = None
    observations: Any = None
    rewards: NDArray[np.float64] | None = None
    terminated: NDArray[np.bool_] | None = None
    truncated: NDArray[np.bool_] | None = None
    num_steps: NDArray[np.int64] | None = None
    values: list[Any] | None = None

    @classmethod
    def of_steps(
        cls,
        num_rows: int,
        state_dtype: np.dtype[Any],
        observation_space: gymnasium.Space[Any] | None,
        return_state: bool = True,
    ) -> Outputs:
        """Return uninitialised arrays for steps, or without an observation space for rollouts."""
        space = observation_space
        return cls(
            new_states=np.empty(num_rows, state_dtype) if return_state else None,
            observations=None if space is None else empty_rows(space, num_rows),
            rewards=np.empty(num_rows),
            terminated=np.empty(num_rows, bool),
            truncated=np.empty(num_rows, bool),
            num_steps=np.empty(num_rows, np.int64),
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
        )

    def copy(self, with_states: bool, with_observations: bool) -> Outputs:
        """Return the outputs of steps in arrays of their own.

        Args:
            with_states: Whether new states are wanted.
            with_observations: Whether observations are.
        """
        assert self.rewards is not None
        assert self.terminated is not None
        assert self.truncated is not None
        assert self.num_steps is not None
        states, observations = None, None
        if with_states:
            assert self.new_states is not None
            dtype = self.new_states.dtype
            has_objects = dtype.hasobject
            states = self.new_states.copy() if has_objects else raw(self.new_states).copy().view(dtype)
        if with_observations:
            is_array = isinstance(self.observations, (np.ndarray, list))
            observations = self.observations.copy() if is_array else copy_tree(self.observations)
        return Outputs(
            states,
            observations,
            self.rewards.copy(),
            self.terminated.copy(),
            self.truncated.copy(),
            self.num_steps.copy(),
        )

    def put(self, rows: slice, part: Outputs) -> None:
        """Copy the outputs of some rows into their place.

        Args:
            rows: Where they belong here.
            part: Their outputs, with at least the fields that this has.
        """
        if self.new_states is not None:
            assert part.new_states is not None
            if self.new_states.dtype.hasobject:
                self.new_states[rows] = part.new_states
            else:
                raw(self.new_states[rows])[:] = raw(part.new_states)
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
    """The answer to a request, or to a part of one.

    Attributes:
        outputs: Of its rows.
        columns: Their infos.
        errors: The rows that failed and are flagged, by their numbers in the request.
        value: Of a request that has no rows.
        seconds: How long it took.
        is_borrowed: Whether the arrays will soon hold something else, and must be copied.
    """

    outputs: Outputs
    columns: Columns = field(default_factory=dict)
    errors: Errors = field(default_factory=dict)
    value: Any = None
    seconds: float = 0.0
    is_borrowed: bool = False
