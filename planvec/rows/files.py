"""Names the errors that reading a damaged file of arrays may raise."""

from __future__ import annotations

import zipfile
import zlib

__all__ = ["DAMAGED"]

DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError, TypeError),
    *(IndexError, NotImplementedError, MemoryError, OverflowError),
)
"""What NumPy, the zip file and checks of the content raise on files of another form."""
