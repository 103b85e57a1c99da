"""Functions that several tasks share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.kernels.mujoco.compiling import inner
from planvec.kernels.mujoco.sums import single_squares
from planvec.kernels.mujoco.task import kind_of_product


def is_single(weight: Any) -> bool:
    """Return whether NumPy multiplies this weight with a float32 in single precision."""
    return kind_of_product(weight, np.float32(1), np.float32, np.float64) is np.float32


@inner
def control_cost(action: NDArray[np.float32], weight: float, single: bool) -> float:
    """Return `weight * np.sum(np.square(action))`."""
    total = single_squares(action)
    if single:
        return float(np.float32(weight) * total)
    return weight * float(total)


def control_kind(weight: Any) -> type:
    """Return the type of the control cost in an info."""
    return kind_of_product(weight, np.float32(1), np.float32, np.float64)


@inner
def copy_from(source: NDArray[np.float64], first: int, target: NDArray[np.float64], at: int) -> int:
    """Copy numbers from an index on. Returns the index after the last one in the target."""
    for index in range(first, len(source)):
        target[at] = source[index]
        at += 1
    return at
