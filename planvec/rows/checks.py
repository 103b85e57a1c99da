"""Turns the arguments of a batch call into a request: checks, converts and broadcasts them.

All checks come before anything is sent, so that a wrong argument does no harm. Letters: B rows, H horizon.
"""

from __future__ import annotations

import math
import secrets
import sys
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.rows.promises import Promise
from planvec.rows.requests import RolloutBatch, StepBatch
from planvec.rows.results import Rollouts, Start, Transitions
from planvec.rows.space_arrays import SIMPLE, is_fixed, leaves, map_leaves
from planvec.rows.states import EnvDescription, SavedState, StateFormat

# -- Checks the actions that users pass. Letters: B rows -----------------------------------------------------

_INT64 = np.dtype(np.int64)


def check_actions(space: Space[object], actions: Any) -> tuple[Any, int]:
    """Check a batch of actions and convert it to the dtype of the space."""
    # `actions`: `[B, *action shape]`; nested for Dict and Tuple spaces; a sequence of B actions for spaces
    # whose elements vary in size.
    # Returns the actions (a tree of arrays, or a list), and B.
    if type(space) in SIMPLE:
        if type(actions) is np.ndarray and actions.ndim == 1 and _is_inside(space, actions):
            return actions, len(actions)
        array = _check_leaf(space, actions, "actions")
        return array, len(array)
    if not is_fixed(space):
        if isinstance(actions, (str, bytes, dict)) or not hasattr(actions, "__len__"):
            raise InvalidBatchError(
                f"actions: expected a sequence of elements of {space}, got {type(actions).__name__}"
            )
        rows = list(actions)
        for index, action in enumerate(rows):
            if not space.contains(action):
                raise InvalidBatchError(f"actions[{index}]: expected an element of {space}, got {action!r}")
        return rows, len(rows)
    checked = _check_tree(space, actions, "actions")
    lengths = {len(leaf) for leaf in leaves(checked)}
    if len(lengths) > 1:
        raise InvalidBatchError(
            f"actions: expected the same number of rows in every part, got {sorted(lengths)}"
        )
    return checked, lengths.pop() if lengths else 0


def one_action(space: Space[object], action: object) -> Any:
    """Return a batch that holds one action."""
    if isinstance(space, spaces.Dict) and isinstance(action, dict) and is_fixed(space):
        return {
            key: one_action(space.spaces[key], part) if key in space.spaces else part
            for key, part in action.items()
        }
    if isinstance(space, spaces.Tuple) and isinstance(action, tuple) and is_fixed(space):
        parts = zip(space.spaces, action, strict=False)
        return tuple(one_action(child, part) for child, part in parts)
    return np.asarray(action)[None] if is_fixed(space) else [action]


def _check_tree(space: Space[object], actions: object, name: str) -> Any:
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


def _check_leaf(space: Any, actions: object, name: str) -> np.ndarray:
    try:
        array = np.asarray(actions)
    except ValueError as error:
        raise InvalidBatchError(
            f"{name}: expected shape (B, *{space.shape}), got rows of different shapes"
        ) from error
    shape = space.shape
    if array.size == 0 and array.ndim == 1 and shape != (0,):
        array = np.empty((0, *shape), space.dtype)
    if array.ndim != 1 + len(shape) or array.shape[1:] != shape:
        rows = len(array) if array.ndim else "B"
        expected = f"({', '.join(map(str, (rows, *shape)))}{',' * (not shape)})"
        raise InvalidBatchError(f"{name}: expected shape {expected}, got {array.shape}")
    if _is_inside(space, array):
        return array
    kinds = "iub" if isinstance(space, spaces.MultiBinary) or space.dtype.kind == "b" else "iu"
    if isinstance(space, spaces.Box) and space.dtype.kind == "f":
        kinds = "fiu"
    if array.dtype.kind not in kinds:
        raise InvalidBatchError(f"{name}: expected dtype {space.dtype}, got {array.dtype}")
    low, high = _bounds(space)
    if space.dtype.kind == "f":  # compare what the environment will receive
        array = array.astype(space.dtype, copy=False)
    # NaN compares false with everything, so this test counts it as outside.
    inside = (array >= low) & (array <= high)
    if not inside.all():
        row = int(np.argmin(inside.reshape(len(inside), -1).all(axis=1)))
        raise InvalidBatchError(f"{name}[{row}]: expected an element of {space}, got {array[row]}")
    return array.astype(space.dtype, copy=False)


def _is_inside(space: object, array: np.ndarray) -> bool:
    """Return whether int64 indices that count from 0 are inside the space; False also for any other batch."""
    if type(space) is not spaces.Discrete or array.dtype != _INT64 or space.dtype != _INT64 or space.start:
        return False
    # For small batches, argmin and argmax take a third of the time of a comparison or of min and max.
    return not array.size or (array.item(array.argmin()) >= 0 and array.item(array.argmax()) < int(space.n))


def _bounds(space: Any) -> tuple[Any, Any]:
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.MultiBinary):
        return 0, 1
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    return int(space.start), int(space.start + space.n - 1)


# -- Checks the states that users pass. Letters: B rows ------------------------------------------------------


