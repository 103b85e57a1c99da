"""Measures the cost of rows in finished chunks."""

from __future__ import annotations

_WEIGHT = 0.5  # weight of the latest chunk in the moving averages
_EVEN_SPREAD = 0.25  # relative deviation of the cost per step between chunks below which rows count as even
# A chunk that deviates by less time than this says nothing about the rows: the machine varies as much
_NOISE_SECONDS = 1e-3
_BATCH_WEIGHT = 0.3  # weight of the latest batch in the moving average of the loss
_EQUAL_LOSS = 0.05  # average loss below which rows count as equal
# Time of the further chunks that a batch of unequal rows has, and largest part of the batch that they take. A
# smaller loss counts as none.
_CHUNKS_SECONDS, _CHUNKS_PART = 1e-3, 0.1
# equal rows are expected in chunks of up to so many times the work per worker of the batches that have shown
# it
_GROWTH = 2.0


class Pace:
    """Measures the time of a step in finished chunks of requests of one kind."""

    def __init__(self, message_cost: float = 1.0) -> None:
        self.message_cost = message_cost
        self.is_measured = False  # whether a chunk was finished
        self.num_batches = 0  # number of batches of several rows that have begun
        self.seconds = 0.0  # moving average of the time per environment step; 0 before the first chunk
        self._spread = 1.0  # until equal costs are measured
        self._highest = self._highest_before = 0.0  # seconds per step, in this batch and the one before
        self._loss = 1.0  # average loss of batches if they were cut into one chunk per worker
        self._longest_equal = 0.0  # largest work per worker of the batches since rows count as equal

    @property
    def is_even(self) -> bool:
        """Whether the latest chunks had about the same cost per step. False before some were measured."""
        return self._spread < _EVEN_SPREAD

    @property
    def equal_seconds(self) -> float:
        """Largest work of a chunk, in seconds, whose rows can be expected to be equal; 0 if they cannot."""
        return _GROWTH * self._longest_equal if self._loss < _EQUAL_LOSS else 0.0

    @property
    def highest_seconds(self) -> float:
        """Largest time per step of a chunk of the latest two batches."""
        return max(self._highest, self._highest_before)

    def begin_batch(self) -> None:
        """Count a batch of several rows, and forget the largest cost of the one before the previous one."""
        self.num_batches += 1
        if self._highest:
            self._highest, self._highest_before = 0.0, self._highest

    def learn(self, num_steps: int, seconds: float) -> None:
        """Update the measures with a finished chunk."""
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
        self.seconds += _WEIGHT * (cost - self.seconds)

    def learn_balance(self, mean: float, highest: float) -> None:
        """Update the measures with a finished batch."""
        saved = min(_CHUNKS_SECONDS * self.message_cost, _CHUNKS_PART * mean)
        loss = min(1.0, max(0.0, highest - mean - saved) / mean)
        self._loss += _BATCH_WEIGHT * (loss - self._loss)
        self._longest_equal = max(self._longest_equal, mean) if self._loss < _EQUAL_LOSS else 0.0
