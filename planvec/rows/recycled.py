"""Allocates large arrays from memory that earlier results no longer use.

The first write to each page of new memory costs up to a microsecond, which would be more than the steps of a
compiled environment. NumPy returns large arrays to the operating system, so that every batch would pay again.
"""

from __future__ import annotations

import math
import sys
import threading
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["empty"]

_MIN_BYTES = 1 << 16
"""Smallest array that is recycled."""
_MAX_KEPT = 1 << 28
"""Bytes that are kept for later arrays."""
_UNUSED = 3
"""Reference count of a block that no array uses: the list, a variable, the argument of the count."""

_lock = threading.Lock()
_blocks: list[NDArray[np.uint8]] = []
"""Blocks of memory, those used last at the end. An array is a view of its block, and keeps it in use."""


def empty(shape: int | tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Return an uninitialised array, as `numpy.empty`. Its memory is reused once it is garbage.

    Args:
        shape: The shape.
        dtype: The dtype.
    """
    dtype = np.dtype(dtype)
    sizes = (shape,) if isinstance(shape, int) else shape
    num_bytes = math.prod(sizes) * dtype.itemsize
    if num_bytes < _MIN_BYTES or dtype.hasobject:
        return np.empty(shape, dtype)
    block = _take(num_bytes)
    array: NDArray[Any] = block.view(dtype).reshape(sizes)
    return array


def _take(num_bytes: int) -> NDArray[np.uint8]:
    """Return an unused block of exactly this size, or a new one."""
    with _lock:
        for index in range(len(_blocks)):  # `enumerate` would hold one more reference
            block = _blocks[index]
            if block.nbytes == num_bytes and sys.getrefcount(block) <= _UNUSED:
                _blocks.append(_blocks.pop(index))
                return block
        block = np.empty(num_bytes, np.uint8)
        if num_bytes <= _MAX_KEPT:
            _blocks.append(block)
            while sum(kept.nbytes for kept in _blocks) > _MAX_KEPT:
                _blocks.pop(0)
        return block
