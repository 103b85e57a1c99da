"""Gives arrays the form that compiled loops take."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

UNLIMITED = 2**62  # the time limit of environments that have none


def bytes_of(array: Any) -> NDArray[np.uint8]:
    """Return the bytes of an array in one dimension: a view if they are contiguous, else a copy."""
    if array.flags.c_contiguous and array.nbytes:
        try:
            return np.frombuffer(array, np.uint8)  # in a third of the time of the views below
        except ValueError:
            pass  # of dates, which have no buffer
    flat: NDArray[np.uint8] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return flat