def check_states(state_format: StateFormat, states: object, num_rows: int | None = None) -> np.ndarray:
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
    checked: np.ndarray = states
    return checked


def check_state(state_format: StateFormat, state: object) -> Any:
    """Check one state and return a copy of it."""
    states = check_states(state_format, state)
    if len(states) != 1:
        raise InvalidBatchError(f"state: expected one state, got {len(states)}")
    return states.copy()[0]


# type of a result -> its field with states, for messages to users who pass the result itself
_STATE_FIELDS = {Start: "state", Transitions: "new_states", Rollouts: "final_states"}


def as_states(dtype: np.dtype, states: object) -> np.ndarray:
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


# -- Checks the seeds, repeats and other numbers that users pass. Letters: B rows ----------------------------

MAX_STEPS = 2**31 - 1  # largest number of steps of one row in one call
_ONES = np.ones(256, np.int64)
_ONES.flags.writeable = False


def _as_array(name: str, value: object) -> np.ndarray:
    try:
        return np.asarray(value)
    except ValueError as error:
        raise InvalidBatchError(f"{name}: expected one dimension, got rows of different sizes") from error


def check_integer(name: str, value: object, low: float, high: float = math.inf) -> None:
    """Check that a value is an integer from `low` to `high`."""
    _check_range(name, value, (int, np.integer), "an integer", low, high)


def check_number(name: str, value: object, low: float, high: float = math.inf) -> None:
    """Check that a value is a number from `low` to `high`, and not NaN."""
    _check_range(name, value, (int, float, np.integer, np.floating), "a number", low, high)


def _check_range(name: str, value: Any, kinds: tuple[type, ...], what: str, low: float, high: float) -> None:
    is_kind = isinstance(value, kinds) and not isinstance(value, bool)
    if not (is_kind and low <= value <= high):
        bounds = f"from {low} to {high}" if high < sys.float_info.max else f"of at least {low}"
        what = f"a finite {what.removeprefix('a ')}" if high == sys.float_info.max else what
        raise InvalidBatchError(f"{name}: expected {what} {bounds}, got {value!r}")


def check_on_error(on_error: object) -> bool:
    """Return whether failed rows are flagged instead of raised."""
    if on_error == "raise":
        return False
    if on_error == "mask":
        return True
    raise InvalidBatchError(f"on_error: expected 'raise' or 'mask', got {on_error!r}")


def check_dt(dt: Any, num_rows: int) -> NDArray[np.int64]:
    """Return how often each row's action is repeated, `[num_rows]` int64."""
    if type(dt) is int:
        if not 1 <= dt <= MAX_STEPS:
            raise InvalidBatchError(f"dt: expected from 1 to {MAX_STEPS}, got {dt}")
        if dt == 1 and num_rows <= len(_ONES):
            return _ONES[:num_rows]
        return np.broadcast_to(np.int64(dt), num_rows)  # a million rows take no memory
    has_form = type(dt) is np.ndarray and dt.dtype == _INT64 and dt.shape == (num_rows,)
    # For small batches, argmin and argmax take a third of the time of a comparison or of min and max.
    if has_form and (not num_rows or (dt.item(dt.argmin()) >= 1 and dt.item(dt.argmax()) <= MAX_STEPS)):
        valid: NDArray[np.int64] = dt
        return valid
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


def check_seed(seed: Any, name: str = "seed") -> int:
    """Return one seed in [0, 2**64) as an int."""
    is_integer = isinstance(seed, (int, np.integer)) and not isinstance(seed, bool)
    if not is_integer or not 0 <= seed < 2**64:
        raise InvalidBatchError(f"{name}: expected an integer in [0, 2**64), got {seed!r}")
    return int(seed)


def check_seeds(seeds: Any, num_rows: int) -> NDArray[np.uint64] | None:
    """Return the seeds as uint64 `[num_rows]`, or None if there are none."""
    if seeds is None:
        return None
    array = _as_array("seeds", seeds)
    is_list = array.dtype.kind in "fO" and isinstance(seeds, (list, tuple))
    if is_list and all(isinstance(seed, (int, np.integer)) for seed in seeds):
        # NumPy makes floats of a list with small integers and some of 2**63 or more.
        try:
            array = np.array(seeds, np.uint64)
        except OverflowError as error:
            raise InvalidBatchError(f"seeds: expected integers in [0, 2**64), got {seeds!r}") from error
    if array.dtype.kind not in "iu" and array.size:
        raise InvalidBatchError(f"seeds: expected integers in [0, 2**64), got dtype {array.dtype}")
    if array.shape != (num_rows,):
        raise InvalidBatchError(f"seeds: expected shape ({num_rows},), got {array.shape}")
    if array.dtype.kind == "i" and (array < 0).any():
        row = int(np.argmax(array < 0))
        raise InvalidBatchError(f"seeds[{row}]: expected at least 0, got {array[row]}")
    return array.astype(np.uint64, copy=False)


