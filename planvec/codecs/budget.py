"""The time that a proof may take."""

from __future__ import annotations

import time
from collections.abc import Iterator

_NANOSECONDS = 1e-9


class Budget:
    """Seconds that a proof may take, from now on."""

    # Those in which the thread could run, but other programs had the processor, do not count (on Linux): a
    # verdict on an environment must not depend on what else the machine does.

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._started, self._waited = time.monotonic(), _seconds_in_queue()

    @property
    def is_spent(self) -> bool:
        """Whether the time is over."""
        left = self._started + self._seconds - time.monotonic()
        return left < 0 and left + _seconds_in_queue() - self._waited < 0


def steps_within(seconds: float, at_least: int, at_most: int) -> Iterator[int]:
    """Count the steps of a walk from 0: at least some of them, and more while there is time."""
    budget = Budget(seconds)
    for index in range(at_most):
        if index >= at_least and budget.is_spent:
            return
        yield index


def _seconds_in_queue() -> float:
    """Return for how long this thread has waited for a processor so far; 0 where the system does not tell."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:
            return int(file.read().split()[1]) * _NANOSECONDS
    except (OSError, IndexError):
        return 0.0
