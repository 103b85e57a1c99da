"""Waiting for several workers at once, and keeping them busy meanwhile."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from planvec.errors import WorkerTimeoutError
from planvec.workers.messages import SPIN_SECONDS, yield_core

if TYPE_CHECKING:
    from planvec.workers.external_process import ExternalProcess

__all__ = ["pump", "wait_for"]


class _Watch:
    """A poll over the channels and the handles of the processes that have something to answer."""

    def __init__(self, processes: Sequence[ExternalProcess]) -> None:
        self._poll = select.poll()
        self._owners: dict[int, tuple[ExternalProcess, bool]] = {}
        for process in processes:
            if process.failure is None and process.is_busy:
                channel, handle = process.filenos()
                self._owners[channel] = (process, True)
                self._owners[handle] = (process, False)
                self._poll.register(channel, select.POLLIN)
                self._poll.register(handle, select.POLLIN)

    def serve(self, seconds: float) -> bool:
        """Handle what arrives within `seconds`; returns whether anything did."""
        # Answers before deaths: what a worker said before it died counts.
        events = self._poll.poll(seconds * 1000)
        for fd, _ in sorted(events, key=lambda event: not self._owners[event[0]][1]):
            process, is_channel = self._owners[fd]
            if is_channel:
                process.receive()
            else:
                process.notice_death()
        return bool(events)

    def look(self) -> bool:
        """Look for a moment without sleeping; returns whether anything arrived."""
        give_up = time.perf_counter() + SPIN_SECONDS
        while not self.serve(0):
            if time.perf_counter() > give_up:
                return False
            yield_core()
        return True


def pump(processes: Sequence[ExternalProcess], job_timeout: float | None = None) -> None:
    """Handle what has arrived, without waiting."""
    while _Watch(processes).serve(0):
        pass
    _time_out(processes, job_timeout)


def wait_for(
    processes: Sequence[ExternalProcess],
    is_done: Callable[[], bool],
    timeout: float | None,
    job_timeout: float | None = None,
) -> None:
    """Wait until `is_done()`.

    Args:
        processes: All that may have work.
        is_done: Asked after everything that arrives.
        timeout: Seconds to wait in all, or None.
        job_timeout: Seconds that one request may take before its worker is killed, or None.

    Raises:
        WorkerTimeoutError: `timeout` has passed.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        watch = _Watch(processes)
        if watch.look():
            if is_done():
                return
            continue
        if is_done():
            return
        _time_out(processes, job_timeout)
        now = time.monotonic()
        if deadline is not None and now >= deadline:
            raise WorkerTimeoutError(
                f"not ready within {timeout:g} s; the promise stays valid and can be asked again"
            )
        watch.serve(_patience(processes, deadline, job_timeout, now))
        if is_done():
            return


def _patience(
    processes: Sequence[ExternalProcess],
    deadline: float | None,
    job_timeout: float | None,
    now: float,
) -> float:
    """Seconds until something other than an answer has to be done; at most ten."""
    waits = [10.0]
    if deadline is not None:
        waits.append(deadline - now)
    if job_timeout is not None:
        waits += [job_timeout - process.seconds_busy(now) for process in processes]
    return max(0.0, min(waits))


def _time_out(processes: Sequence[ExternalProcess], job_timeout: float | None) -> None:
    if job_timeout is not None:
        now = time.monotonic()
        for process in processes:
            if process.seconds_busy(now) >= job_timeout:
                process.time_out(job_timeout)
