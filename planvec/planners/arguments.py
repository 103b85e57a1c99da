"""Checks the arguments that planners share: steppers, planners, and states."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import gymnasium
import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners.plan import Plan
from planvec.rows import BatchStepper, Start


@runtime_checkable
class _HasBaseState(Protocol):
    """A stepper that keeps a base state; one made only to plan at given states may not."""

    def get_state(self) -> Any: ...


def check_stepper(env: Any) -> None:
    """Check that an argument can step batches."""
    if hasattr(env, "step_batch") and not isinstance(env, type):
        return
    if isinstance(env, str):
        got, fix = f"the id {env!r}", f"planvec.make({env!r})"
    elif isinstance(env, gymnasium.Env):
        got, fix = f"the environment {env}", "planvec.PlanEnv(env)"
    else:
        got, fix = repr(env), "planvec.make(...)"
    raise TypeError(f"env: expected an environment that steps batches, got {got}; open it with {fix}")


def check_planner(planner: Any) -> None:
    """Check that an argument is a planner."""
    if isinstance(planner, type):
        raise TypeError(
            f"planner: expected an instance, got the class {planner.__name__}; call it: {planner.__name__}()"
        )
    if not hasattr(planner, "plan"):
        raise TypeError(f"planner: expected an instance of a planvec.Planner, got {planner!r}")


def check_previous(previous: Any, dtype: np.dtype[Any]) -> None:
    """Check that an argument is None, or a plan whose states have a dtype."""
    if previous is None:
        return
    if not isinstance(previous, Plan):
        raise TypeError(f"previous: expected a planvec.Plan or None, got {previous!r}")
    states = getattr(previous.search_data, "saved_states", None)
    if states is not None and len(states) and states.dtype != dtype:
        raise InvalidBatchError(
            f"previous: expected a plan of this environment, whose states are {dtype}, got one with states "
            f"{states.dtype}; pass None at the first decision in an environment"
        )


def one_state(env: BatchStepper, state: Any) -> NDArray[Any]:
    """Return a state as an array `[1]`."""
    if state is None:
        if not isinstance(env, _HasBaseState):
            raise InvalidBatchError(
                f"state: expected one state, got None, and {type(env).__name__} has no get_state(); "
                "pass the state to plan at, such as env.reset(seed=0).state"
            )
        state = env.get_state()
    if isinstance(state, Start):
        raise InvalidBatchError("state: expected one state, got Start; pass its .state")
    if not isinstance(state, (np.ndarray, np.void)):
        states = np.empty(1, object)  # np.array(state) would look for a sequence in it
        states[0] = state
        return states
    states = np.atleast_1d(state)
    if states.shape != (1,):
        raise InvalidBatchError(f"state: expected one state, got shape {states.shape}")
    return states
