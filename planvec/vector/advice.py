"""Says when the environments would be stepped faster without workers.

A message to a worker and back takes many times as long as a step of a cheap environment. Whether workers pay
is known after some calls: the time that the workers have needed is about what this process would need.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np

_log = logging.getLogger("planvec")

_NUM_CALLS = 300
_QUANTILE = 0.2  # low, since another process on the same core makes single calls slower, never faster
_MARGIN = 1.1


class Advice:
    """Compares the time that calls take with the time that the workers have needed."""

    def __init__(self, num_workers: int, worker_seconds: Callable[[], float]) -> None:
        self._num_workers = num_workers
        self._worker_seconds = worker_seconds
        self._last = worker_seconds()
        self._seconds: list[float] = []
        self._seconds_here: list[float] = []

    def add(self, seconds: float) -> bool:
        """Note how long this process has waited for a call."""
        # Returns whether that was the last call that is needed. The advice is logged then, if there is one.
        now = self._worker_seconds()
        self._seconds.append(seconds)
        self._seconds_here.append(now - self._last)
        self._last = now
        if len(self._seconds) < _NUM_CALLS:
            return False
        away = float(np.quantile(self._seconds, _QUANTILE))
        here = float(np.quantile(self._seconds_here, _QUANTILE))
        if away > _MARGIN * here > 0:
            _log.warning(
                "a call takes about %.0f us with %d workers, and would take about %.0f us in this process: "
                "pass num_workers=0, or num_workers=%d to keep this message away",
                away * 1e6,
                self._num_workers,
                here * 1e6,
                self._num_workers,
            )
        return True
