"""How many rows the next chunk of a batch should have.

Rows differ in cost: episodes end early, some actions are held longer, contacts take time. A batch cut into
one chunk per worker would end when the worker with the expensive rows does. So chunks are cut one after
another, as workers have room: large ones first, smaller ones towards the end (guided self-scheduling,
Polychronopoulos and Kuck 1987), but none so small that sending it costs more than a few percent of its work.
"""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["Pace", "Sizes"]

_FIRST_ROWS = 8
"""Rows of a chunk before anything is known of their cost."""
_EVEN_SPREAD = 0.25
"""Relative deviation of the cost per step between chunks, below which rows count as equal."""
_EVEN_SHARE, _UNEVEN_SHARE = 0.75, 0.25
"""Share of a worker's part of the rest that its next chunk gets, of equal rows and of others."""
_WEIGHT = 0.5
"""Weight of the latest chunk in the averages."""


class Sizes(NamedTuple):
    """Bounds of a chunk, in seconds of work.

    Attributes:
        shortest: Less is not worth handing over.
        longest: More would keep the others waiting, should its rows be expensive.
    """

    shortest: float
    longest: float


class Pace:
    """Learns from finished chunks what a step takes, and sizes the next chunk by it."""

    def __init__(self) -> None:
        self._seconds = math.nan
        self._spread = 0.0

    def learn(self, num_steps: int, seconds: float) -> None:
        """Learn from a chunk.

        Args:
            num_steps: The steps that its rows were asked for.
            seconds: How long a worker took over it.
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
        """Return whether so little is left that every worker gets an equal share. Args: as of `num_rows`."""
        if math.isnan(self._seconds):
            return num_left <= num_workers * _FIRST_ROWS
        return num_left * steps_per_row * self._seconds <= num_workers * sizes.shortest

    def num_rows(self, num_left: int, steps_per_row: float, num_workers: int, sizes: Sizes) -> int:
        """Return how many rows the next chunk should have.

        Args:
            num_left: Rows of the batch that are still to be cut, at least 1.
            steps_per_row: Steps of an average one of them.
            num_workers: Workers that share them.
            sizes: Bounds of the chunk.
        """
        seconds = steps_per_row * self._seconds
        if math.isnan(seconds):
            return _FIRST_ROWS
        fair = -(-num_left // num_workers)
        share = _EVEN_SHARE if self._spread < _EVEN_SPREAD else _UNEVEN_SHARE
        wanted = num_left * share / num_workers
        bounded = min(max(wanted, sizes.shortest / seconds), sizes.longest / seconds)
        return max(1, min(fair, int(bounded)))
