"""Check, broadcast and split the arguments of a batch call.

Everything is checked before anything is sent, so that a wrong argument costs nothing. Letters: B rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.rows.promises import Promise
from planvec.rows.results import Rollouts, Start, Transitions
from planvec.rows.saved_state import SavedState
from planvec.rows.space_arrays import SIMPLE, is_fixed, leaves, map_leaves, take_rows

__all__ = [
    "MAX_STEPS",
    "Batch",
    "StateFormat",
    "check_actions",
    "check_batch",
    "check_mask",
    "check_seed",
    "check_seeds",
    "check_state",
    "check_states",
    "one_action",
    "split",
]

_INT64 = np.dtype(np.int64)
MAX_STEPS = 2**31 - 1
"""The most steps that one row can be asked for in one call."""
_FEW = 16
_ONES = np.ones(256, np.int64)
_ONES.flags.writeable = False


class StateFormat(NamedTuple):
    """What the states of one environment look like.

    Attributes:
        dtype: A structured dtype, or object for states of variable size.
        origin: Which environment and codec made them; every `SavedState` carries it.
    """

    dtype: np.dtype[Any]
    origin: str


@dataclass(slots=True)
class Batch:
    """The checked arguments of a batch call.

    Attributes:
        states: `[B]`.
        actions: A tree of arrays `[B, ...]`, or a list of B elements where the size is not fixed.
        dt: `[B]` int64.
        seeds: `[B]` uint64, or None.
    """

    states: NDArray[Any]
    actions: Any
    dt: NDArray[np.int64]
    seeds: NDArray[np.uint64] | None

    def __len__(self) -> int:
        return len(self.states)

    def part(self, rows: slice) -> Batch:
        """Some of the rows, as views."""
        return Batch(
            self.states[rows],
            take_rows(self.actions, rows),
            self.dt[rows],
            None if self.seeds is None else self.seeds[rows],
        )

    def copy(self) -> Batch:
        """The same, in arrays of its own."""
        return Batch(
            self.states.copy(),
            map_leaves(lambda leaf: leaf.copy(), self.actions),
            self.dt.copy(),
            None if self.seeds is None else self.seeds.copy(),
        )


def check_batch(
    action_space: Space[Any],
    state_format: StateFormat,
    actions: Any,
    states: Any,
    dt: Any,
    seeds: Any,
) -> Batch:
    """Check and broadcast the arguments of `step_batch`.

    Args:
        action_space: The space of one action.
        state_format: What a state looks like.
        actions: `[B, *action shape]`.
        states: `[B]`, or one state for all rows.
        dt: int or `[B]`, at least 1.
        seeds: `[B]` non-negative integers, or None.

    Raises:
        InvalidBatchError: Naming the argument, what was expected and what came.
    """
    actions, num_rows = check_actions(action_space, actions)
    states = check_states(state_format, states, num_rows)
    return Batch(states, actions, _check_dt(dt, num_rows), check_seeds(seeds, num_rows))


def check_mask(on_error: Any) -> bool:
    """Whether errors are masked.

    Raises:
        InvalidBatchError: Neither "raise" nor "mask".
    """
    if on_error not in ("raise", "mask"):
        raise InvalidBatchError(f"on_error: expected 'raise' or 'mask', got {on_error!r}")
    return bool(on_error == "mask")


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


def _as_array(name: str, value: Any) -> NDArray[Any]:
    try:
        return np.asarray(value)
    except ValueError as error:
        raise InvalidBatchError(f"{name}: expected one dimension, got rows of different sizes") from error


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


def check_actions(space: Space[Any], actions: Any) -> tuple[Any, int]:
    """Actions as a tree of arrays of the space's dtype, and their number.

    Raises:
        InvalidBatchError: A wrong structure, shape or dtype, or an action outside the space.
    """
    if type(space) in SIMPLE:
        array = _check_leaf(space, actions, "actions")
        return array, len(array)
    if not is_fixed(space):
        return _check_listed(space, actions)
    checked = _check_tree(space, actions, "actions")
    lengths = {len(leaf) for leaf in leaves(checked)}
    if len(lengths) > 1:
        raise InvalidBatchError(f"actions: expected as many rows in every part, got {sorted(lengths)}")
    return checked, lengths.pop() if lengths else 0


def one_action(space: Space[Any], action: Any) -> Any:
    """A batch of one action."""
    if isinstance(space, spaces.Dict) and isinstance(action, dict) and is_fixed(space):
        return {
            key: one_action(space.spaces[key], part) if key in space.spaces else part
            for key, part in action.items()
        }
    if isinstance(space, spaces.Tuple) and isinstance(action, tuple) and is_fixed(space):
        parts = zip(space.spaces, action, strict=False)
        return tuple(one_action(child, part) for child, part in parts)
    return np.asarray(action)[None] if is_fixed(space) else [action]


def _check_listed(space: Space[Any], actions: Any) -> tuple[list[Any], int]:
    if isinstance(actions, (str, bytes, dict)) or not hasattr(actions, "__len__"):
        raise InvalidBatchError(
            f"actions: expected a sequence of elements of {space}, got {type(actions).__name__}"
        )
    rows = list(actions)
    for index, action in enumerate(rows):
        if not space.contains(action):
            raise InvalidBatchError(f"actions[{index}]: expected an element of {space}, got {action!r}")
    return rows, len(rows)


def _check_tree(space: Space[Any], actions: Any, name: str) -> Any:
    if isinstance(space, spaces.Dict):
        if not isinstance(actions, dict) or set(actions) != set(space.spaces):
            got = sorted(actions) if isinstance(actions, dict) else type(actions).__name__
            raise InvalidBatchError(
                f"{name}: expected a dict of arrays with the keys {list(space.spaces)}, got {got}"
            )
        return {
            key: _check_tree(child, actions[key], f"{name}[{key!r}]") for key, child in space.spaces.items()
        }
    if isinstance(space, spaces.Tuple):
        if not isinstance(actions, (tuple, list)) or len(actions) != len(space.spaces):
            raise InvalidBatchError(
                f"{name}: expected a tuple of {len(space.spaces)} arrays, got {type(actions).__name__}"
            )
        return tuple(
            _check_tree(child, part, f"{name}[{index}]")
            for index, (child, part) in enumerate(zip(space.spaces, actions, strict=True))
        )
    return _check_leaf(space, actions, name)


def _check_leaf(space: Any, actions: Any, name: str) -> NDArray[Any]:
    try:
        array = np.asarray(actions)
    except ValueError as error:
        raise InvalidBatchError(
            f"{name}: expected shape (B, *{space.shape}), got rows of different shapes"
        ) from error
    if array.size == 0 and array.ndim == 1 and space.shape != (0,):
        array = np.empty((0, *space.shape), space.dtype)
    if array.ndim != 1 + len(space.shape) or array.shape[1:] != space.shape:
        rows = len(array) if array.ndim else "B"
        expected = f"({', '.join(map(str, (rows, *space.shape)))}{',' * (not space.shape)})"
        raise InvalidBatchError(f"{name}: expected shape {expected}, got {array.shape}")
    if _is_inside(space, array):
        return array
    kinds = "iub" if isinstance(space, spaces.MultiBinary) else "iu"
    if isinstance(space, spaces.Box) and space.dtype.kind == "f":
        kinds = "fiu"
    if array.dtype.kind not in kinds:
        raise InvalidBatchError(f"{name}: expected dtype {space.dtype}, got {array.dtype}")
    low, high = _bounds(space)
    if space.dtype.kind == "f":  # compared as the environment will see it
        array = array.astype(space.dtype, copy=False)
    # Written so that NaN, which compares false with everything, is outside.
    inside = (array >= low) & (array <= high)
    if not inside.all():
        row = int(np.argmin(inside.reshape(len(inside), -1).all(axis=1)))
        raise InvalidBatchError(f"{name}[{row}]: expected an element of {space}, got {array[row]}")
    return array.astype(space.dtype, copy=False)


def _is_inside(space: Any, array: NDArray[Any]) -> bool:
    """The usual case of the check, indices from 0, in one operation on them as unsigned numbers."""
    if type(space) is not spaces.Discrete or array.dtype != _INT64 or space.dtype != _INT64:
        return False
    if space.start:
        return False
    if array.size <= _FEW:  # cheaper than the overhead of one operation on an array
        return all(0 <= index < space.n for index in array.tolist())
    return bool(np.maximum.reduce(array.view(np.uint64)) < space.n)


def _bounds(space: Any) -> tuple[Any, Any]:
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.MultiBinary):
        return 0, 1
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    return int(space.start), int(space.start + space.n - 1)


def _check_dt(dt: Any, num_rows: int) -> NDArray[np.int64]:
    if type(dt) is int:
        if not 1 <= dt <= MAX_STEPS:
            raise InvalidBatchError(f"dt: expected from 1 to {MAX_STEPS}, got {dt}")
        return _ONES[:num_rows] if dt == 1 and num_rows <= len(_ONES) else np.full(num_rows, dt)
    array = _as_array("dt", dt)
    if array.dtype.kind not in "iu" and array.size:
        raise InvalidBatchError(f"dt: expected integers, got dtype {array.dtype}")
    if array.ndim == 0:
        array = np.full(num_rows, array)
    if array.shape != (num_rows,):
        raise InvalidBatchError(f"dt: expected shape ({num_rows},), got {array.shape}")
    outside = (array < 1) | (array > MAX_STEPS)
    if outside.any():
        row = int(np.argmax(outside))
        raise InvalidBatchError(f"dt[{row}]: expected from 1 to {MAX_STEPS}, got {array[row]}")
    return array.astype(np.int64, copy=False)


def check_seed(seed: Any) -> int:
    """One seed in [0, 2**64).

    Raises:
        InvalidBatchError: Anything else.
    """
    is_integer = isinstance(seed, (int, np.integer)) and not isinstance(seed, bool)
    if not is_integer or not 0 <= seed < 2**64:
        raise InvalidBatchError(f"seed: expected an integer in [0, 2**64), got {seed!r}")
    return int(seed)


def check_seeds(seeds: Any, num_rows: int) -> NDArray[np.uint64] | None:
    """Seeds `[B]` as uint64, or None.

    Raises:
        InvalidBatchError: A wrong shape or dtype, or a negative seed.
    """
    if seeds is None:
        return None
    array = _as_array("seeds", seeds)
    if array.dtype.kind not in "iu" and array.size:
        raise InvalidBatchError(f"seeds: expected integers in [0, 2**64), got dtype {array.dtype}")
    if array.shape != (num_rows,):
        raise InvalidBatchError(f"seeds: expected shape ({num_rows},), got {array.shape}")
    if array.dtype.kind == "i" and (array < 0).any():
        row = int(np.argmax(array < 0))
        raise InvalidBatchError(f"seeds[{row}]: expected at least 0, got {array[row]}")
    return array.astype(np.uint64, copy=False)


def split(num_rows: int, num_parts: int) -> list[slice]:
    """At most `num_parts` slices that cover all rows, sizes differing by at most one."""
    if num_parts == 1 and num_rows:
        return [slice(0, num_rows)]
    num_parts = min(num_rows, num_parts)
    bounds = [num_rows * part // num_parts for part in range(num_parts + 1)] if num_parts else []
    return [slice(start, stop) for start, stop in pairwise(bounds)]
