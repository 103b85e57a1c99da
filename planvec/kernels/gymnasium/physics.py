"""What the kernels of classic control share: their constants, and the states that they step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray


def numbers(env: Any, *names: str) -> tuple[float, ...]:
    """Return attributes of an environment as floats."""
    values = [getattr(env, name) for name in names]
    for name, value in zip(names, values, strict=True):
        if type(value) not in (int, float):
            raise ValueError(f"{name} is a {type(value).__name__}")
    return tuple(map(float, values))


@njit(error_model="numpy", forceinline=True)
def is_moderate(number: float) -> bool:
    """Return whether a number is finite and not large."""
    # Other numbers make the environments raise, warn, or turn an angle for ever.
    return -1e6 < number < 1e6


def spread_physics(*limits: float) -> Callable[[NDArray[Any], np.random.Generator, Any], None]:
    """Return a function for `Kernel.spread` that draws the field `physics` from a box around 0."""

    def spread(states: NDArray[Any], random: np.random.Generator, env: Any) -> None:
        states["physics"] = random.uniform(-1, 1, (len(states), len(limits))) * limits
        if "single" in (states.dtype.names or ()):
            states["single"] = random.random(len(states)) < 0.5

    return spread
