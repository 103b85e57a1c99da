"""How far observations lie apart. Letters: B rows, D numbers, K labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

__all__ = ["Features", "observation_features"]


class Features(NamedTuple):
    """What of a batch of observations distances are measured by.

    Attributes:
        numbers: `[B, D]` float64 (float32 where all are small integers, as in images).
        labels: `[B, K]` int64: they differ or not, but none lies between two others.
    """

    numbers: NDArray[np.floating[Any]]
    labels: NDArray[np.int64]

    def take(self, rows: NDArray[np.int64]) -> Features:
        """The rows of an index array."""
        return Features(self.numbers[rows], self.labels[rows])

    def distances(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Euclidean distance `[B]` of each row to the row that `rows` `[B]` names.

        A label that differs counts as a distance of 1.
        """
        apart = self.numbers - self.numbers[rows]
        squares = np.einsum("bd,bd->b", apart, apart).astype(np.float64)
        squares += np.count_nonzero(self.labels != self.labels[rows], axis=1)
        return np.sqrt(squares)


def observation_features(
    space: Space[Any], observations: Any, num_rows: int
) -> Features:
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
    for leaf_space, leaf in _space_leaves(space, observations):
        flat = np.asarray(leaf).reshape(num_rows, -1)
        if isinstance(leaf_space, (spaces.Discrete, spaces.MultiDiscrete)):
            labels.append(flat.astype(np.int64))
        else:
            numbers.append(flat.astype(np.float32 if flat.dtype.itemsize == 1 else np.float64))
    return Features(np.concatenate(numbers, axis=1), np.concatenate(labels, axis=1))


def _space_leaves(space: Space[Any], tree: Any) -> Iterator[tuple[Space[Any], Any]]:
    if isinstance(space, spaces.Dict):
        for key, child in space.spaces.items():
            yield from _space_leaves(child, tree[key])
    elif isinstance(space, spaces.Tuple):
        for child, part in zip(space.spaces, tree, strict=True):
            yield from _space_leaves(child, part)
    elif isinstance(
        space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    ):
        yield space, tree
