"""Chooses the number of rows of the next chunk by the measured cost of earlier chunks.

Rows differ in cost: episodes end early, some actions are held longer, contacts take time. With one chunk per
worker, a batch would take as long as the worker with the expensive rows. Therefore chunks are cut one at a
time, when a worker has room: large chunks first, smaller ones towards the end (guided self-scheduling,
Polychronopoulos and Kuck 1987). No chunk is so small that sending it costs more than a few percent of its
work.
"""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["Pace", "Sizes"]

_FIRST_ROWS = 8
"""Rows of a chunk before any cost is measured."""
_EVEN_SPREAD = 0.25
"""Relative deviation of the cost per step between chunks below which rows count as equal."""
_EVEN_SHARE, _UNEVEN_SHARE = 0.75, 0.25
"""Size of the next chunk relative to `remaining rows / workers`, for equal rows and for others."""
_WEIGHT = 0.5
"""Weight of the latest chunk in the moving averages."""


class Sizes(NamedTuple):
    """Bounds the work of a chunk, in seconds.

    Attributes:
        shortest: Sending less work costs too much overhead.
        longest: With more work, the other workers would have to wait if the rows turn out to be expensive.
    """

    shortest: float
    longest: float


class Pace:
    """Measures the time of a step in finished chunks, and chooses the size of the next chunk by it."""

    def __init__(self) -> None:
        self._seconds = math.nan
        self._spread = 0.0

    def learn(self, num_steps: int, seconds: float) -> None:
        """Update the averages with a finished chunk.

        Args:
            num_steps: Largest number of environment steps of its rows, in total.
            seconds: Time that the worker took.
        """
        if num_steps <= 0 or seconds <= 0.0:
            return
        unit = seconds / num_steps
        if math.isnan(self._seconds):
            self._seconds = unit
            return
        deviation = abs(unit / self._seconds - 1.0)
        self._spread += _WEIGHT * (deviation - self._spread)
        self._seconds += _WEIGHT * (unit - self._seconds)

    def is_last_round(self, num_left: int, steps_per_row: float, num_workers: int, sizes: Sizes) -> bool:
        """Return whether the remaining rows are so few that each worker gets one last, equal chunk.

        Args:
            num_left: Number of rows that are not cut yet.
            steps_per_row: Mean number of steps of these rows.
            num_workers: Number of workers that share them.
            sizes: Bounds of a chunk.
        """
        if math.isnan(self._seconds):
            return num_left <= num_workers * _FIRST_ROWS
        return num_left * steps_per_row * self._seconds <= num_workers * sizes.shortest

    def num_rows(self, num_left: int, steps_per_row: float, num_workers: int, sizes: Sizes) -> int:
        """Return the number of rows of the next chunk.

        Args:
            num_left: Number of rows that are not cut yet, at least 1.
            steps_per_row: Mean number of steps of these rows.
            num_workers: Number of workers that share them.
            sizes: Bounds of a chunk.
        """
        seconds = steps_per_row * self._seconds
        if math.isnan(seconds):
            return _FIRST_ROWS
        fair = -(-num_left // num_workers)
        share = _EVEN_SHARE if self._spread < _EVEN_SPREAD else _UNEVEN_SHARE
        wanted = num_left * share / num_workers
        bounded = min(max(wanted, sizes.shortest / seconds), sizes.longest / seconds)
        return max(1, min(fair, int(bounded)))
