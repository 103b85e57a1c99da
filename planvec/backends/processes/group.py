"""Waits for several worker processes at once, and closes them together."""

from __future__ import annotations

import select
import time
from collections.abc import Sequence

from planvec.backends.processes.os.cores import num_cores
from planvec.backends.processes.starting.ending import GRACE_SECONDS
from planvec.backends.processes.wire.channel import SPIN_SECONDS, yield_core
from planvec.backends.processes.worker import ProcessWorker
from planvec.backends.signals import delayed_signals

_CLOCK_SECONDS = 0.05  # interval of the deadline checks while answers arrive without a pause
# Longest sleep. A worker that another thread has restarted has a new channel, which must be polled.
_MAX_SECONDS = 0.5


def close_all(workers: Sequence[ProcessWorker]) -> None:
    """Close several processes at the same time, with one common deadline."""
    with delayed_signals():
        for worker in workers:
            worker.begin_close()
        deadline = time.monotonic() + GRACE_SECONDS
        for worker in workers:
            worker.finish_close(deadline)


class ProcessGroup:
    """Polls the channels and the handles of several processes. Implements `backends.base.WorkerGroup`."""

    def __init__(self, workers: Sequence[ProcessWorker]) -> None:
        self._workers = workers
        self._poll = select.poll()
        self._generations: list[int] = []
        self._owners: dict[int, tuple[ProcessWorker, bool]] = {}
        self._next_clock_check = 0.0
        self._num_cores = num_cores()
        self._is_slow = False  # whether the latest answer took longer than polling lasts

    def poll(self) -> None:
        """Handle all messages that have arrived, without waiting."""
        self._refresh()
        while events := self._poll.poll(0):
            self._handle(events)
            self._refresh()
        self._check_clock()

    def wait(self, timeout: float | None) -> bool:
        """Wait until a message arrives or a process exits, and handle it."""
        # `timeout`: Seconds to wait, or None for no limit.
        # Returns whether anything was handled.
        self._refresh()
        events = self._spin()
        now = time.monotonic()
        if not events or now >= self._next_clock_check:
            self._check_clock()
        if not events:
            self._refresh()
            events = self._poll.poll(self._seconds(timeout, now) * 1000)
            self._is_slow = time.monotonic() - now > SPIN_SECONDS
        self._handle(events)
        return bool(events)

    def close(self) -> None:
        """Close all processes at the same time, with one common deadline."""
        close_all(self._workers)

    def _refresh(self) -> None:
        """Poll the present processes: a restarted one has new file descriptors."""
        generations = [worker.generation for worker in self._workers]
        if generations == self._generations:
            return
        poll = select.poll()
        owners = {}
        for worker in self._workers:
            for fd, is_channel in zip(worker.filenos(), (True, False), strict=False):
                owners[fd] = (worker, is_channel)
                poll.register(fd, select.POLLIN)
        # `_generations` is set last, since a signal handler may raise anywhere in this method.
        self._poll, self._owners = poll, owners
        self._generations = generations

    def _handle(self, events: list[tuple[int, int]]) -> None:
        """Handle the events of a poll."""
        if len(events) > 1:  # answers first: an answer that was sent before the exit counts
            events.sort(key=lambda event: not self._owners[event[0]][1])
        for fd, _ in events:
            worker, is_channel = self._owners[fd]
            if is_channel:
                worker.receive()
            else:
                worker.handle_exit()

    def _spin(self) -> list[tuple[int, int]]:
        """Poll without sleeping, and return the events."""
        # It polls only once if the workers use every core and need longer: polling would take a core from
        # them.
        poll, now = self._poll.poll, time.perf_counter
        if self._is_slow and sum(worker.is_busy for worker in self._workers) >= self._num_cores:
            return poll(0)
        deadline = now() + SPIN_SECONDS
        while not (events := poll(0)):
            if now() > deadline:
                break
            yield_core()
        return events

    def _seconds(self, timeout: float | None, now: float) -> float:
        """Return the seconds until the next deadline."""
        seconds = [_MAX_SECONDS, *(worker.seconds_left(now) for worker in self._workers)]
        if timeout is not None:
            seconds.append(timeout)
        return max(0.0, min(seconds))

    def _check_clock(self) -> None:
        now = time.monotonic()
        self._next_clock_check = now + _CLOCK_SECONDS
        for worker in self._workers:
            worker.check_clock(now)
