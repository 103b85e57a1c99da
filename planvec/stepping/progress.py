"""Cells that tell which row a stepping loop is at, while it runs."""

from __future__ import annotations

import numpy as np

__all__ = ["ROW", "STEP", "TICKET", "new_progress"]

TICKET, ROW, STEP = range(3)
"""Cells: the number of the request, the row at work (-1 before the first and after the last), the step of
its rollout. A worker's lie in shared memory, and tell the parent where the worker was when it died."""


def new_progress() -> memoryview:
    """Return cells of this process.

    They are a memoryview: writing to one costs 20 ns, to an element of an array 30.
    """
    return memoryview(np.full(3, -1, np.int64))  # type: ignore[arg-type]
