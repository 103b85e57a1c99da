"""The time that a proof may take."""

from __future__ import annotations

import time

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


def _seconds_in_queue() -> float:
    """Return for how long this thread has waited for a processor so far; 0 where the system does not tell."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:
            return int(file.read().split()[1]) * _NANOSECONDS
    except (OSError, IndexError):
        return 0.0
