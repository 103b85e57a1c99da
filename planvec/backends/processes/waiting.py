"""Waiting for several workers at once, and keeping them busy meanwhile."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Sequence

from planvec.backends.processes.link import Link
from planvec.backends.processes.wire.channel import SPIN_SECONDS, yield_core
from planvec.errors import WorkerTimeoutError

__all__ = ["Watch"]

_TICK_SECONDS = 0.05
"""How often the clock is looked at while answers come without a pause."""
_MAX_PATIENCE = 0.5
"""Seconds. Another thread may have replaced a worker meanwhile, whose channel is then not watched."""


class Watch:
    """A poll over the channels and the handles of some processes.

    Args:
        processes: All that may have work: whoever waits for one answer serves all of them.
    """

    def __init__(self, processes: Sequence[Link]) -> None:
        self._processes = processes
        self._poll = select.poll()
        self._generations: list[int] = []
        self._owners: dict[int, tuple[Link, bool]] = {}
        self._news = threading.Condition()
        # Reentrant: a signal handler that raises just after it was taken must not lock this thread out.
        self._lead_lock = threading.RLock()
        self._num_followers = 0
        self._tick_at = 0.0

    def _refresh(self) -> None:
        """Watch the processes as they are now: one that was replaced has other descriptors."""
        generations = [process.generation for process in self._processes]
        if generations == self._generations:
            return
        poll = select.poll()
        owners = {}
        for process in self._processes:
            for fd, is_channel in zip(process.filenos(), (True, False), strict=False):
                owners[fd] = (process, is_channel)
                poll.register(fd, select.POLLIN)
        # Noted as done last: a signal handler may raise anywhere in here.
        self._poll, self._owners = poll, owners
        self._generations = generations

    def _handle(self, events: list[tuple[int, int]]) -> None:
        """Handle what the poll has found."""
        if len(events) > 1:  # answers before deaths: what a worker said before it died counts
            events.sort(key=lambda event: not self._owners[event[0]][1])
        for fd, _ in events:
            process, is_channel = self._owners[fd]
            if is_channel:
                process.receive()
            else:
                process.notice_death()

    def _look(self) -> list[tuple[int, int]]:
        """Look for a moment without sleeping."""
        poll, now = self._poll.poll, time.perf_counter
        give_up = now() + SPIN_SECONDS
        while not (events := poll(0)):
            if now() > give_up:
                break
            yield_core()
        return events

    def pump(self) -> None:
        """Handle what has arrived, without waiting."""
        if self._lead_lock.acquire(blocking=False):
            try:
                self._refresh()
                while events := self._poll.poll(0):
                    self._handle(events)
                    self._refresh()
                self._tick()
            finally:
                self._give_up_lead()

    def wait_for(self, is_done: Callable[[], bool], timeout: float | None) -> None:
        """Wait until `is_done()`, which is asked after everything that arrives.

        One thread at a time leads: it serves all processes, for the others too, which wait for news.

        Args:
            is_done: Cheap.
            timeout: Seconds to wait in all, or None.

        Raises:
            WorkerTimeoutError: `timeout` has passed.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        if deadline is not None:
            self.pump()  # what has arrived counts, however short the timeout
        while not is_done():
            if deadline is not None and time.monotonic() >= deadline:
                raise WorkerTimeoutError(
                    f"not ready within {timeout:g} s; the promise stays valid and can be asked again"
                )
            if self._lead_lock.acquire(blocking=False):
                try:
                    self._lead(is_done, deadline)
                finally:
                    self._give_up_lead()
            else:
                self._follow(is_done, deadline)

    def _give_up_lead(self) -> None:
        self._lead_lock.release()
        if self._num_followers:
            with self._news:
                self._news.notify_all()

    def _lead(self, is_done: Callable[[], bool], deadline: float | None) -> None:
        """Serve until done, or until it is time to look at the deadline."""
        while not is_done():
            self._refresh()
            events = self._look()
            now = time.monotonic()
            if not events or now >= self._tick_at:
                self._tick()
            if not events:
                if deadline is not None and now >= deadline:
                    return
                self._refresh()
                events = self._poll.poll(self._patience(deadline, now) * 1000)
            self._handle(events)
            if self._num_followers:
                with self._news:
                    self._news.notify_all()

    def _follow(self, is_done: Callable[[], bool], deadline: float | None) -> None:
        with self._news:
            self._num_followers += 1
            try:
                if is_done():
                    return
                if self._lead_lock.acquire(blocking=False):  # the leader has just left
                    self._lead_lock.release()
                    return
                self._news.wait(self._patience(deadline, time.monotonic()))
            finally:
                self._num_followers -= 1

    def _patience(self, deadline: float | None, now: float) -> float:
        """Seconds until something other than an answer has to be done, at most `_MAX_PATIENCE`."""
        waits = [_MAX_PATIENCE, *(process.patience(now) for process in self._processes)]
        if deadline is not None:
            waits.append(deadline - now)
        return max(0.0, min(waits))

    def _tick(self) -> None:
        now = time.monotonic()
        self._tick_at = now + _TICK_SECONDS
        for process in self._processes:
            process.tick(now)
