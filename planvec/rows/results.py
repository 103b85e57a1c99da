"""What a batch call returns, and the protocol that planners see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import gymnasium
import numpy as np
from numpy.typing import NDArray

from planvec.rows.space_arrays import take_row

__all__ = ["BatchStepper", "OnError", "Rollouts", "Start", "Transitions"]

OnError = Literal["raise", "mask"]
"""Whether a row that fails ends its batch, or comes back flagged."""


class Transitions(NamedTuple):
    """The outcome of one batch of transitions; B rows in the order of the arguments.

    Attributes:
        new_states: `[B]` states, one record per row; None with `return_state=False`.
        observations: `[B, ...]` stacked by the observation space (nested for Dict and Tuple).
        rewards: `[B]` float64, summed over the `dt` steps of a row.
        terminated: `[B]` bool.
        truncated: `[B]` bool.
        infos: Gymnasium's vector form (arrays with `_key` masks), and `num_steps` `[B]` int64,
            the number of environment steps that each row took. With `on_error="mask"` also `error`
            `[B]`, the `PlanvecError` of a row that failed, None for the others, and its mask `_error`.
    """

    new_states: NDArray[Any] | None
    observations: Any
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    infos: dict[str, Any]

    def row(self, space: gymnasium.Space[Any], number: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One row as `gymnasium.Env.step` would return it.

        Args:
            space: The observation space.
            number: From 0 to B - 1.
        """
        return (
            take_row(space, self.observations, number),
            float(self.rewards[number]),
            bool(self.terminated[number]),
            bool(self.truncated[number]),
            _info_of(self.infos, number),
        )


def _info_of(infos: dict[str, Any], row: int) -> dict[str, Any]:
    info = {}
    for key, values in infos.items():
        if f"_{key}" in infos and infos[f"_{key}"][row]:
            info[key] = _info_of(values, row) if isinstance(values, dict) else values[row]
    return info


class Start(NamedTuple):
    """The beginning of an episode.

    Attributes:
        state: One state record (a scalar of the state dtype, or a `SavedState`).
        observation: The first observation.
        info: The environment's info.
    """

    state: Any
    observation: Any
    info: dict[str, Any]


class Rollouts(NamedTuple):
    """The outcome of one batch of rollouts.

    Attributes:
        final_states: `[B]` states at the end of each rollout.
        returns: `[B]` float64, discounted sum of rewards.
        num_steps: `[B]` int64, environment steps taken.
        terminated: `[B]` bool.
        truncated: `[B]` bool.
        infos: With `on_error="mask"` `error` and `_error`, as in `Transitions`; else empty.
    """

    final_states: NDArray[Any]
    returns: NDArray[np.float64]
    num_steps: NDArray[np.int64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    infos: dict[str, Any]


@runtime_checkable
class BatchStepper(Protocol):
    """All that a planner needs: `PlanEnv` and `BatchEnv` are both of this kind.

    Shapes: B rows; `actions` `[B, *action shape]`, `states` `[B]` of `state_dtype`. With
    `blocking=True` a call returns the named tuple, with False a `Promise` of it; None takes the
    stepper's own default.
    """

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """The space of one observation."""
        ...

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """The space of one action."""
        ...

    @property
    def state_dtype(self) -> np.dtype[Any]:
        """The dtype of one state."""
        ...

    @property
    def is_stochastic(self) -> bool:
        """False only where it is known that a step has one outcome, whatever its seed."""
        ...

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Start:
        """Start an episode; its state becomes the base state."""
        ...

    def get_state(self) -> Any:
        """The base state: one record."""
        ...

    def step_batch(
        self,
        actions: Any,
        states: Any = None,
        dt: int | Sequence[int] | NDArray[np.integer[Any]] = 1,
        *,
        seeds: Any = None,
        return_state: bool = True,
        on_error: OnError = "raise",
        blocking: bool | None = None,
    ) -> Any:
        """`Transitions` of B rows, each from its own state."""
        ...

    def rollout_batch(
        self,
        states: Any = None,
        horizon: int | None = None,
        *,
        actions: Any = None,
        seed: int | None = None,
        seeds: Any = None,
        discount: float = 1.0,
        on_error: OnError = "raise",
        blocking: bool | None = None,
    ) -> Any:
        """`Rollouts` of B rows."""
        ...

    def observe(self, states: Any) -> Any:
        """Observations `[B, ...]` of states, without stepping."""
        ...
