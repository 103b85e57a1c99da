"""Waiting for several worker processes at once, and closing them together."""

from __future__ import annotations

import select
import time
from collections.abc import Sequence

from planvec.backends.processes.os.signals import delayed_signals
from planvec.backends.processes.starting.ending import GRACE_SECONDS
from planvec.backends.processes.wire.channel import SPIN_SECONDS, yield_core
from planvec.backends.processes.worker import ProcessWorker

__all__ = ["ProcessGroup", "close_all"]

_CLOCK_SECONDS = 0.05
"""How often the clock is looked at while answers come without a pause."""
_MAX_SECONDS = 0.5
"""How long to sleep at most. Another thread may have replaced a worker, whose channel is then not watched."""


def close_all(workers: Sequence[ProcessWorker]) -> None:
    """Close several processes in the time of one."""
    with delayed_signals():
        for worker in workers:
            worker.begin_close()
        deadline = time.monotonic() + GRACE_SECONDS
        for worker in workers:
            worker.finish_close(deadline)


class ProcessGroup:
    """A poll over the channels and the handles of some processes. See `backends.sharded.WorkerGroup`.

    Args:
        workers: All that may have work: whoever waits for one answer serves all of them.
    """

    def __init__(self, workers: Sequence[ProcessWorker]) -> None:
        self._workers = workers
        self._poll = select.poll()
        self._generations: list[int] = []
        self._owners: dict[int, tuple[ProcessWorker, bool]] = {}
        self._next_clock_check = 0.0

    def poll(self) -> None:
        """Handle all that has arrived, without waiting."""
        self._refresh()
        while events := self._poll.poll(0):
            self._handle(events)
            self._refresh()
        self._check_clock()

    def wait(self, timeout: float | None) -> bool:
        """Wait until something arrives, and handle it.

        Args:
            timeout: Seconds, or None.

        Returns:
            Whether anything has arrived.
        """
        self._refresh()
        events = self._spin()
        now = time.monotonic()
        if not events or now >= self._next_clock_check:
            self._check_clock()
        if not events:
            self._refresh()
            events = self._poll.poll(self._seconds(timeout, now) * 1000)
        self._handle(events)
        return bool(events)

    def close(self) -> None:
        """Close all processes in the time of one."""
        close_all(self._workers)

    def _refresh(self) -> None:
        """Watch the processes as they are now: one that was replaced has other descriptors."""
        generations = [worker.generation for worker in self._workers]
        if generations == self._generations:
            return
        poll = select.poll()
        owners = {}
        for worker in self._workers:
            for fd, is_channel in zip(worker.filenos(), (True, False), strict=False):
                owners[fd] = (worker, is_channel)
                poll.register(fd, select.POLLIN)
        # Noted as done last: a signal handler may raise anywhere in here.
        self._poll, self._owners = poll, owners
        self._generations = generations

    def _handle(self, events: list[tuple[int, int]]) -> None:
        """Handle the events of a poll."""
        if len(events) > 1:  # answers before exits: what a worker said before it died counts
            events.sort(key=lambda event: not self._owners[event[0]][1])
        for fd, _ in events:
            worker, is_channel = self._owners[fd]
            if is_channel:
                worker.receive()
            else:
                worker.handle_exit()

    def _spin(self) -> list[tuple[int, int]]:
        """Look for a moment without sleeping."""
        poll, now = self._poll.poll, time.perf_counter
        deadline = now() + SPIN_SECONDS
        while not (events := poll(0)):
            if now() > deadline:
                break
            yield_core()
        return events

    def _seconds(self, timeout: float | None, now: float) -> float:
        """Return the seconds until something other than an answer has to be done."""
        seconds = [_MAX_SECONDS, *(worker.seconds_left(now) for worker in self._workers)]
        if timeout is not None:
            seconds.append(timeout)
        return max(0.0, min(seconds))

    def _check_clock(self) -> None:
        now = time.monotonic()
        self._next_clock_check = now + _CLOCK_SECONDS
        for worker in self._workers:
            worker.check_clock(now)
