"""Cuts the rows of a batch, one range after another, as workers have room for them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planvec.backends.sharded.pace import Pace, Sizes

__all__ = ["Cutter"]

_BLOCKING = Sizes(1e-3, 10e-3)
"""The caller waits, and cuts the next range when a worker has room."""
_ASYNC = Sizes(10e-3, 25e-3)
"""The caller does something else meanwhile, so that workers need more in advance."""


class Cutter:
    """Cuts rows into ranges, by what the rows before them have cost.

    Args:
        num_rows: Rows of the batch.
        steps: The most environment steps that a row takes: one number, or one per row.
        pace: Of requests of this kind.
        is_async: Whether the caller goes on before the answer is there.

    Attributes:
        next_row: The first row that is not cut yet.
    """

    def __init__(self, num_rows: int, steps: int | NDArray[np.int64], pace: Pace, is_async: bool) -> None:
        self.next_row = 0
        self._num_rows = num_rows
        self._steps = steps
        self._pace = pace
        self._sizes = _ASYNC if is_async else _BLOCKING
        self._num_shares = 0  # equal ranges that the rest is cut into, once little is left

    def num_next(self, num_workers: int) -> int:
        """Return how many rows the next range should have.

        Args:
            num_workers: Workers that share the rest.
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
        """Return the steps that rows are asked for."""
        steps = self._steps
        if isinstance(steps, np.ndarray):
            return int(steps[rows].sum())
        return int(steps * (rows.stop - rows.start))

    def learn(self, rows: slice, seconds: float) -> None:
        """Learn from rows that a worker has finished."""
        self._pace.learn(self.num_steps(rows), seconds)
