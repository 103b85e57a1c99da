"""The range of random actions, in the form that kernels take. Letters: A numbers of an action."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from planvec.rows import is_uniform

_EXACT = 2.0**53  # largest integer up to which float64 holds all integers


class ActionRange(NamedTuple):
    """Describes the random actions of a space: `low + size * u`, with u in [0, 1), between limits."""

    # Integers are rounded down before `low` is added. See `planvec.rows.random_actions.actions_of`.

    low: NDArray[np.float64]
    size: NDArray[np.float64]
    lowest: NDArray[np.float64]  # `[A]` float64, the limits that rounding may exceed
    highest: NDArray[np.float64]

    @classmethod
    def of(cls, space: gymnasium.Space[Any]) -> ActionRange | None:
        """Return the range of a space; None if its random actions are drawn otherwise."""
        if not is_uniform(space):
            return None
        low: Any
        size: Any
        if isinstance(space, spaces.Box):
            low = space.low.astype(np.float64)
            with np.errstate(over="ignore"):
                size = space.high.astype(np.float64) - low + (space.dtype.kind != "f")
        elif isinstance(space, spaces.Discrete):
            low, size = int(space.start), int(space.n)
        elif isinstance(space, spaces.MultiDiscrete):
            low, size = space.start, space.nvec
        else:
            low, size = np.zeros(space.shape), np.full(space.shape, 2)
        low, size = (np.array(part, np.float64).reshape(-1) for part in (low, size))
        is_integer = space.dtype is None or space.dtype.kind != "f"
        if not np.isfinite(size).all() or (
            is_integer and max(abs(low).max(initial=0), size.max(initial=0)) > _EXACT
        ):
            return None
        highest = np.array(getattr(space, "high", low), np.float64).reshape(-1)
        return cls(low, size, low, highest)
