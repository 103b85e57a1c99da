"""Cuts the rows of a batch into ranges, one at a time, when workers have room for them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planvec.backends.sharded.pace import Pace, Sizes

__all__ = ["Cutter"]

_BLOCKING = Sizes(1e-3, 10e-3)
"""Bounds for a call that the caller waits for: it submits the next range when a worker has room."""
_ASYNC = Sizes(10e-3, 25e-3)
"""Bounds for a call whose caller continues. Ranges are larger, so that workers do not run out of work."""


class Cutter:
    """Chooses the sizes of ranges of rows by the measured cost of earlier rows.

    Args:
        num_rows: Number of rows in the batch.
        steps: Largest number of environment steps of a row: one number, or one per row.
        pace: The measured cost of requests of this kind.
        is_async: Whether the caller continues before the answer is complete.

    Attributes:
        next_row: The first row that is not cut yet.
    """

    def __init__(self, num_rows: int, steps: int | NDArray[np.int64], pace: Pace, is_async: bool) -> None:
        self.next_row = 0
        self._num_rows = num_rows
        self._steps = steps
        self._pace = pace
        self._sizes = _ASYNC if is_async else _BLOCKING
        self._num_shares = 0  # equal ranges of the last round; 0 before

    def num_next(self, num_workers: int) -> int:
        """Return the number of rows of the next range.

        Args:
            num_workers: Number of workers that share the remaining rows.
        """
        left = self._num_rows - self.next_row
        if left <= 1:
            return left
        steps = self._steps
        mean = steps[self.next_row :].mean() if isinstance(steps, np.ndarray) else steps
        if not self._num_shares:
            if not self._pace.is_last_round(left, mean, num_workers, self._sizes):
                return self._pace.num_rows(left, mean, num_workers, self._sizes)
            self._num_shares = num_workers
        num_rows = -(-left // self._num_shares)
        self._num_shares = max(1, self._num_shares - 1)
        return num_rows

    def num_steps(self, rows: slice) -> int:
        """Return the largest number of environment steps of a range of rows."""
        steps = self._steps
        if isinstance(steps, np.ndarray):
            return int(steps[rows].sum())
        return int(steps * (rows.stop - rows.start))

    def learn(self, rows: slice, seconds: float) -> None:
        """Update the measured cost with a range that a worker has finished in `seconds`."""
        self._pace.learn(self.num_steps(rows), seconds)
