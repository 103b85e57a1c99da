"""How far observations lie apart. Letters: B rows, D numbers, K labels."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

__all__ = ["Features", "observation_features", "space_leaves"]

_MAX_PIXELS = 2048
"""A picture of 100,000 bytes would cost more to compare than to step to."""
_GOLDEN = 0.618


class Features(NamedTuple):
    """The part of a batch of observations that distances are measured by.

    Attributes:
        numbers: `[B, D]` float64 (float32 where all are bytes or bits, as in images).
        labels: `[B, K]` int64: two of them differ or not, but no label lies between two others.
    """

    numbers: NDArray[np.floating[Any]]
    labels: NDArray[np.int64]

    def distances(self, companions: NDArray[np.int64], among: NDArray[np.int64]) -> NDArray[np.float64]:
        """Euclidean distance `[B]` of each row to its companion.

        Each number is in units of its own standard deviation, so that a velocity of 0.07 counts as
        much as a position of 1.2; a label that differs adds 1 to the square.

        Args:
            companions: `[B]`, the row that each row is compared with.
            among: Rows that the standard deviations are taken over.
        """
        counted = self.numbers if len(among) == len(self.numbers) else self.numbers[among]
        centred = counted - counted.sum(axis=0) / len(counted)
        variance = np.einsum("bd,bd->d", centred, centred) / len(counted)
        variance[~(variance > 0)] = 1.0
        apart = self.numbers - self.numbers[companions]
        apart /= np.sqrt(variance)
        squares = np.einsum("bd,bd->b", apart, apart).astype(np.float64)
        if self.labels.shape[1]:
            squares += np.count_nonzero(self.labels != self.labels[companions], axis=1)
        distances: NDArray[np.float64] = np.sqrt(squares)
        return distances


def observation_features(space: Space[Any], observations: Any, num_rows: int) -> Features:
    """Flatten a batch of observations.

    Box and MultiBinary give numbers, Discrete and MultiDiscrete give labels, Dict and Tuple what
    their parts give. Parts of any other space (Text, Graph, ...) do not count.

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
    """A batch as `[B, D]`; of a large picture about `_MAX_PIXELS` bytes, evenly spread over it."""
    flat = batch.reshape(len(batch), -1)
    if flat.dtype.itemsize > 1:
        return flat.astype(np.float64)
    if flat.shape[1] > 2 * _MAX_PIXELS:
        flat = flat[:, :: _stride(flat.shape[1], math.prod((space.shape or (1,))[1:]))]
    return flat.astype(np.float32)


@functools.cache
def _stride(size: int, line: int) -> int:
    """Every how many bytes of a picture one is looked at.

    From line to line the bytes have to shift by about the golden part of the stride, as in this lattice
    no strip is left that they never fall on; straight columns would overlook what moves between them.
    """
    lowest = -(-size // _MAX_PIXELS)
    return min(range(lowest, 2 * lowest), key=lambda stride: (abs(line % stride / stride - _GOLDEN), stride))


def space_leaves(space: Space[Any], tree: Any, path: str = "") -> Iterator[tuple[str, Space[Any], Any]]:
    """The parts of a stacked batch: dotted path ("" if it is one part), space, batch.

    Unlike `space_arrays.leaves` it takes a tuple for nested only where the space is a Tuple: a batch
    of texts is a tuple of strings.
    """
    if isinstance(space, spaces.Dict):
        for key, child in space.spaces.items():
            yield from space_leaves(child, tree[key], f"{path}.{key}" if path else str(key))
    elif isinstance(space, spaces.Tuple):
        for index, (child, part) in enumerate(zip(space.spaces, tree, strict=True)):
            yield from space_leaves(child, part, f"{path}.{index}" if path else str(index))
    else:
        yield path, space, tree
