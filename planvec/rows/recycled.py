"""Allocates large arrays from memory that earlier results no longer use.

The first write to each page of new memory costs up to a microsecond, which would be more than the steps of a
compiled environment. NumPy returns large arrays to the operating system, so that every batch would pay again.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_MIN_BYTES = 1 << 16  # smallest array that is recycled
_MAX_KEPT = 1 << 28  # bytes that are kept for later arrays
_MAX_ALIKE = 16  # blocks of one size that are kept

_Blocks = list[NDArray[np.uint8]]

_lock = threading.Lock()
# Size -> blocks of memory, the size used last at the end. An array is a view of its block, and keeps it in
# use.
_kept: OrderedDict[int, _Blocks] = OrderedDict()


def empty(shape: int | tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Return an uninitialised array, as `numpy.empty`. Its memory is reused once it is garbage."""
    # `shape`: The shape. `dtype`: The dtype.
    new: NDArray[Any] = np.empty(shape, dtype)
    num_bytes = new.nbytes
    if num_bytes < _MIN_BYTES or num_bytes > _MAX_KEPT or new.dtype.hasobject or not _CAN_COUNT:
        return new
    # Not waited for: a signal handler may interrupt its holder, and a forked child may inherit it locked.
    if not _lock.acquire(blocking=False):
        return new
    try:
        block = _take(_rounded(num_bytes))
    finally:
        _lock.release()
    array: NDArray[Any] = block[:num_bytes].view(dtype).reshape(shape)
    return array


def _rounded(num_bytes: int) -> int:
    """Return a size of at most one eighth more, so that batches of about the same size share blocks."""
    step = 1 << max(num_bytes.bit_length() - 4, 0)
    return -(-num_bytes // step) * step


def _take(size: int) -> NDArray[np.uint8]:
    """Return an unused block of a size, or a new one."""
    blocks = _kept.setdefault(size, [])
    _kept.move_to_end(size)
    for index in range(len(blocks)):
        if _count(blocks, index) == _UNUSED:
            return blocks[index]
    block = np.empty(size, np.uint8)
    if len(blocks) < _MAX_ALIKE:
        blocks.append(block)
        while sum(size * len(alike) for size, alike in _kept.items()) > _MAX_KEPT:
            _kept.popitem(last=False)
    return block


def _count(blocks: _Blocks, index: int) -> int:
    """Return the number of references to a block, with those of this function and of the list."""
    return sys.getrefcount(blocks[index])


def _measure() -> tuple[int, bool]:
    """Return the count of a block that no array uses, and whether counts tell such blocks from others."""
    # The count of a block that only its list holds depends on the version of Python.
    blocks = [np.empty(8, np.uint8)]
    unused = _count(blocks, 0)
    array = blocks[0][:4].view(np.uint16).reshape(2, 1)
    used = _count(blocks, 0)
    del array
    has_gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    return unused, has_gil and used > unused == _count(blocks, 0)


_UNUSED, _CAN_COUNT = _measure()
