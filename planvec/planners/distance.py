"""How far observations lie apart. Letters: B rows, D numbers, K labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

__all__ = ["Features", "observation_features", "space_leaves"]

_MAX_PIXELS = 2048
"""A picture of 100,000 bytes would cost more to compare than to step to."""
_MEASURED = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class Features(NamedTuple):
    """The part of a batch of observations that distances are measured by.

    Attributes:
        numbers: `[B, D]` float64 (float32 where all are bytes or bits, as in images).
        labels: `[B, K]` int64: two of them differ or not, but no label lies between two others.
    """

    numbers: NDArray[np.floating[Any]]
    labels: NDArray[np.int64]

    def take(self, rows: NDArray[np.int64]) -> Features:
        """The rows of an index array."""
        return Features(self.numbers[rows], self.labels[rows])

    def distances(self, companions: NDArray[np.int64], among: NDArray[np.int64]) -> NDArray[np.float64]:
        """Euclidean distance `[B]` of each row to its companion.

        Each number is in units of its own standard deviation, so that a velocity of 0.07 counts as
        much as a position of 1.2; a label that differs adds 1 to the square.

        Args:
            companions: `[B]`, the row that each row is compared with.
            among: Rows that the standard deviations are taken over.
        """
        spread = self.numbers[among].std(axis=0)
        spread[~(spread > 0)] = 1.0
        apart = (self.numbers - self.numbers[companions]) / spread
        squares = np.einsum("bd,bd->b", apart, apart).astype(np.float64)
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
    numbers: list[NDArray[Any]] = [np.empty((num_rows, 0), np.float32)]
    labels: list[NDArray[Any]] = [np.empty((num_rows, 0), np.int64)]
    for _, leaf_space, leaf in space_leaves(space, observations):
        if not isinstance(leaf_space, _MEASURED):
            continue
        flat = np.asarray(leaf).reshape(num_rows, -1)
        if isinstance(leaf_space, (spaces.Discrete, spaces.MultiDiscrete)):
            labels.append(flat.astype(np.int64))
        else:
            numbers.append(_pooled(flat) if flat.dtype.itemsize == 1 else flat.astype(np.float64))
    return Features(np.concatenate(numbers, axis=1), np.concatenate(labels, axis=1))


def _pooled(flat: NDArray[Any]) -> NDArray[np.float32]:
    """Bytes `[B, D]` as numbers; those of a large picture in sums of neighbours, about `_MAX_PIXELS`."""
    num_rows, size = flat.shape
    if size <= 2 * _MAX_PIXELS:
        return flat.astype(np.float32)
    block = -(-size // _MAX_PIXELS)
    whole = size // block * block
    sums = flat[:, :whole].reshape(num_rows, -1, block).sum(axis=2, dtype=np.uint32)
    rest = flat[:, whole:].sum(axis=1, dtype=np.uint32, keepdims=True)
    return np.concatenate([sums, rest], axis=1).astype(np.float32)


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
