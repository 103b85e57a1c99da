"""Lets several threads wait for answers at once.

Workers with threads of their own (actors) call `notify` after each answer. Processes have no such thread: a
thread that waits reads their messages. Leader and followers: one waiting thread at a time, the leader, reads
the messages of all workers; the other threads wait until it notifies them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from planvec.errors import WorkerTimeoutError

_MAX_SECONDS = 0.5  # longest time that a follower waits before it checks by itself


class Events(Protocol):
    """Reads the messages of workers that have no threads of their own."""

    def poll(self) -> None:
        """Handle all messages that have arrived, without waiting."""
        ...

    def wait(self, timeout: float | None) -> bool:
        """Wait until a message arrives, and handle it."""
        # `timeout`: Seconds to wait, or None for no limit.
        # Returns whether a message arrived.
        ...


class Waiter:
    """Lets threads wait until their call is done."""

    def __init__(self, events: Events | None = None, on_idle: Callable[[], None] = lambda: None) -> None:
        self._events = events
        self._on_idle = on_idle
        self._condition = threading.Condition()
        # Reentrant: if a signal handler raises just after this thread acquired it, the thread can go on.
        self._leader_lock = threading.RLock()
        self._num_followers = 0

    def notify(self) -> None:
        """Wake the threads that wait, after an answer or a change."""
        if self._num_followers:
            with self._condition:
                self._condition.notify_all()

    def poll(self) -> None:
        """Handle all messages that have arrived, without waiting."""
        if self._events is not None and self._leader_lock.acquire(blocking=False):
            try:
                self._events.poll()
            finally:
                self._give_up_lead()

    def wait_for(self, is_done: Callable[[], bool], timeout: float | None) -> None:
        """Wait until `is_done()` returns True."""
        # `timeout`: Seconds to wait in total, or None for no limit.
        deadline = None if timeout is None else time.monotonic() + timeout
        if deadline is not None:
            self.poll()  # messages that have arrived count, even if the timeout is 0
        while not is_done():
            if deadline is not None and time.monotonic() >= deadline:
                raise WorkerTimeoutError(
                    f"not ready within {timeout:g} s; the promise stays valid: call result() again"
                )
            if self._events is not None and self._leader_lock.acquire(blocking=False):
                try:
                    self._lead(self._events, is_done, deadline)
                finally:
                    self._give_up_lead()
            else:
                self._follow(is_done, deadline)

    def _lead(self, events: Events, is_done: Callable[[], bool], deadline: float | None) -> None:
        """Handle messages until `is_done()` or the deadline."""
        while not is_done():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return
            if not events.wait(left):
                self._on_idle()
            if self._num_followers:
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
                    self._leader_lock.release()  # there is no leader: become it
                    return
                left = _MAX_SECONDS if deadline is None else min(_MAX_SECONDS, deadline - time.monotonic())
                was_notified = self._condition.wait(max(0.0, left))
            finally:
                self._num_followers -= 1
        if not was_notified:
            self._on_idle()
