"""Reads files of arrays, which run no code, names the errors of damaged ones, and replaces whole files."""

from __future__ import annotations

import contextlib
import os
import secrets
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["DAMAGED", "read_arrays", "replacing"]

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


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give the name of a new file, which replaces `path` once it is written: no reader sees a part of it."""
    temporary = path.with_name(f".{path.stem}-{secrets.token_hex(4)}{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
