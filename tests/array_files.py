"""Changes the files of arrays that planvec has written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np


@contextlib.contextmanager
def changed_arrays(path: Path) -> Iterator[dict[str, Any]]:
    """Hand out the arrays of a file, and write them back."""
    with np.load(path) as archive:
        arrays = dict(archive)
    yield arrays
    np.savez(path, **arrays)
