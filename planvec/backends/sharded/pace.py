"""Measures the cost of rows in finished chunks."""

from __future__ import annotations

__all__ = ["Pace"]

_WEIGHT = 0.5
"""Weight of the latest chunk in the moving averages."""
_EVEN_SPREAD = 0.25
"""Relative deviation of the cost per step between chunks below which rows count as even."""
_EQUAL_DEVIATION = 0.1
"""Relative deviation of a chunk from the average above which its rows do not count as equal to others."""
_EQUAL_BATCHES = 8
"""Number of batches of equal rows, one after another, before the next ones are expected to be equal, too."""
_JUDGED_SECONDS = 1e-3
"""A chunk of less time than this says nothing about whether rows are equal."""
_GROWTH = 2.0
"""Equal rows are expected in chunks of up to so many times the work of the chunks that have shown it."""
_NOISE_SECONDS = 1e-3
"""A chunk that deviates by less time than this says nothing about the rows: the machine varies as much."""


class Pace:
    """Measures the time of a step in finished chunks of requests of one kind.

    Attributes:
        is_measured: Whether a chunk was finished.
        num_batches: Number of batches of several rows that have begun.
        seconds: Moving average of the time per environment step; 0 before the first chunk.
    """

    def __init__(self) -> None:
        self.is_measured = False
        self.num_batches = 0
        self.seconds = 0.0
        self._spread = 1.0  # until equal costs are measured
        self._highest = self._highest_before = 0.0  # seconds per step, in this batch and the one before
        self._num_equal = 0  # batches of equal rows since one of others
        self._has_judged = False  # whether this batch has had a chunk long enough to judge
        self._longest_equal = 0.0  # seconds of the longest chunk of these batches

    @property
    def is_even(self) -> bool:
        """Whether the latest chunks had about the same cost per step. False before some were measured."""
        return self._spread < _EVEN_SPREAD

    @property
    def equal_seconds(self) -> float:
        """Largest work of a chunk, in seconds, whose rows can be expected to be equal; 0 if they cannot."""
        return _GROWTH * self._longest_equal if self._num_equal >= _EQUAL_BATCHES else 0.0

    @property
    def highest_seconds(self) -> float:
        """Largest time per step of a chunk of the latest two batches."""
        return max(self._highest, self._highest_before)

    def begin_batch(self) -> None:
        """Count a batch of several rows, and forget the largest cost of the one before the previous one."""
        self.num_batches += 1
        if self._highest:
            self._highest, self._highest_before = 0.0, self._highest
        self._num_equal += self._has_judged
        self._has_judged = False

    def learn(self, num_steps: int, seconds: float) -> None:
        """Update the measures with a finished chunk.

        Args:
            num_steps: Largest number of environment steps of its rows, in total.
            seconds: Time that the worker took.
        """
        if num_steps <= 0 or seconds <= 0.0:
            return
        cost = seconds / num_steps
        self._highest = max(self._highest, cost)
        if not self.is_measured:
            self.is_measured, self.seconds = True, cost
            return
        expected = self.seconds * num_steps
        error = abs(seconds - expected)
        # At most 1, so that one outlier does not make rows count as uneven for long.
        deviation = min(1.0, error / expected) if error > _NOISE_SECONDS else 0.0
        self._spread += _WEIGHT * (deviation - self._spread)
        if max(expected, seconds) >= _JUDGED_SECONDS:
            self._has_judged = True
            if error <= _EQUAL_DEVIATION * expected:
                self._longest_equal = max(self._longest_equal, seconds)
            else:  # this batch does not count, and neither do the ones before
                self._num_equal, self._longest_equal = -1, 0.0
        self.seconds += _WEIGHT * (cost - self.seconds)
