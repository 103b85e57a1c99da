"""Waiting for answers, by several threads at once.

Workers that answer from threads of their own call `notify`. Others (processes) have nobody in this process
who reads what they say: the thread that waits does. One thread at a time leads: it handles what all workers
say, for the other threads too, which wait for news.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from planvec.errors import WorkerTimeoutError

__all__ = ["Events", "Waiter"]

_MAX_SECONDS = 0.5
"""How long a thread waits for news before it looks itself."""


class Events(Protocol):
    """Reads what workers say, for those that do not report by themselves."""

    def poll(self) -> None:
        """Handle all that has arrived, without waiting."""
        ...

    def wait(self, timeout: float | None) -> bool:
        """Wait until something arrives, and handle it.

        Args:
            timeout: Seconds, or None.

        Returns:
            Whether anything has arrived.
        """
        ...


class Waiter:
    """Lets threads wait until their call is done.

    Args:
        events: Reads what the workers say; None if they report from threads of their own.
        on_idle: Called when nothing has arrived for a while, to do what an interrupt may have left undone.
    """

    def __init__(self, events: Events | None = None, on_idle: Callable[[], None] = lambda: None) -> None:
        self._events = events
        self._on_idle = on_idle
        self._condition = threading.Condition()
        # Reentrant: a signal handler that raises just after it was taken must not lock this thread out.
        self._leader_lock = threading.RLock()
        self._num_followers = 0

    def notify(self) -> None:
        """Wake the threads that wait: something was answered."""
        if self._num_followers:
            with self._condition:
                self._condition.notify_all()

    def poll(self) -> None:
        """Handle what has arrived, without waiting."""
        if self._events is not None and self._leader_lock.acquire(blocking=False):
            try:
                self._events.poll()
            finally:
                self._give_up_lead()

    def wait_for(self, is_done: Callable[[], bool], timeout: float | None) -> None:
        """Wait until `is_done()`, which is asked after everything that arrives.

        Args:
            is_done: Cheap.
            timeout: Seconds to wait in all, or None.

        Raises:
            WorkerTimeoutError: `timeout` has passed.
        """
        if is_done():
            return
        deadline = None if timeout is None else time.monotonic() + timeout
        if deadline is not None:
            self.poll()  # what has arrived counts, however short the timeout
        while not is_done():
            if deadline is not None and time.monotonic() >= deadline:
                raise WorkerTimeoutError(
                    f"not ready within {timeout:g} s; the promise stays valid and can be asked again"
                )
            if self._events is not None and self._leader_lock.acquire(blocking=False):
                try:
                    self._lead(self._events, is_done, deadline)
                finally:
                    self._give_up_lead()
            else:
                self._follow(is_done, deadline)

    def _lead(self, events: Events, is_done: Callable[[], bool], deadline: float | None) -> None:
        """Handle what arrives until done, or until the deadline."""
        while not is_done():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return
            if not events.wait(left):
                self._on_idle()
            self.notify()

    def _give_up_lead(self) -> None:
        self._leader_lock.release()
        self.notify()

    def _follow(self, is_done: Callable[[], bool], deadline: float | None) -> None:
        with self._condition:
            self._num_followers += 1
            try:
                if is_done():
                    return
                if self._events is not None and self._leader_lock.acquire(blocking=False):
                    self._leader_lock.release()  # the leader has just left
                    return
                left = _MAX_SECONDS if deadline is None else min(_MAX_SECONDS, deadline - time.monotonic())
                was_notified = self._condition.wait(max(0.0, left))
            finally:
                self._num_followers -= 1
        if not was_notified:
            self._on_idle()
