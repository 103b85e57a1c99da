"""Where the rows of a batch go, and the user's form of what has come out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from planvec.errors import PlanvecError
from planvec.rows import space_arrays
from planvec.rows.infos import Columns, vector_infos
from planvec.rows.results import Rollouts, Transitions

__all__ = ["Errors", "Outputs"]

Errors = dict[int, PlanvecError]
"""Row -> why it failed."""


@dataclass(slots=True)
class Outputs:
    """Where the rows of a batch go: arrays `[B, ...]`, perhaps in shared memory.

    Attributes:
        new_states: Of the state dtype, or None where they are not wanted or cannot lie there.
        observations: What `space_arrays.empty_rows` gives, or None likewise.
        rewards: float64; the returns of rollouts.
        terminated: bool.
        truncated: bool.
        num_steps: int64.
    """

    new_states: NDArray[Any] | None
    observations: Any
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    num_steps: NDArray[np.int64]

    @classmethod
    def empty(
        cls,
        num_rows: int,
        state_dtype: np.dtype[Any],
        observation_space: gymnasium.Space[Any] | None,
        return_state: bool = True,
    ) -> Outputs:
        """Fresh arrays for `num_rows` rows; without a space for rollouts, which have no observations."""
        space = observation_space
        return cls(
            new_states=np.empty(num_rows, state_dtype) if return_state else None,
            observations=None if space is None else space_arrays.empty_rows(space, num_rows),
            rewards=np.empty(num_rows),
            terminated=np.empty(num_rows, bool),
            truncated=np.empty(num_rows, bool),
            num_steps=np.empty(num_rows, np.int64),
        )

    def part(self, rows: slice) -> Outputs:
        """Some of the rows, as views."""
        return Outputs(
            new_states=None if self.new_states is None else self.new_states[rows],
            observations=None
            if self.observations is None
            else space_arrays.take_rows(self.observations, rows),
            rewards=self.rewards[rows],
            terminated=self.terminated[rows],
            truncated=self.truncated[rows],
            num_steps=self.num_steps[rows],
        )

    def transitions(
        self, space: gymnasium.Space[Any], columns: Columns, errors: Errors | None
    ) -> Transitions:
        """The user's form. Args: errors: Of the rows that failed; None where those raise."""
        return Transitions(
            self.new_states,
            space_arrays.finish_rows(space, self.observations),
            self.rewards,
            self.terminated,
            self.truncated,
            {
                **_without_mask(vector_infos(columns)),
                "num_steps": self.num_steps,
                **self._error_infos(errors),
            },
        )

    def rollouts(self, errors: Errors | None) -> Rollouts:
        """The user's form of rollouts. Args: as `transitions`."""
        assert self.new_states is not None
        return Rollouts(
            self.new_states,
            self.rewards,
            self.num_steps,
            self.terminated,
            self.truncated,
            self._error_infos(errors),
        )

    def _error_infos(self, errors: Errors | None) -> dict[str, Any]:
        """Gymnasium's vector form of an info that the failed rows have."""
        if errors is None:
            return {}
        error, failed = np.full(len(self.rewards), None, object), np.zeros(len(self.rewards), bool)
        for row, what in errors.items():
            error[row], failed[row] = what, True
        return {"error": error, "_error": failed}


def _without_mask(infos: dict[str, Any]) -> dict[str, Any]:
    """An environment's own "num_steps" gives way to planvec's, which every row has."""
    infos.pop("_num_steps", None)
    return infos
