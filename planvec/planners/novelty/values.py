"""Compiled novelty of rows of integers: a feature says that a column has a value.

Letters: S slots of a hash table, F columns, N features.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.kernels import jit


@jit(inline=True)
def _hash(column: Any, value: Any) -> Any:
    """Return 64 mixed bits of a column and a value (the finaliser of SplitMix64); never 0."""
    word = np.uint64(column + 1) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(value)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31)) | np.uint64(1)


@jit(inline=True)
def _find(key: Any, keys: NDArray[np.uint64]) -> Any:
    """Return the slot of a key, or the free one where it belongs."""
    mask = np.uint64(len(keys) - 1)
    slot = key >> np.uint64(7) & mask
    while keys[slot] != np.uint64(0) and keys[slot] != key:
        slot = (slot + np.uint64(1)) & mask
    return np.int64(slot)


@jit(cache=True)
def mark_values(
    values: NDArray[np.int64],  # `[F]`
    keys: NDArray[np.uint64],
    numbers: NDArray[np.int64],  # `[S]`, their numbers
    stamps: NDArray[np.int32],  # `[N]`, higher for features that were seen at a smaller depth; changed
    num_known: Any,
    stamp: Any,
    found: NDArray[np.int64],  # `[F]`, written: numbers of the features that are new
) -> tuple[int, int]:
    """Mark the features that have no stamp as high as this one, and list them."""
    # `keys`: `[S]`, the hashes of the features that are known; 0: free. More than F are free.
    # Returns the number of new features, and that of the features that are known now.
    count = 0
    for column in range(len(values)):
        key = _hash(column, values[column])
        slot = _find(key, keys)
        if keys[slot] == np.uint64(0):
            keys[slot], numbers[slot] = key, num_known
            num_known += 1
        number = numbers[slot]
        if stamps[number] < stamp:
            stamps[number] = stamp
            found[count] = number
            count += 1
    return count, num_known


@jit(cache=True)
def insert_all(
    keys: NDArray[np.uint64],
    numbers: NDArray[np.int64],
    new_keys: NDArray[np.uint64],
    new_numbers: NDArray[np.int64],
) -> None:
    """Copy the features of a hash table into a larger one."""
    for slot in range(len(keys)):
        if keys[slot] != np.uint64(0):
            place = _find(keys[slot], new_keys)
            new_keys[place], new_numbers[place] = keys[slot], numbers[slot]
