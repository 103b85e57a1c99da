"""Defines `Inbox`, which hands the events of Ray's threads to the threads that wait."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from planvec.backends.signals import delayed_signals

__all__ = ["Inbox"]


class Inbox:
    """Collects the results of calls of actors.

    Ray calls back in a thread that must not block and must not call Ray, so the results are handled later.
    """

    def __init__(self) -> None:
        self._events: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._bell = threading.Event()

    def expect(self, reference: Any, handle: Callable[[Any], None]) -> None:
        """Call `handle(future)` in `deliver` when a call is done.

        Args:
            reference: Ray's reference to the result of the call.
            handle: Receives a `concurrent.futures.Future`, which is done.
        """
        reference.future().add_done_callback(lambda future: self._put(handle, future))

    def _put(self, handle: Callable[[Any], None], future: Any) -> None:
        self._events.append((handle, future))
        self._bell.set()

    def wait(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for a result. Returns whether there is one."""
        return self._bell.wait(max(0.0, timeout))

    def deliver(self) -> bool:
        """Handle all results that have arrived, and return whether there were any."""
        any_events = False
        self._bell.clear()
        while self._events:
            with delayed_signals():  # an interrupt must not lose an answer
                try:
                    handle, future = self._events.popleft()
                except IndexError:  # another thread has taken it
                    break
                handle(future)
            any_events = True
        return any_events
