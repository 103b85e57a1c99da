"""The length of a vector, with the bits of `np.linalg.norm`.

NumPy leaves the sum of squares to its BLAS, which may round after the addition only (a fused multiplication
and addition). Which one it does depends on the processor, and is found out by trying.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numba import njit, types

from planvec.kernels.memory import intrinsic_function

_NUM_TRIED = 200


@intrinsic_function
def _fused(typing_context: Any, first: Any, second: Any, third: Any) -> Any:
    """Return `first * second + third`, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float64(*[types.float64] * 3), generate


@njit(cache=True, error_model="numpy")
def norm(x: float, y: float, fused: bool) -> float:
    """Return `np.linalg.norm([x, y])`."""
    return math.sqrt(_fused(y, y, x * x) if fused else x * x + y * y)


@njit(cache=True, error_model="numpy")
def norm3(x: float, y: float, z: float, fused: bool) -> float:
    """Return `np.linalg.norm([x, y, z])`; see `norm`."""
    return math.sqrt(_fused(z, z, _fused(y, y, x * x)) if fused else x * x + y * y + z * z)


@functools.cache
def dot_is_fused() -> bool:
    """Return whether `np.dot` of two or three numbers rounds once per number."""
    vectors = np.random.default_rng(0).standard_normal((_NUM_TRIED, 3))
    for fused in (False, True):
        if all(
            norm(x, y, fused) == np.linalg.norm([x, y]) and norm3(x, y, z, fused) == np.linalg.norm([x, y, z])
            for x, y, z in vectors
        ):
            return fused
    raise ValueError("np.linalg.norm rounds in an unknown way")
