"""The form of the states of one environment, and the checks of states that users pass.

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

__all__ = ["StateFormat", "check_state", "check_states"]


class StateFormat(NamedTuple):
    """What the states of one environment look like.

    Attributes:
        dtype: A structured dtype, or object for states of variable size.
        origin: Which environment and codec made them; every `SavedState` carries it.
    """

    dtype: np.dtype[Any]
    origin: str


def check_states(state_format: StateFormat, states: Any, num_rows: int | None = None) -> NDArray[Any]:
    """States `[B]` of the right kind; one state is repeated for `num_rows` rows.

    Raises:
        InvalidBatchError: A wrong length, shape or dtype, or a state of another environment.
    """
    dtype, origin = state_format
    states = states if type(states) is np.ndarray else _as_states(dtype, states)
    if states.dtype != dtype:
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
    """One state record, as a copy of the caller's.

    Raises:
        InvalidBatchError: Not one state of this environment.
    """
    states = check_states(state_format, state)
    if len(states) != 1:
        raise InvalidBatchError(f"state: expected one state, got {len(states)}")
    return states.copy()[0]


_PARTS = {Start: "state", Transitions: "new_states", Rollouts: "final_states"}
"""What to pass on of a result that was given where its states are meant."""


def _as_states(dtype: np.dtype[Any], states: Any) -> NDArray[Any]:
    """An array from one record, or from a sequence of records."""
    part = _PARTS.get(type(states))
    if part is not None:
        raise InvalidBatchError(
            f"states: expected an array of states, got {type(states).__name__}; pass its .{part}"
        )
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
                f"states: expected states of one environment, got a list of others ({error})"
            ) from error
        return array
    array = np.empty((), states.dtype if isinstance(states, np.void) else object)
    array[()] = states
    return array
