"""Cuts the rows of a batch into ranges, one at a time, by the measured cost of rows.

Rows differ in cost: episodes end early, some actions are held longer, contacts take time. With one range per
worker, a batch would take as long as the worker with the expensive rows. Therefore the rows are cut in rounds
of one range per worker: large ranges first, smaller ones in later rounds (factoring, Hummel, Schonberg and
Flynn 1992). If the rows of the latest batches were equal, one round suffices. No range is so small that
sending it costs more than a few percent of its work, and none so large that other workers would wait for long
if its rows turn out to be expensive.
"""

from __future__ import annotations

import math
import time

import numpy as np
from numpy.typing import NDArray

_WEIGHT = 0.2  # weight of the latest chunk in the average time per step
_BATCH_WEIGHT = 0.3  # weight of the latest batch in the average of the loss
_EQUAL_LOSS = 0.05  # average loss below which rows count as equal
# Equal rows are expected in ranges of up to so many times the work per worker of the batches that have shown
# it
_GROWTH = 2.0
_JUDGED_SECONDS = 1e-3  # a batch of less work per worker says nothing about whether its rows are equal

_SINGLE_SECONDS = 1e-3  # time of a single row up to which most of it is overhead
_FIRST_ROWS = 8  # rows of a range before any cost is measured
_SHARE = 0.4  # part of the remaining rows that a round cuts
# Seconds of work of a range: with less, its overhead counts; with more, other workers would wait for long if
# its rows turn out to be expensive. A caller that continues (the second pair) submits the next range later.
_BLOCKING, _ASYNC = (1e-3, 15e-3), (5e-3, 25e-3)
_LONGEST_EQUAL = 25e-3  # seconds of work of a range of equal rows, which may differ from all the earlier ones
# Seconds of the shortest range for each worker: the caller takes 30 to 40 us to send a range and to merge its
# answer, so that it is busy for at most a fifth of the time and no worker waits for it.
_CALLER_SECONDS = 200e-6


class Pace:
    """Measures the time of a step in finished chunks of requests of one kind."""

    # `message_cost`: how many times as long a message takes as one to a process of this machine.

    def __init__(self, message_cost: float = 1.0) -> None:
        self.message_cost = message_cost
        self.seconds = 0.0  # moving average of the time per environment step; 0 before the first chunk
        # largest time per step of a chunk, in this batch and the one before
        self.highest = self.highest_before = 0.0
        self._loss = 1.0  # average loss of batches if they were cut into one chunk per worker
        self._longest_equal = 0.0  # largest work per worker of the batches since rows count as equal

    @property
    def equal_seconds(self) -> float:
        """Largest work of a chunk, in seconds, whose rows can be expected to be equal; 0 if they cannot."""
        return _GROWTH * self._longest_equal

    def begin_batch(self) -> None:
        """Forget the largest cost of the batch before the previous one."""
        if self.highest:
            self.highest, self.highest_before = 0.0, self.highest

    def learn(self, num_steps: int, seconds: float) -> None:
        """Update the time per step with a finished chunk."""
        # `num_steps`: largest number of environment steps of the rows, in total.
        if num_steps > 0 and seconds > 0.0:
            cost = seconds / num_steps
            self.highest = max(self.highest, cost)
            self.seconds += _WEIGHT * (cost - self.seconds) if self.seconds else cost

    def learn_balance(self, mean: float, highest: float) -> None:
        """Update the loss with a finished batch."""
        # `mean`: time of its rows per worker; `highest`: time of the slowest worker if the batch were cut
        # into one chunk of equal size per worker. More chunks cost some time, too.
        saved = min(_BLOCKING[0] * self.message_cost, 0.1 * mean)
        loss = min(1.0, max(0.0, highest - mean - saved) / mean)
        self._loss += _BATCH_WEIGHT * (loss - self._loss)
        self._longest_equal = max(self._longest_equal, mean) if self._loss < _EQUAL_LOSS else 0.0


class Cutter:
    """Chooses the sizes of ranges of rows by the measured cost of earlier rows."""

    # `steps`: largest number of steps of a row: one number, or one per row; `is_async`: the caller continues
    # before the answer; `deadline`: `time.perf_counter()` after which no row is stepped; None: no limit.

    def __init__(
        self,
        num_rows: int,
        steps: int | NDArray[np.int64],
        pace: Pace,
        is_async: bool,
        deadline: float | None = None,
    ) -> None:
        self.next_row = 0  # the first row that is not cut yet
        self._num_rows = num_rows
        self._steps = steps
        self._pace = pace
        self._bounds = _ASYNC if is_async else _BLOCKING
        self._deadline = deadline
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
        if left <= 1 or (self._deadline is not None and time.perf_counter() >= self._deadline):
            return left  # at once: none of them is stepped any more, and each range would take some time
        if not self._num_in_round:
            self._begin_round(left, num_workers)
        if self._is_last_round:
            self._round_rows = -(-left // self._num_in_round)
        self._num_in_round -= 1
        return min(self._round_rows, left)

    def _begin_round(self, left: int, num_workers: int) -> None:
        """Choose the size of the next `num_workers` ranges."""
        pace, steps = self._pace, self._steps
        self._num_in_round = self._num_workers = num_workers
        if not pace.seconds:
            self._is_last_round = left <= num_workers * _FIRST_ROWS
            self._round_rows = _FIRST_ROWS
            return
        cost = pace.message_cost
        least = cost * max(_BLOCKING[0], num_workers * _CALLER_SECONDS)
        shortest = max(self._bounds[0] * cost, least)
        longest = max(self._bounds[1] * cost, shortest)
        mean = steps[self.next_row :].mean() if isinstance(steps, np.ndarray) else steps
        row_seconds = mean * pace.seconds
        fair_seconds = left * row_seconds / num_workers
        num_equal_rounds = max(1, math.ceil(fair_seconds / max(_LONGEST_EQUAL * cost, least)))
        if fair_seconds / num_equal_rounds <= pace.equal_seconds:
            self._is_last_round = num_equal_rounds == 1
            self._round_rows = max(1, left // (num_workers * num_equal_rounds))
            return
        self._is_last_round = fair_seconds <= shortest
        # The rows to come may be as expensive as the most expensive ones of late.
        highest = max(pace.highest, pace.highest_before)
        safe = max(longest * pace.seconds / highest, 2 * least)
        wanted = min(max(_SHARE * fair_seconds, shortest), safe)
        self._round_rows = max(1, int(wanted / row_seconds))

    def learn(self, rows: slice, seconds: float) -> None:
        """Update the measured cost with a range that a worker has finished in `seconds`."""
        steps, num_rows = self._steps, rows.stop - rows.start
        num_steps = int(steps[rows].sum()) if isinstance(steps, np.ndarray) else steps * num_rows
        # Most of the time of a single cheap row is overhead: it counts only if much more was expected.
        if num_rows > 1 or seconds > _SINGLE_SECONDS or 2 * seconds < num_steps * self._pace.seconds:
            self._pace.learn(num_steps, seconds)
        if self._num_workers > 1:
            self._seconds[rows.stop] = seconds
            self._num_learned += num_rows
            self._total += seconds
            if self._num_learned == self._num_rows and self._total > _JUDGED_SECONDS * self._num_workers:
                # Estimate the work of each worker if the batch were cut into one range per worker.
                stops = sorted(self._seconds)
                until = np.cumsum([self._seconds[stop] for stop in stops])
                bounds = np.linspace(0, self._num_rows, self._num_workers + 1)
                work = np.diff(np.interp(bounds, [0, *stops], [0.0, *until]))
                self._pace.learn_balance(float(work.mean()), float(work.max()))
