"""Handles the events of several actors, and closes them together."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from planvec.backends.ray.cluster import Cluster
from planvec.backends.ray.inbox import Inbox
from planvec.backends.ray.worker import RayWorker
from planvec.backends.signals import delayed_signals

__all__ = ["RayGroup"]

_CLOCK_SECONDS = 0.05
"""Interval of the deadline checks while answers arrive without a pause."""
_MAX_SECONDS = 0.5
"""Longest sleep: another thread may have restarted a worker."""


class RayGroup:
    """Handles what happens to the actors of a backend. Implements `backends.base.WorkerGroup`.

    Args:
        workers: All workers of the backend.
        inbox: The events of their actors.
        cluster: The connection to Ray.
        check: Called now and then, to check the cluster as a whole.
    """

    def __init__(
        self, workers: Sequence[RayWorker], inbox: Inbox, cluster: Cluster, check: Callable[[], None]
    ) -> None:
        self._workers, self._inbox, self._cluster, self._check = workers, inbox, cluster, check
        self._next_clock_check = 0.0

    def poll(self) -> None:
        """Handle all events that have happened, without waiting."""
        self._inbox.deliver()
        self._check_clock()

    def wait(self, timeout: float | None) -> bool:
        """Wait until something happens, and handle it.

        Args:
            timeout: Seconds to wait, or None for no limit.

        Returns:
            Whether anything was handled.
        """
        now = time.monotonic()
        left = [_MAX_SECONDS, *(worker.seconds_left(now) for worker in self._workers)]
        self._inbox.wait(min(left if timeout is None else [*left, timeout]))
        has_any = self._inbox.deliver()
        if not has_any or time.monotonic() >= self._next_clock_check:
            self._check_clock()
        return has_any

    def _check_clock(self) -> None:
        now = time.monotonic()
        self._next_clock_check = now + _CLOCK_SECONDS
        for worker in self._workers:
            if worker.seconds_left(now) <= 0:
                with delayed_signals():  # an interrupt must not lose an actor, or the report of its exit
                    worker.check_clock(now)
        self._check()

    def close(self) -> None:
        """Kill all actors. Stop Ray if planvec has started it."""
        for worker in self._workers:
            worker.close()
        self._cluster.close()
