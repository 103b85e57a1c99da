"""Compiled distances between observations. Letters: B walkers, L living ones, D numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.kernels import jit
from planvec.planners.swarm.features import Features


@jit(cache=True, allocates=True)
def distances(
    features: Features, companions: NDArray[np.int64], living: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the Euclidean distance `[B]` of each observation to that of its companion."""
    # Each number is divided by its standard deviation, so that a velocity of 0.07 counts as much as a
    # position of 1.2; a label that differs adds 1 to the square.
    # `companions`: `[B]`, for each walker the one to compare with. `living`: `[L]`, the walkers from which
    # the standard deviations are computed.
    squares = np.zeros(len(companions))
    _add_squares(squares, features.singles, companions, living)
    _add_squares(squares, features.doubles, companions, living)
    labels = features.labels
    for walker in range(len(companions)):
        for index in range(labels.shape[1]):
            if labels[walker, index] != labels[companions[walker], index]:
                squares[walker] += 1.0
        squares[walker] = math.sqrt(squares[walker])
    return squares


@jit(cache=True, allocates=True)
def _add_squares(
    squares: NDArray[np.float64],  # `[B]`, written
    numbers: NDArray[np.floating[Any]],  # `[B, D]`
    companions: NDArray[np.int64],
    living: NDArray[np.int64],
) -> None:
    """Add the squared differences of numbers, in standard deviations."""
    num_numbers = numbers.shape[1]
    deviations = _standard_deviations(numbers, living)
    for walker in range(len(companions)):
        companion, square = companions[walker], 0.0
        for index in range(num_numbers):
            difference = np.float64(numbers[walker, index]) - np.float64(numbers[companion, index])
            difference /= deviations[index]
            square += difference * difference
        squares[walker] += square


@jit(cache=True, allocates=True)
def _standard_deviations(numbers: NDArray[np.floating[Any]], rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the standard deviation `[D]` of each number over some rows; 1 where all are equal."""
    num_numbers = numbers.shape[1]
    means, deviations = np.zeros(num_numbers), np.zeros(num_numbers)
    for row in rows:
        for index in range(num_numbers):
            means[index] += numbers[row, index]
    for index in range(num_numbers):
        means[index] /= len(rows)
    for row in rows:
        for index in range(num_numbers):
            centred = numbers[row, index] - means[index]
            deviations[index] += centred * centred
    for index in range(num_numbers):
        variance = deviations[index] / len(rows)
        deviations[index] = math.sqrt(variance) if variance > 0.0 else 1.0  # else: 0, or NaN
    return deviations
