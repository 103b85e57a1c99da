"""Sums, norms and limits of numbers with the bits of NumPy.

NumPy adds up eight partial sums of up to 128 numbers (`pairwise_sum` in its C source).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

MAX_TERMS = 128  # largest number of terms that NumPy adds in one block
# whether `np.clip` keeps a number that equals a limit, as it does since version 2; zeros differ in sign
_KEEPS_EQUAL = bool(np.signbit(np.clip(np.full(MAX_TERMS, -0.0), 0.0, 1.0)).all())


@njit(error_model="numpy")
def single_squares(numbers: NDArray[np.float32]) -> Any:
    """Return `np.sum(np.square(numbers))` in single precision."""
    zero = np.float32(0.0)
    size, total = len(numbers), zero
    whole = size - size % 8
    if whole:
        a, b, c, d, e, f, g, h = zero, zero, zero, zero, zero, zero, zero, zero
        for at in range(0, whole, 8):
            a += numbers[at] * numbers[at]
            b += numbers[at + 1] * numbers[at + 1]
            c += numbers[at + 2] * numbers[at + 2]
            d += numbers[at + 3] * numbers[at + 3]
            e += numbers[at + 4] * numbers[at + 4]
            f += numbers[at + 5] * numbers[at + 5]
            g += numbers[at + 6] * numbers[at + 6]
            h += numbers[at + 7] * numbers[at + 7]
        total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for at in range(whole, size):
        total += numbers[at] * numbers[at]
    return total


@njit(error_model="numpy")
def squares_between(numbers: NDArray[np.float64], low: float, high: float) -> float:
    """Return `np.sum(np.square(np.clip(numbers, low, high)))`; see `squares`."""
    size, total = len(numbers), 0.0
    whole = size - size % 8
    if whole:
        a, b, c, d, e, f, g, h = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for at in range(0, whole, 8):
            a += clip(numbers[at], low, high) ** 2
            b += clip(numbers[at + 1], low, high) ** 2
            c += clip(numbers[at + 2], low, high) ** 2
            d += clip(numbers[at + 3], low, high) ** 2
            e += clip(numbers[at + 4], low, high) ** 2
            f += clip(numbers[at + 5], low, high) ** 2
            g += clip(numbers[at + 6], low, high) ** 2
            h += clip(numbers[at + 7], low, high) ** 2
        total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for at in range(whole, size):
        total += clip(numbers[at], low, high) ** 2
    return total


@njit(error_model="numpy")
def squares(numbers: NDArray[np.float64]) -> float:
    """Return `np.sum(np.square(numbers))`."""
    return squares_between(numbers, -np.inf, np.inf)


@njit(error_model="numpy")
def clip(number: float, low: float, high: float) -> float:
    """Return `np.clip(number, low, high)`, also of what is not a number, and of zeros."""
    if number != number:
        return number
    if _KEEPS_EQUAL:
        number = low if number < low else number
        return high if number > high else number
    number = number if number > low else low
    return number if number < high else high
