"""Defines the results of batch calls. Letters: B rows."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypedDict

import gymnasium
import numpy as np
from numpy.typing import NDArray

from planvec.rows.infos import Columns
from planvec.rows.space_arrays import take_row

# the treatment of a row that fails: its error is raised, or the row is flagged
OnError = Literal["raise", "mask"]


class StepOptions(TypedDict, total=False):
    """Further arguments of `step_batch`, for its overloads."""

    seeds: Any
    return_state: bool
    on_error: OnError
    deadline: float | None


class RolloutOptions(TypedDict, total=False):
    """Further arguments of `rollout_batch`, for its overloads."""

    actions: Any
    action_seed: int | None
    seeds: Any
    discount: float
    on_error: OnError
    deadline: float | None


_OWN_KEYS = ("num_steps", "_num_steps", "error", "_error")  # keys of infos that planvec uses itself
_PREFIX = "env_"


def own_keys_apart(columns: Columns) -> Columns:
    """Return columns of infos in which the keys that planvec uses itself begin with "env_"."""
    if not any(key in columns for key in _OWN_KEYS):
        return columns
    return {_PREFIX + key if key in _OWN_KEYS else key: column for key, column in columns.items()}


class Transitions(NamedTuple):
    """Holds the results of one batch of transitions: B rows, in the order of the arguments.

    Attributes:
        new_states: `[B]` states, one record per row; None with `return_state=False`.
        observations: `[B, ...]`, stacked as in `gymnasium.vector` (nested for Dict and Tuple).
        rewards: `[B]` float64, summed over the `dt` steps of a row.
        terminated: `[B]` bool.
        truncated: `[B]` bool.
        infos: The infos in Gymnasium's vector form (arrays with `_key` masks), and `num_steps` `[B]` int64,
            the number of environment steps that each row took. With `on_error="mask"` also `error` `[B]`,
            which holds the `PlanvecError` of each row that failed and None for the others, and its mask
            `_error`. An environment's own `num_steps` and `error` are `env_num_steps` and `env_error`.
    """

    new_states: np.ndarray
    observations: Any
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    infos: dict[str, Any]

    def row(
        self, space: gymnasium.Space[object], number: int
    ) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Return one row in the form that `gymnasium.Env.step` returns.

        Args:
            space: The observation space.
            number: The row, from 0 to B - 1.
        """
        return (
            take_row(space, self.observations, number),
            float(self.rewards[number]),
            bool(self.terminated[number]),
            bool(self.truncated[number]),
            self._info(number),
        )

    def _info(self, number: int) -> dict[str, Any]:
        infos = {key: values for key, values in self.infos.items() if key not in _OWN_KEYS}
        info = _info_of(infos, number)
        for key in _OWN_KEYS:
            if _PREFIX + key in info:
                info[key] = info.pop(_PREFIX + key)
        return info


def _info_of(infos: dict[str, Any], row: int) -> dict[str, Any]:
    info = {}
    for key, values in infos.items():
        if f"_{key}" in infos and infos[f"_{key}"][row]:
            info[key] = _info_of(values, row) if isinstance(values, dict) else values[row]
    return info


class Start(NamedTuple):
    """Holds the beginning of an episode.

    Attributes:
        state: One state: a scalar of the state dtype, or a `SavedState`.
        observation: The first observation.
        info: The info of the reset.
    """

    state: Any
    observation: Any
    info: dict[str, Any]


class Rollouts(NamedTuple):
    """Holds the results of one batch of rollouts.

    Attributes:
        final_states: `[B]`, the state at the end of each rollout.
        returns: `[B]` float64, discounted sum of rewards; NaN for a flagged row.
        num_steps: `[B]` int64, environment steps taken.
        terminated: `[B]` bool.
        truncated: `[B]` bool.
        infos: With `on_error="mask"`, `error` and `_error` as in `Transitions`; otherwise empty.
    """

    final_states: np.ndarray
    returns: NDArray[np.float64]
    num_steps: NDArray[np.int64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    infos: dict[str, Any]
