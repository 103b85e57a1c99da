"""Handles the events of several actors, and closes them together."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Sequence

from planvec.backends.ray.inbox import Inbox
from planvec.backends.ray.launcher import Launcher
from planvec.backends.ray.worker import RayWorker
from planvec.backends.signals import delayed_signals
from planvec.errors import ClosedError

_CLOCK_SECONDS = 0.05  # interval of the deadline checks while answers arrive without a pause
_MAX_SECONDS = 0.5  # longest sleep: another thread may have restarted a worker


class RayGroup:
    """Handles what happens to the actors of a backend. Implements `backends.base.WorkerGroup`."""

    def __init__(
        self, workers: Sequence[RayWorker], inbox: Inbox, launcher: Launcher, check: Callable[[], None]
    ) -> None:
        self._workers, self._inbox, self._launcher, self._check = workers, inbox, launcher, check
        self._next_clock_check = 0.0
        self._pid = os.getpid()
        weakref.finalize(self, launcher.end_later).atexit = False  # Ray itself ends them at exit

    def poll(self) -> None:
        """Handle all events that have happened, without waiting."""
        self._check_owner()
        self._inbox.deliver()
        self._check_clock()

    def wait(self, timeout: float | None) -> bool:
        """Wait until something happens, and handle it."""
        # `timeout`: Seconds to wait, or None for no limit.
        # Returns whether anything was handled.
        self._check_owner()
        now = time.monotonic()
        left = [_MAX_SECONDS, *(worker.seconds_left(now) for worker in self._workers)]
        self._inbox.wait(min(left if timeout is None else [*left, timeout]))
        has_any = self._inbox.deliver()
        if not has_any or time.monotonic() >= self._next_clock_check:
            self._check_clock()
        return has_any

    def _check_owner(self) -> None:
        if os.getpid() != self._pid:
            raise ClosedError("the workers belong to the process that forked this one; open new ones here")

    def _check_clock(self) -> None:
        error = self._launcher.why_unusable()
        if error is not None:
            for worker in self._workers:
                worker.give_up(error)
            return
        now = time.monotonic()
        self._next_clock_check = now + _CLOCK_SECONDS
        for worker in self._workers:
            if worker.seconds_left(now) <= 0:
                with delayed_signals():  # an interrupt must not lose an actor, or the report of its exit
                    worker.check_clock(now)
        self._check()

    def close(self) -> None:
        """Kill all actors. Stop Ray if planvec has started it. Does nothing in a fork."""
        if os.getpid() == self._pid:  # another thread may have held the locks during the fork
            for worker in self._workers:
                worker.close()
            self._launcher.end()
