"""What a planner is, and what one of its decisions looks like. Letters: K root actions, L lengths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.transitions import BatchStepper

__all__ = ["Plan", "PlanCallback", "Planner", "start_state"]

PlanCallback = Callable[[int, int], bool | None]
"""`callback(num_iterations, num_env_steps)` after each iteration; True stops the search."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One decision.

    Attributes:
        action: The action to take, an element of the action space.
        root_actions: `[K, *action shape]`, the first actions that were weighed: all of a Discrete
            space, else those that are still carried at the end.
        visit_counts: `[K]` int64, how many walkers or visits stand behind each of them.
        action_values: `[K]` float64, the mean return behind each; NaN where the count is 0.
        best_actions: `[L, *action shape]`, the actions of the best branch that was found. Where the
            environment is random it is one sampled future.
        best_num_steps: `[L]` int64, for how many environment steps each of them was held.
        best_return: The undiscounted return of that branch.
        num_iterations: Iterations made.
        num_env_steps: Environment steps simulated.
        elapsed: Seconds.
        stop_reason: "horizon", "ended" (nothing was left to step), "max_env_steps" or "callback".
    """

    action: Any
    root_actions: NDArray[Any]
    visit_counts: NDArray[np.int64]
    action_values: NDArray[np.float64]
    best_actions: NDArray[Any]
    best_num_steps: NDArray[np.int64]
    best_return: float
    num_iterations: int
    num_env_steps: int
    elapsed: float
    stop_reason: str


class Planner(Protocol):
    """Chooses an action at a state; its configuration does not change by planning."""

    def plan(
        self,
        env: BatchStepper,
        state: Any = None,
        *,
        seed: int | None = None,
        callback: PlanCallback | None = None,
    ) -> Plan:
        """Plan at a state (None: at the base state of `env`), which is left as it is."""
        ...


def start_state(env: BatchStepper, state: Any) -> NDArray[Any]:
    """The state to plan at, as an array `[1]`.

    Args:
        env: The stepper.
        state: One state; None takes the base state of `env`.

    Raises:
        InvalidBatchError: More or less than one state, or none was given and `env` has no
            `get_state`.
    """
    if state is None:
        get_state = getattr(env, "get_state", None)
        if get_state is None:
            raise InvalidBatchError(
                f"state: expected one state, got None, and {type(env).__name__} has no get_state(); "
                "pass the state to plan at, for example env.reset(seed=0).state"
            )
        state = get_state()
    states = np.atleast_1d(np.asarray(state, env.state_dtype if _is_object(env) else None))
    if states.shape != (1,):
        raise InvalidBatchError(
            f"state: expected one state, got shape {states.shape}; pass states[i]"
        )
    return states


def _is_object(env: BatchStepper) -> bool:
    return env.state_dtype == np.dtype(object)
