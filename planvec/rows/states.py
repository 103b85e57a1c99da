"""Describes the states of one environment, and checks the states that users pass.

Letters: B rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.rows.promises import Promise
from planvec.rows.results import Rollouts, Start, Transitions
from planvec.rows.saved_state import SavedState


class StateFormat(NamedTuple):
    """Describes the states of one environment."""

    dtype: np.dtype[Any]  # A structured dtype, or object for states of variable size
    origin: str  # Name of the environment and codec that save the states. Every `SavedState` has it too.


def check_states(state_format: StateFormat, states: Any, num_rows: int | None = None) -> NDArray[Any]:
    """Check states and return them as an array."""
    # `states`: `[B]`, or one state, which is repeated.
    # Returns states `[B]`.
    dtype, origin = state_format
    states = states if type(states) is np.ndarray else as_states(dtype, states)
    if states.dtype is not dtype and states.dtype != dtype:
        raise InvalidBatchError(
            f"states: expected dtype {dtype}, got {states.dtype}; pass states that this environment returned"
        )
    if states.ndim == 0:
        states = np.repeat(states, 1 if num_rows is None else num_rows)
    if states.ndim != 1:
        raise InvalidBatchError(f"states: expected one dimension, got shape {states.shape}")
    if num_rows is not None and len(states) != num_rows:
        raise InvalidBatchError(
            f"states: expected {num_rows} rows, one per action, got {len(states)}; "
            "np.repeat(state, n) starts n rows at one state"
        )
    if dtype.hasobject:
        for row, state in enumerate(states):
            if not isinstance(state, SavedState) or state.origin != origin:
                raise InvalidBatchError(f"states[{row}]: expected a state of {origin}, got {state!r}")
    checked: NDArray[Any] = states
    return checked


def check_state(state_format: StateFormat, state: Any) -> Any:
    """Check one state and return a copy of it."""
    states = check_states(state_format, state)
    if len(states) != 1:
        raise InvalidBatchError(f"state: expected one state, got {len(states)}")
    return states.copy()[0]


# type of a result -> its field with states, for messages to users who pass the result itself
_STATE_FIELDS = {Start: "state", Transitions: "new_states", Rollouts: "final_states"}


def as_states(dtype: np.dtype[Any], states: Any) -> NDArray[Any]:
    """Return an array of one state, or of a sequence of states."""
    field = _STATE_FIELDS.get(type(states))
    if field is not None:
        raise InvalidBatchError(
            f"states: expected an array of states, got {type(states).__name__}; pass its .{field}"
        )
    if isinstance(states, np.ndarray):  # a subclass, such as a file that is mapped into memory
        return np.asarray(states)
    if isinstance(states, Promise):
        raise InvalidBatchError("states: expected an array of states, got a promise; call its result()")
    if isinstance(states, (list, tuple)) and not isinstance(states, np.void):
        if not len(states):
            return np.empty(0, dtype)
        kind = states[0].dtype if isinstance(states[0], np.void) else object
        array = np.empty(len(states), kind)
        try:
            array[:] = states
        except (ValueError, TypeError) as error:
            raise InvalidBatchError(
                f"states: expected states of one environment, got a list of something else ({error})"
            ) from error
        return array
    array = np.empty((), states.dtype if isinstance(states, np.void) else object)
    array[()] = states
    return array
