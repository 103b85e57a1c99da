"""Checks the actions that users pass. Letters: B rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.rows.space_arrays import SIMPLE, is_fixed, leaves

_INT64 = np.dtype(np.int64)


def check_actions(space: Space[Any], actions: Any) -> tuple[Any, int]:
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
        return _check_listed(space, actions)
    checked = _check_tree(space, actions, "actions")
    lengths = {len(leaf) for leaf in leaves(checked)}
    if len(lengths) > 1:
        raise InvalidBatchError(
            f"actions: expected the same number of rows in every part, got {sorted(lengths)}"
        )
    return checked, lengths.pop() if lengths else 0


def one_action(space: Space[Any], action: Any) -> Any:
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


def _is_inside(space: Any, array: NDArray[Any]) -> bool:
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
