"""Arrays in the memory of a C library, whose content a codec saves: states refer to their places."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.errors import UnsupportedEnvError

# name of the array that owns the memory, offset in bytes, shape, strides, dtype
Place = tuple[str, int, tuple[int, ...], tuple[int, ...], str]


class LibraryMemory:
    """Tells where in the memory of a library an array lies, and makes it again."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._arrays = arrays
        self._starts = sorted((int(array.ctypes.data), name) for name, array in arrays.items() if array.size)

    def place_of(self, array: NDArray[Any]) -> Place | None:
        """Return the place of an array; None if it lies elsewhere."""
        if array.base is None or not is_in_library(array):
            return None
        address = int(array.ctypes.data)
        index = bisect.bisect_right(self._starts, (address, "\uffff")) - 1
        if index >= 0:
            start, name = self._starts[index]
            if address < start + self._arrays[name].nbytes:
                return name, address - start, array.shape, array.strides, array.dtype.str
        raise UnsupportedEnvError(
            "view of memory of the simulator that planvec does not save (a contact, a picture). Copy it"
        )

    def array_at(self, place: Place) -> NDArray[Any]:
        """Return an array at a place."""
        name, offset, shape, strides, dtype = place
        buffer: Any = self._arrays[name]
        return np.ndarray(shape, dtype, buffer, offset, strides)


def is_in_library(array: NDArray[Any]) -> bool:
    """Return whether an array is a view of memory that a C library owns."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return type(owner).__name__ == "PyCapsule"
