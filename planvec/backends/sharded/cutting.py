"""Cuts the rows of a batch into ranges, one at a time, when workers have room for them.

Rows differ in cost: episodes end early, some actions are held longer, contacts take time. With one range per
worker, a batch would take as long as the worker with the expensive rows. Therefore the rows are cut in
rounds of one range per worker: large ranges first, smaller ones in later rounds (factoring, Hummel, Schonberg
and Flynn 1992). If the rows of the latest batches were equal, one round suffices. No range is so small that
sending it costs more than a few percent of its work, and none so large that other workers would wait for long
if its rows turn out to be expensive.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planvec.backends.sharded.pace import Pace

_FIRST_ROWS = 8  # rows of a range before any cost is measured
# part of the remaining rows that a round cuts, for even rows and for others
_EVEN_SHARE, _UNEVEN_SHARE = 0.85, 0.4
_LONGEST_FIRST = 5e-3  # bound that replaces `_Sizes.longest` in the first batch, of which no row is known
_LAST_EVEN_PART = 0.25  # part of a batch of even rows that is cut in one last round
# Seconds of work of a range of equal rows. Like `_Sizes.longest`, it limits the wait for rows that differ
# from all the earlier ones.
_LONGEST_EQUAL = 25e-3
_SHORTEST = 2e-3  # seconds of work below which ranges are not shortened because rows to come may be expensive
# Number of workers that can be supplied with the shortest ranges. For more of them, ranges are longer.
_NUM_FED = 16

# A batch of less work per worker than this says nothing about whether its rows are equal
_JUDGED_SECONDS = 1e-3


class _Sizes(NamedTuple):
    """Bounds the work of a range, in seconds."""

    shortest: float  # With less work, the overhead of a range counts. The last round has such ranges.
    # with more work, the other workers would have to wait if the rows turn out to be expensive
    longest: float


# bounds for a call that the caller waits for: it submits the next range when a worker has room
_BLOCKING = _Sizes(1e-3, 15e-3)
# Bounds for a call whose caller continues. Ranges are larger, so that workers do not run out of work.
_ASYNC = _Sizes(5e-3, 25e-3)


class Cutter:
    """Chooses the sizes of ranges of rows by the measured cost of earlier rows."""

    def __init__(self, num_rows: int, steps: int | NDArray[np.int64], pace: Pace, is_async: bool) -> None:
        self.next_row = 0  # the first row that is not cut yet
        self._num_rows = num_rows
        self._steps = steps
        self._pace = pace
        self._sizes = _ASYNC if is_async else _BLOCKING
        self._num_in_round = 0  # ranges that the present round still has
        self._is_last_round = False
        self._round_rows = 0
        self._num_workers = 1
        self._seconds: dict[int, float] = {}  # end of each finished range -> seconds
        self._num_learned, self._total = 0, 0.0  # rows and seconds of these ranges
        if num_rows > 1:
            pace.begin_batch()

    def num_next(self, num_workers: int) -> int:
        """Return the number of rows of the next range."""
        left = self._num_rows - self.next_row
        if left <= 1:
            return left
        if not self._num_in_round:
            self._begin_round(left, num_workers)
        if self._is_last_round:
            self._round_rows = -(-left // self._num_in_round)
        self._num_in_round -= 1
        return min(self._round_rows, left)

    def _begin_round(self, left: int, num_workers: int) -> None:
        """Choose the size of the next `num_workers` ranges."""
        pace, sizes, steps = self._pace, self._sizes, self._steps
        self._num_in_round = self._num_workers = num_workers
        if not pace.is_measured:
            self._is_last_round = left <= num_workers * _FIRST_ROWS
            self._round_rows = _FIRST_ROWS
            return
        cost = pace.message_cost
        least = cost * max(1.0, num_workers / _NUM_FED)
        shortest, longest = sizes.shortest * least, max(sizes.longest * cost, sizes.shortest * least)
        mean = steps[self.next_row :].mean() if isinstance(steps, np.ndarray) else steps
        row_seconds = mean * pace.seconds
        fair_seconds = left * row_seconds / num_workers
        num_equal_rounds = max(1, math.ceil(fair_seconds / (_LONGEST_EQUAL * least)))
        if fair_seconds / num_equal_rounds <= pace.equal_seconds:
            self._is_last_round = num_equal_rounds == 1
            self._round_rows = max(1, left // (num_workers * num_equal_rounds))
            return
        is_rest = pace.is_even and left <= _LAST_EVEN_PART * self._num_rows and fair_seconds <= longest
        self._is_last_round = is_rest or fair_seconds <= shortest
        if not self._is_last_round:
            share = _EVEN_SHARE if pace.is_even else _UNEVEN_SHARE
            wanted = max(share * fair_seconds, shortest)
            # The rows to come may be as expensive as the most expensive ones of late.
            if pace.num_batches <= 1:
                longest = _LONGEST_FIRST * least
            safe = max(longest * pace.seconds / pace.highest_seconds, _SHORTEST * least)
            self._round_rows = max(1, int(min(wanted, safe) / row_seconds))

    def learn(self, rows: slice, seconds: float) -> None:
        """Update the measured cost with a range that a worker has finished in `seconds`."""
        steps, num_rows = self._steps, rows.stop - rows.start
        if isinstance(steps, np.ndarray):
            self._pace.learn(int(steps[rows].sum()), seconds)
        else:
            self._pace.learn(steps * num_rows, seconds)
        if self._num_workers > 1:
            self._seconds[rows.stop] = seconds
            self._num_learned += num_rows
            self._total += seconds
            if self._num_learned == self._num_rows and self._total > _JUDGED_SECONDS * self._num_workers:
                self._learn_balance()

    def _learn_balance(self) -> None:
        """Estimate the work of each worker if the batch were cut into one range per worker."""
        stops = sorted(self._seconds)
        until = np.cumsum([self._seconds[stop] for stop in stops])
        bounds = np.linspace(0, self._num_rows, self._num_workers + 1)
        work = np.diff(np.interp(bounds, [0, *stops], [0.0, *until]))
        self._pace.learn_balance(float(work.mean()), float(work.max()))
