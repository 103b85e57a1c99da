"""Draw random actions, and choose one from those that a search began with.

Letters: B rows, K distinct actions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from planvec.errors import UnsupportedEnvError

__all__ = ["check_action_space", "draw_actions", "mean_action", "tally", "winner"]


def check_action_space(space: Space[Any]) -> None:
    """Whether actions can be drawn uniformly.

    Raises:
        UnsupportedEnvError: Not a Discrete, MultiDiscrete or MultiBinary space, nor a bounded Box.
    """
    if isinstance(space, spaces.Box):
        if not space.is_bounded("both"):
            raise UnsupportedEnvError(
                f"action_space: expected a Box with finite bounds, got {space}; wrap the "
                "environment in gymnasium.wrappers.RescaleAction or TransformAction"
            )
    elif not isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        raise UnsupportedEnvError(
            "action_space: expected Discrete, MultiDiscrete, MultiBinary or a bounded Box, got "
            f"{space}; wrap the environment so that its actions are one array"
        )


def draw_actions(space: Space[Any], generator: np.random.Generator, num_rows: int) -> NDArray[Any]:
    """Uniformly random actions `[B, *action shape]`.

    Args:
        space: One that `check_action_space` accepts.
        generator: What they are drawn from.
        num_rows: B.
    """
    shape = (num_rows, *(space.shape or ()))
    if isinstance(space, spaces.Discrete):
        actions = generator.integers(int(space.start), int(space.start + space.n), shape)
    elif isinstance(space, spaces.MultiDiscrete):
        actions = generator.integers(space.start, space.start + space.nvec, shape)
    elif isinstance(space, spaces.MultiBinary):
        actions = generator.integers(0, 2, shape)
    else:
        assert isinstance(space, spaces.Box)
        return _draw_box(space, generator, shape)
    return actions.astype(space.dtype)


def _draw_box(space: spaces.Box, generator: np.random.Generator, shape: tuple[int, ...]) -> NDArray[Any]:
    # Typed as Any: the stubs know a space's bounds as floats.
    low: Any = space.low
    high: Any = space.high
    dtype: Any = space.dtype
    if dtype.kind != "f":
        whole: NDArray[Any] = generator.integers(low, high, shape, dtype=dtype, endpoint=True)
        return whole
    span = high.astype(np.float64) - low
    drawn = (low + span * generator.random(shape)).astype(dtype)
    # Rounding may lead out of the box by one unit in the last place.
    inside: NDArray[Any] = np.clip(drawn, low, high)
    return inside


def tally(
    space: Space[Any], actions: NDArray[Any], returns: NDArray[np.float64]
) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.float64]]:
    """Count how many rows carry each action.

    Args:
        space: The space of one action.
        actions: `[B, *action shape]`.
        returns: `[B]`.

    Returns:
        The distinct actions `[K, *action shape]` (all of a Discrete space), their counts `[K]`
        and the mean return of each `[K]`, NaN where the count is 0.
    """
    if isinstance(space, spaces.Discrete):
        distinct = np.arange(int(space.n), dtype=space.dtype) + space.start
        index = actions - space.start
    else:
        distinct, index = np.unique(actions, axis=0, return_inverse=True)
        index = index.reshape(-1)  # NumPy 2.0 shaped it like the actions
    counts = np.bincount(index, minlength=len(distinct)).astype(np.int64)
    sums = np.bincount(index, weights=returns, minlength=len(distinct))
    means = np.full(len(distinct), np.nan)
    np.divide(sums, counts, out=means, where=counts > 0)
    return distinct, counts, means


def winner(counts: NDArray[np.int64], means: NDArray[np.float64]) -> int:
    """The index with the highest count; of equals the highest mean return, then the lowest index."""
    best = np.flatnonzero(counts == counts.max())
    return int(best[np.argmax(means[best])])


def mean_action(space: spaces.Box, actions: NDArray[Any]) -> NDArray[Any]:
    """The mean of actions `[B, *action shape]`, inside the box."""
    mean = actions.mean(axis=0, dtype=np.float64)
    if space.dtype.kind != "f":
        mean = np.rint(mean)
    inside: NDArray[Any] = np.clip(mean, space.low, space.high).astype(space.dtype)
    return inside
