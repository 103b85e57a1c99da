"""Reads dotted attributes, and stacks the values that several states have. Letters: B rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NUMERIC = (bool, int, float, list, tuple, np.ndarray, np.generic)


def stack_values(values: Sequence[Any]) -> NDArray[Any]:
    """Stack B values in one array."""
    # Returns `[B, ...]` of the common dtype if all values are numbers, or arrays or lists of numbers of one
    # shape; otherwise `[B]` of dtype object.
    try:
        arrays = [np.asarray(value) for value in values if isinstance(value, _NUMERIC)]
    except ValueError:  # lists of different lengths in a list
        arrays = []
    is_alike = len(arrays) == len(values) > 0 and len({array.shape for array in arrays}) == 1
    if is_alike and all(array.dtype.kind in "biufc" for array in arrays):
        return np.stack(arrays)
    objects = np.empty(len(values), object)
    for row, value in enumerate(values):
        objects[row] = value
    return objects


def resolve(target: Any, names: Iterable[str]) -> Any:
    """Follow a chain of attribute names from an object and return the last value."""
    for name in names:
        target = getattr(target, name)
    return target
