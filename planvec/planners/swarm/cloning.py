"""Choose the walkers that clone, and those that they clone. Letters: B walkers."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["clone_sources", "elites", "pick", "relativize"]

_ROUNDING = 1e-12
"""Relative spread below which values count as equal."""
_TINY = np.finfo(np.float64).tiny


def relativize(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Map values `[B]` of any scale to positive ones about 1 (the paper's "relativize").

    With `z = (x - mean) / std`: `1 + ln(1 + z)` where `z > 0`, else `exp(z)`. Values that are all
    equal, up to rounding, become ones.
    """
    centred = values - values.sum() / len(values)
    squares = centred.dot(centred)
    if not squares > _ROUNDING**2 * values.dot(values):
        return np.ones(len(values))
    z = centred / math.sqrt(squares / len(values))
    above = np.maximum(z, 0.0)
    positive: NDArray[np.float64] = np.exp(z - above) + np.log1p(above)
    return positive


def pick(among: NDArray[np.int64], uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return random elements of `among`, one for each uniform draw in [0, 1)."""
    return among[(uniforms * len(among)).astype(np.int64)]


def elites(values: NDArray[np.float64], living: NDArray[np.int64], num_elites: int) -> NDArray[np.int64]:
    """Return the living walkers with the highest values.

    Args:
        values: `[B]`.
        living: Walkers to choose from.
        num_elites: How many; all of them where there are fewer.
    """
    if num_elites >= len(living):
        return living
    living_values = values[living]
    if num_elites == 1:
        return living[[living_values.argmax()]]
    return living[living_values.argpartition(len(living) - num_elites - 1)[len(living) - num_elites :]]


def clone_sources(
    uniforms: NDArray[np.float64],
    virtual_rewards: NDArray[np.float64],
    living: NDArray[np.int64],
    keep: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Choose for each walker whether it goes on as itself or as a clone of a random living companion.

    Walker `i` clones companion `k` with probability `(VR_k - VR_i) / VR_i`, and always if it is
    dead. Every walker has its own uniform draws.

    Args:
        uniforms: `[2, B]` in [0, 1), to choose the companions, and to decide whether to clone.
        virtual_rewards: `[B]`, 0 for the dead.
        living: Indices of the living walkers, at least one.
        keep: Indices of living walkers that do not clone.

    Returns:
        `[B]` int64, for each walker the one to copy; its own index: none.
    """
    num_walkers = len(virtual_rewards)
    companions = pick(living, uniforms[0])
    own = np.maximum(virtual_rewards, _TINY)
    stays = virtual_rewards[companions] - own <= uniforms[1] * own
    if len(living) < num_walkers:
        lives = np.zeros(num_walkers, bool)
        lives[living] = True
        stays &= lives
    stays[keep] = True
    return np.where(stays, np.arange(num_walkers), companions)