def check_compiled(compiled: object, num_threads: object) -> None:
    """Check the arguments `compiled` and `num_threads`."""
    if not isinstance(compiled, bool | None):
        raise InvalidBatchError(f"compiled: expected None, True or False, got {compiled!r}")
    is_count = isinstance(num_threads, int) and not isinstance(num_threads, bool) and num_threads >= 1
    if num_threads is not None and not is_count:
        raise InvalidBatchError(
            f"num_threads: expected an integer of at least 1, or None, got {num_threads!r}"
        )


def check_deadline(deadline: Any) -> None:
    """Check the time at which the stepping of a batch ends."""
    is_number = isinstance(deadline, (int, float)) and not isinstance(deadline, bool)
    if not is_number or math.isnan(deadline):
        raise InvalidBatchError(
            f"deadline: expected a time of time.perf_counter(), such as time.perf_counter() + 0.02, or None, "
            f"got {deadline!r}"
        )


def check_step(
    about: EnvDescription,
    actions: object,  # `[B, *action shape]`
    states: object,  # `[B]`, or one state for all rows
    dt: object,  # int or `[B]`, at least 1
    seeds: object,  # `[B]` non-negative integers, or None
    return_state: bool,
    on_error: object,
    deadline: Any = None,
) -> StepBatch:
    """Check and broadcast the arguments of `step_batch`."""
    mask_errors = check_on_error(on_error)
    actions, num_rows = check_actions(about.action_space, actions)
    states = check_states(about.state_format, states, num_rows)
    same_dt = dt if type(dt) is int else None
    dt, seeds = check_dt(dt, num_rows), check_seeds(seeds, num_rows)
    if deadline is not None:
        check_deadline(deadline)
    return StepBatch(states, actions, dt, seeds, return_state, mask_errors, same_dt, deadline)


def check_rollout(
    about: EnvDescription,
    states: object,  # `[B]`, or one state for all rows
    horizon: int | None,
    actions: object,  # `[B, H, *action shape]`; None draws random actions
    action_seed: int | None,
    seeds: object,  # `[B]` non-negative integers, or None
    discount: float,
    on_error: object,
    deadline: Any = None,
) -> RolloutBatch:
    """Check and broadcast the arguments of `rollout_batch`."""
    mask_errors = check_on_error(on_error)
    if horizon is None and actions is None:
        raise InvalidBatchError(
            "horizon: expected an integer of at least 1 because no actions are given, got None"
        )
    horizon = _length(actions) if horizon is None else horizon
    is_integer = isinstance(horizon, (int, np.integer)) and not isinstance(horizon, bool)
    if not is_integer or not 1 <= horizon <= MAX_STEPS:
        raise InvalidBatchError(f"horizon: expected an integer from 1 to {MAX_STEPS}, got {horizon!r}")
    if not isinstance(discount, (int, float, np.number)) or not 0 <= discount <= 1:
        raise InvalidBatchError(f"discount: expected a number in [0, 1], got {discount!r}")
    action_seed = secrets.randbits(63) if action_seed is None else check_seed(action_seed, "action_seed")
    num_rows = None
    if actions is not None:
        actions, num_rows = _check_sequences(about.action_space, actions, int(horizon))
    states = check_states(about.state_format, states, num_rows)
    seeds, discount = check_seeds(seeds, len(states)), float(discount)
    if deadline is not None:
        check_deadline(deadline)
    return RolloutBatch(states, int(horizon), actions, action_seed, 0, seeds, discount, mask_errors, deadline)


def _length(actions: Any) -> int:
    """Return the H of actions `[B, H, ...]`."""
    while isinstance(actions, (dict, tuple)) and len(actions):
        actions = next(iter(actions.values())) if isinstance(actions, dict) else actions[0]
    try:
        return len(actions[0])
    except (TypeError, IndexError, KeyError) as error:
        raise InvalidBatchError(
            f"actions: expected shape (B, H, *action shape), got {np.shape(actions)}"
        ) from error


def _check_sequences(space: Space[object], actions: Any, horizon: int) -> tuple[Any, int]:
    """Check actions `[B, H, ...]`. Returns them as `[B * H, ...]`, and B."""
    if not is_fixed(space):
        lengths = {len(sequence) for sequence in actions}
        if lengths - {horizon}:
            raise InvalidBatchError(f"actions: expected {horizon} per row, got rows of {sorted(lengths)}")
        flat, _ = check_actions(space, [action for sequence in actions for action in sequence])
        return flat, len(actions)
    shapes = []

    def flatten(leaf: object) -> Any:
        try:
            array = np.asarray(leaf)
        except ValueError as error:
            raise InvalidBatchError(
                f"actions: expected {horizon} per row, got rows of different lengths"
            ) from error
        shapes.append(array.shape)
        if array.ndim < 2 or array.shape[1] != horizon:
            raise InvalidBatchError(
                f"actions: expected shape (B, {horizon}, *action shape), got {array.shape}"
            )
        return array.reshape(-1, *array.shape[2:])

    flat, total = check_actions(space, map_leaves(flatten, actions))
    if len({shape[0] for shape in shapes}) > 1:
        raise InvalidBatchError(
            f"actions: expected the same number of rows in every part, got shapes {shapes}"
        )
    return flat, total // horizon
