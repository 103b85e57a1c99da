"""The numbers of observations that distances are computed from.

Letters: B rows, S single and D double precision numbers, K labels.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from planvec.planners.space_leaves import space_leaves

# Bytes of an image that are compared. To compare all 100,000 would take longer than a step.
_MAX_BYTES = 2048
_GOLDEN = 0.618  # golden ratio


class Features(NamedTuple):
    """The numbers of a batch of observations."""

    singles: NDArray[np.float32]  # `[B, S]` float32
    doubles: NDArray[np.float64]  # `[B, D]` float64
    # `[B, K]` int64, categories: two of them are equal or different, without an order
    labels: NDArray[np.int64]


def observation_features(space: Space[Any], observations: Any, num_rows: int) -> Features:
    """Flatten a batch of observations."""
    # Box and MultiBinary give numbers, Discrete and MultiDiscrete give labels, Dict and Tuple the features of
    # their parts. Parts of any other space (Text, Graph, ...) do not count.
    nothing = _nothing(num_rows)
    if type(space) is spaces.Box:
        return _add_numbers(nothing, space, observations)
    features = [nothing]
    for _, leaf_space, leaf in space_leaves(space, observations):
        if isinstance(leaf_space, (spaces.Discrete, spaces.MultiDiscrete)):
            labels = np.asarray(leaf).reshape(num_rows, -1).astype(np.int64)
            features.append(nothing._replace(labels=labels))
        elif isinstance(leaf_space, (spaces.Box, spaces.MultiBinary)):
            features.append(_add_numbers(nothing, leaf_space, np.asarray(leaf)))
    return Features(*(np.concatenate(parts, axis=1) for parts in zip(*features, strict=True)))


@functools.cache
def _nothing(num_rows: int) -> Features:
    """Return the features of observations without numbers and labels."""
    return Features(
        np.empty((num_rows, 0), np.float32), np.empty((num_rows, 0)), np.empty((num_rows, 0), np.int64)
    )


def _add_numbers(nothing: Features, space: Space[Any], batch: NDArray[Any]) -> Features:
    """Return the features of numbers; of a large image, about `_MAX_BYTES` bytes, evenly spread over it."""
    flat = batch if batch.ndim == 2 else batch.reshape(len(batch), -1)
    if flat.dtype.itemsize == 1:
        if flat.shape[1] > 2 * _MAX_BYTES:
            flat = flat[:, :: _stride(flat.shape[1], math.prod((space.shape or (1,))[1:]))]
    elif flat.dtype != np.float32:
        return Features(nothing.singles, np.ascontiguousarray(flat, np.float64), nothing.labels)
    return Features(np.ascontiguousarray(flat, np.float32), nothing.doubles, nothing.labels)


@functools.cache
def _stride(size: int, line: int) -> int:
    """Return the distance between two bytes of an image that are compared."""
    # From line to line, the compared bytes have to shift by about the golden ratio of the stride, so that
    # they form a lattice without gaps. With straight columns, motion between two columns would not be seen.
    # `size`: Bytes of the image. `line`: Bytes of one line.
    lowest = -(-size // _MAX_BYTES)
    return min(range(lowest, 2 * lowest), key=lambda stride: (abs(line % stride / stride - _GOLDEN), stride))
