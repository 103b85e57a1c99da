"""Reports which row a stepping loop is working on, while it runs."""

from __future__ import annotations

import numpy as np

# Indices of the progress: the number of the request, the row that is stepped (-1 before the first and after
# the last), and the step of its rollout. The progress of a worker lies in shared memory. If the worker
# crashes, the parent reads there on which row.
TICKET, ROW, STEP = range(3)


def new_progress() -> memoryview:
    """Return a progress in the memory of this process: 3 integers, indexed by `TICKET`, `ROW` and `STEP`."""
    # A memoryview, because writing an element costs 20 ns, and 30 ns in a NumPy array.
    return memoryview(np.full(3, -1, np.int64))  # type: ignore[arg-type]
