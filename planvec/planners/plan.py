"""What a planner is, and what one of its decisions looks like.

Letters: K root actions, L actions of a branch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.transitions import BatchStepper

__all__ = ["Plan", "PlanCallback", "Planner", "one_state"]

PlanCallback = Callable[[int, int], bool | None]
"""`callback(num_iterations, num_env_steps)` after each iteration; True stops the search."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """One decision.

    Attributes:
        action: The action to take, an element of the action space.
        root_actions: `[K, *action shape]`, the first actions that were weighed: all of a Discrete
            space, else those that are still carried at the end.
        visit_counts: `[K]` int64, how many walkers (or visits) stand behind each of them.
        action_values: `[K]` float64, their mean return; NaN where the count is 0.
        best_actions: `[L, *action shape]`, the best branch that was found. Where the environment is
            random it is one sampled future.
        best_num_steps: `[L]` int64, for how many environment steps each of its actions is held.
        best_return: Undiscounted sum of the rewards along it.
        num_iterations: Iterations made.
        num_env_steps: Environment steps simulated.
        elapsed: Seconds.
        stop_reason: "horizon", "ended" (no walker's episode went on) or "callback".
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
    """Chooses an action at a state. It keeps nothing between decisions: `previous` is handed in."""

    def plan(
        self,
        env: BatchStepper,
        state: Any = None,
        *,
        seed: int | None = None,
        previous: Plan | None = None,
        callback: PlanCallback | None = None,
    ) -> Plan:
        """Plan at a state.

        Args:
            env: The stepper; its base state is left as it is.
            state: One state; None takes the base state of `env`.
            seed: Fixes every random choice; None takes a fresh one.
            previous: The decision one environment step ago, to build on.
            callback: Called after each iteration; True stops the search.
        """
        ...


def one_state(env: BatchStepper, state: Any) -> NDArray[Any]:
    """The state to plan at, as an array `[1]`.

    Args:
        env: The stepper.
        state: One state; None takes the base state of `env`.

    Raises:
        InvalidBatchError: Not one state; or None, and `env` has no `get_state`.
    """
    if state is None:
        get_state = getattr(env, "get_state", None)
        if get_state is None:
            raise InvalidBatchError(
                f"state: expected one state, got None, and {type(env).__name__} has no get_state(); "
                "pass the state to plan at, such as env.reset(seed=0).state"
            )
        state = get_state()
    if not isinstance(state, (np.ndarray, np.void)):
        held = np.empty(1, object)  # np.array(state) would look for a sequence in it
        held[0] = state
        return held
    states = np.atleast_1d(state)
    if states.shape != (1,):
        raise InvalidBatchError(f"state: expected one state, got shape {states.shape}")
    return states
