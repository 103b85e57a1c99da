"""Distances between observations. Letters: B rows, D numbers, K labels."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from planvec.planners.space_leaves import space_leaves

__all__ = ["Features", "observation_features"]

_MAX_BYTES = 2048
"""Bytes of an image that are compared. To compare all 100,000 would take longer than a step."""
_GOLDEN = 0.618
"""Golden ratio."""


class Features(NamedTuple):
    """The numbers of a batch of observations that distances are computed from.

    Attributes:
        numbers: `[B, D]` float64 (float32 where all are bytes or bits, as in images).
        labels: `[B, K]` int64, categories: two of them are equal or different, without an order.
    """

    numbers: NDArray[np.floating[Any]]
    labels: NDArray[np.int64]

    def distances(self, companions: NDArray[np.int64], among: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the Euclidean distance `[B]` of each row to its companion.

        Each number is divided by its standard deviation, so that a velocity of 0.07 counts as much as
        a position of 1.2; a label that differs adds 1 to the square.

        Args:
            companions: `[B]`, for each row the one to compare with.
            among: Rows from which the standard deviations are computed.
        """
        counted = self.numbers if len(among) == len(self.numbers) else self.numbers[among]
        centred = counted - counted.sum(axis=0) / len(counted)
        variance = np.einsum("bd,bd->d", centred, centred) / len(counted)
        variance[~(variance > 0)] = 1.0
        differences = self.numbers - self.numbers[companions]
        differences /= np.sqrt(variance)
        squares = np.einsum("bd,bd->b", differences, differences).astype(np.float64)
        if self.labels.shape[1]:
            squares += np.count_nonzero(self.labels != self.labels[companions], axis=1)
        distances: NDArray[np.float64] = np.sqrt(squares)
        return distances


def observation_features(space: Space[Any], observations: Any, num_rows: int) -> Features:
    """Flatten a batch of observations.

    Box and MultiBinary give numbers, Discrete and MultiDiscrete give labels, Dict and Tuple the features of
    their parts. Parts of any other space (Text, Graph, ...) do not count.

    Args:
        space: The space of one observation.
        observations: `[B, ...]`, stacked by that space.
        num_rows: B.
    """
    if type(space) is spaces.Box:
        return Features(_numbers(space, observations), np.empty((num_rows, 0), np.int64))
    numbers: list[NDArray[Any]] = [np.empty((num_rows, 0), np.float32)]
    labels: list[NDArray[Any]] = [np.empty((num_rows, 0), np.int64)]
    for _, leaf_space, leaf in space_leaves(space, observations):
        if isinstance(leaf_space, (spaces.Discrete, spaces.MultiDiscrete)):
            labels.append(np.asarray(leaf).reshape(num_rows, -1).astype(np.int64))
        elif isinstance(leaf_space, (spaces.Box, spaces.MultiBinary)):
            numbers.append(_numbers(leaf_space, np.asarray(leaf)))
    return Features(np.concatenate(numbers, axis=1), np.concatenate(labels, axis=1))


def _numbers(space: Space[Any], batch: NDArray[Any]) -> NDArray[np.floating[Any]]:
    """Flatten a batch to `[B, D]`; of a large image, keep about `_MAX_BYTES` bytes, evenly spread over it."""
    flat = batch.reshape(len(batch), -1)
    if flat.dtype.itemsize > 1:
        return flat.astype(np.float64)
    if flat.shape[1] > 2 * _MAX_BYTES:
        flat = flat[:, :: _stride(flat.shape[1], math.prod((space.shape or (1,))[1:]))]
    return flat.astype(np.float32)


@functools.cache
def _stride(size: int, line: int) -> int:
    """Return the distance between two bytes of an image that are compared.

    From line to line, the compared bytes have to shift by about the golden ratio of the stride, so that they
    form a lattice without gaps. With straight columns, motion between two columns would not be seen.

    Args:
        size: Bytes of the image.
        line: Bytes of one line.
    """
    lowest = -(-size // _MAX_BYTES)
    return min(range(lowest, 2 * lowest), key=lambda stride: (abs(line % stride / stride - _GOLDEN), stride))
