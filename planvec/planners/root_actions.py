"""Statistics of the actions that simulations begin with, and the choice among them.

Letters: B rows, K distinct actions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from planvec.errors import UnsupportedEnvError
from planvec.rows import BatchStepper, action_masks, draw_legal, is_uniform, uniform_actions


def draw_action(env: BatchStepper, state: np.ndarray, generator: np.random.Generator) -> Any:
    """Draw a legal action at a state `[1]`: for a search that had no time to compare any."""
    space = env.action_space
    masks = action_masks(space, state)
    if masks is None:
        return uniform_actions(space, generator, 1)[0]
    return draw_legal(space, masks, generator.random((1, *(space.shape or ()))))[0]


def check_action_space(space: Space[object]) -> None:
    """Check that actions can be drawn uniformly."""
    if is_uniform(space):
        return
    if isinstance(space, spaces.Box):
        raise UnsupportedEnvError(
            f"action_space: expected a Box with finite bounds, got {space}; {bounds_advice(space)}"
        )
    raise UnsupportedEnvError(
        f"action_space: expected Discrete, MultiDiscrete, MultiBinary or a bounded Box, got {space}; "
        "wrap the environment so that its actions are one array"
    )


def bounds_advice(space: spaces.Box) -> str:
    """Return how to give finite bounds to a Box: RescaleAction needs them itself, ClipAction removes them."""
    low, high = (np.where(np.isfinite(part), part, part.dtype.type(0)) for part in (space.low, space.high))
    low = np.where(np.isfinite(space.low), low, np.minimum(high, 0) - 1)
    high = np.where(np.isfinite(space.high), high, np.maximum(low, 0) + 1)
    bounds = ", ".join(
        str(part.flat[0]) if (part == part.flat[0]).all() else f"np.array({part.tolist()}, np.{space.dtype})"
        for part in (low, high)
    )
    return (
        "choose bounds that are wide enough: gymnasium.wrappers.TransformAction(env, lambda action: action, "
        f"gymnasium.spaces.Box({bounds}, {space.shape}, np.{space.dtype}))"
    )


# largest number of actions of a MultiDiscrete or MultiBinary space that are listed; else they are drawn
_MAX_LISTED = 256
# largest number of actions of a Discrete space that are listed, or have probabilities
MAX_CATEGORIES = 1 << 20


def equal_actions(actions: np.ndarray, action: object) -> NDArray[np.bool_]:
    """Return which of some actions `[A, *action shape]` are equal to an action, `[A]`."""
    equal: NDArray[np.bool_] = (actions == np.asarray(action)).reshape(len(actions), -1).all(axis=1)
    return equal


def list_actions(space: Any) -> np.ndarray | None:
    """Return all actions `[A, *action shape]` of a small discrete space; None where they have to be drawn."""
    check_action_space(space)
    if isinstance(space, spaces.Discrete):
        if space.n > MAX_CATEGORIES:
            return None
        actions: np.ndarray = np.arange(int(space.n), dtype=space.dtype) + space.dtype.type(space.start)
        return actions
    if isinstance(space, spaces.Box):
        return None
    is_binary = isinstance(space, spaces.MultiBinary)
    sizes: Any = np.full(space.shape, 2) if is_binary else space.nvec
    if np.prod(sizes.astype(float)) > _MAX_LISTED:
        return None
    indices = np.indices(sizes.reshape(-1)).reshape(sizes.size, -1).T.reshape(-1, *sizes.shape)
    listed: np.ndarray = (indices + (0 if is_binary else space.start)).astype(space.dtype)
    return listed


class ActionStatistics(NamedTuple):
    """Returns by first action."""

    actions: np.ndarray  # `[K, *action shape]`, the distinct actions; all of a Discrete space
    counts: NDArray[np.int64]  # `[K]` int64, number of rows with each
    means: NDArray[np.float64]  # `[K]` float64, mean return of each; NaN where the count is 0
    # `[K]` float64, standard error of the mean; NaN where the count is below 2
    standard_errors: NDArray[np.float64]


def action_statistics(
    space: Space[object], actions: np.ndarray, returns: NDArray[np.float64]
) -> ActionStatistics:
    """Group rows by their action."""
    # `actions`: `[B, *action shape]`. `returns`: `[B]`.
    if isinstance(space, spaces.Discrete) and space.n <= MAX_CATEGORIES:
        distinct, index = np.arange(int(space.n), dtype=space.dtype) + space.start, actions - space.start
    else:
        # As `np.unique(axis=0, return_inverse=True)`, which takes up to 6 times as long.
        flat = actions.reshape(len(actions), -1)
        order = np.lexsort(flat.T[::-1])
        is_new = np.ones(len(order), np.bool_)
        is_new[1:] = (flat[order[1:]] != flat[order[:-1]]).any(axis=1)
        index = np.empty(len(order), np.int64)
        index[order] = np.cumsum(is_new) - 1
        distinct = actions[order[is_new]]
    num_distinct = len(distinct)
    counts = np.bincount(index, minlength=num_distinct).astype(np.int64, copy=False)
    known = np.where(counts > 0, counts, np.nan)
    means = np.bincount(index, returns, num_distinct) / known
    variances = np.bincount(index, (returns - means[index]) ** 2, num_distinct) / known
    errors = np.sqrt(variances / np.where(counts > 1, counts - 1, np.nan))
    return ActionStatistics(distinct, counts, means, errors)


def most_visited(counts: NDArray[np.int64], means: NDArray[np.float64]) -> int:
    """Return the index of the highest count; of equal counts the highest mean, then the lowest index."""
    keys = list(zip(counts.tolist(), means.tolist(), strict=True))
    return max(range(len(keys)), key=keys.__getitem__)


def mean_action(space: spaces.Box, actions: np.ndarray) -> np.ndarray:
    """Return the mean of actions `[B, *action shape]`, clipped to the bounds of the Box."""
    with np.errstate(over="ignore"):
        mean = actions.mean(axis=0, dtype=np.float64)
    if not np.isfinite(mean).all():  # the sum is beyond the largest number
        mean = (actions / np.float64(len(actions))).sum(axis=0)
    return box_actions(space, mean)


def box_actions(space: spaces.Box, numbers: NDArray[np.float64]) -> np.ndarray:
    """Return numbers as actions of a Box: rounded where it holds integers, and clipped to its bounds."""
    if space.dtype.kind == "f":
        clipped: np.ndarray = np.clip(numbers, space.low, space.high).astype(space.dtype)
        return clipped
    rounded = np.rint(numbers)
    with np.errstate(invalid="ignore"):  # float64 rounds the highest integers of 64 bits up to one beyond
        inside = rounded.astype(space.dtype)
    is_high, is_low = rounded >= space.high.astype(np.float64), rounded <= space.low.astype(np.float64)
    actions: np.ndarray = np.where(is_high, space.high, np.where(is_low, space.low, inside))
    return actions


# -- Walks through a batch of elements of a nested space, and puts it together again -------------------------


def space_leaves(space: Space[object], tree: Any, path: str = "") -> Iterator[tuple[str, Space[Any], Any]]:
    """Yield the parts of a stacked batch: dotted path ("" if there is one part), space, batch."""
    # Unlike `space_arrays.leaves` it takes a tuple for nested only where the space is a Tuple: a batch of
    # texts is a tuple of strings.
    if isinstance(space, spaces.Dict):
        for key, child in space.spaces.items():
            yield from space_leaves(child, tree[key], f"{path}.{key}" if path else str(key))
    elif isinstance(space, spaces.Tuple):
        for index, (child, part) in enumerate(zip(space.spaces, tree, strict=True)):
            yield from space_leaves(child, part, f"{path}.{index}" if path else str(index))
    else:
        yield path, space, tree


def arrays_of_leaves(space: Space[object], name: str, tree: object) -> dict[str, np.ndarray]:
    """Return the parts of a stacked batch that hold numbers or text, named by `name` and their paths."""
    arrays = {}
    for path, _, leaf in space_leaves(space, tree):
        try:
            array = np.asarray(leaf)
        except ValueError:  # elements of different shapes
            continue
        if array.dtype.kind in "biufcU":
            arrays[f"{name}.{path}" if path else name] = array
    return arrays


def tree_of_leaves(space: Space[object], name: str, arrays: Mapping[str, np.ndarray]) -> Any:
    """Return the stacked batch that `arrays_of_leaves` turned into arrays."""
    if isinstance(space, spaces.Dict):
        return {key: tree_of_leaves(child, f"{name}.{key}", arrays) for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(
            tree_of_leaves(child, f"{name}.{index}", arrays) for index, child in enumerate(space.spaces)
        )
    return arrays[name]
