"""Reads files of arrays, which run no code, and names the errors that a damaged one may raise."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["DAMAGED", "read_arrays"]

DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError, TypeError),
    *(IndexError, NotImplementedError, MemoryError, OverflowError),
)
"""What NumPy, the zip file and checks of the content raise on files of another form."""


def read_arrays(path: str | Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a NumPy archive by name. No pickle in it is read.

    Args:
        path: The file.

    Raises:
        OSError: The file cannot be read.
        One of `DAMAGED`: The file is damaged, or holds something else.
    """
    with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
        return dict(archive)
