"""Writes large blocks of memory as what differs from a known block: most of an emulator's never changes."""

from __future__ import annotations

import ctypes
import struct

import numpy as np
from numpy.typing import NDArray

_SIZE = struct.Struct("<I")
_compare_memory = ctypes.CDLL(None).memcmp
_compare_memory.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def is_equal_memory(first: int, second: int, size: int) -> bool:
    """Return whether `size` bytes at two addresses are equal."""
    return not _compare_memory(first, second, size)


class Differences:
    """Converts blocks of bytes to their differences from a first block, and back."""

    def __init__(self, first: bytes) -> None:
        self._first = first
        self._words = _words(first)

    def get(self, block: bytes) -> bytes:
        """Return what differs. A block of another size is returned whole."""
        if len(block) != len(self._first):
            return _SIZE.pack(0xFFFFFFFF) + block
        words = _words(block)
        places = np.flatnonzero(words != self._words)
        return _SIZE.pack(len(places)) + places.astype("<u4").tobytes() + words[places].tobytes()

    def restore(self, differences: bytes) -> bytes:
        """Return the block of which `get` returned the differences."""
        (number,) = _SIZE.unpack_from(differences)
        if number == 0xFFFFFFFF:
            return differences[_SIZE.size :]
        places: np.ndarray = np.frombuffer(differences, "<u4", number, _SIZE.size)
        words = self._words.copy()
        words[places] = np.frombuffer(differences, np.uint64, number, _SIZE.size + 4 * number)
        return words.tobytes()[: len(self._first)]


def _words(block: bytes) -> NDArray[np.uint64]:
    """Return a block as words of 8 bytes. The last one is filled up with zeros."""
    return np.frombuffer(block + bytes(-len(block) % 8), np.uint64)
