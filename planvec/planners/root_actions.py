"""Choose an action from those that a search began with.

Letters: B rows, K distinct actions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from planvec.errors import UnsupportedEnvError
from planvec.rows.random_actions import is_uniform

__all__ = ["check_action_space", "mean_action", "standard_errors", "tally", "winner"]


def check_action_space(space: Space[Any]) -> None:
    """Whether actions can be drawn uniformly.

    Raises:
        UnsupportedEnvError: Not a Discrete, MultiDiscrete or MultiBinary space, nor a bounded Box.
    """
    if is_uniform(space):
        return
    if isinstance(space, spaces.Box):
        raise UnsupportedEnvError(
            f"action_space: expected a Box with finite bounds, got {space}; wrap the environment in "
            "gymnasium.wrappers.RescaleAction or TransformAction"
        )
    raise UnsupportedEnvError(
        f"action_space: expected Discrete, MultiDiscrete, MultiBinary or a bounded Box, got {space}; "
        "wrap the environment so that its actions are one array"
    )


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
    distinct, index = _distinct(space, actions)
    counts = np.bincount(index, minlength=len(distinct)).astype(np.int64)
    return distinct, counts, _means(index, returns, counts)


def standard_errors(
    space: Space[Any], actions: NDArray[Any], returns: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The standard errors `[K]` of the means of `tally`; NaN where the count is below 2."""
    distinct, index = _distinct(space, actions)
    counts = np.bincount(index, minlength=len(distinct))
    squares = (returns - _means(index, returns, counts)[index]) ** 2
    variances = _means(index, squares, counts)
    errors = np.full(len(distinct), np.nan)
    np.divide(variances, counts - 1, out=errors, where=counts > 1)
    np.sqrt(errors, out=errors)
    return errors


def _distinct(space: Space[Any], actions: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The distinct actions, and which of them each row carries."""
    if isinstance(space, spaces.Discrete):
        return np.arange(int(space.n), dtype=space.dtype) + space.start, actions - space.start
    distinct, index = np.unique(actions, axis=0, return_inverse=True)
    return distinct, index.reshape(-1)  # NumPy 2.0 shaped it like the actions


def _means(
    index: NDArray[np.int64], values: NDArray[np.float64], counts: NDArray[np.int64]
) -> NDArray[np.float64]:
    means = np.full(len(counts), np.nan)
    sums = np.bincount(index, weights=values, minlength=len(counts))
    np.divide(sums, counts, out=means, where=counts > 0)
    return means


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
