"""Defines `Inbox`, which hands the events of Ray's threads to the threads that wait."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from planvec.backends.signals import delayed_signals


class Inbox:
    """Collects the results of calls of actors."""

    # Ray calls back in a thread that must not block and must not call Ray, so the results are handled later.

    def __init__(self) -> None:
        self._handlers: dict[int, Callable[[Any], None]] = {}
        self._numbers = itertools.count()
        self._events: deque[tuple[int, Any]] = deque()
        self._bell = threading.Event()

    def expect(self, reference: Any, handle: Callable[[Any], None]) -> None:
        """Call `handle(future)` in `deliver` when a call is done."""
        number = next(self._numbers)
        self._handlers[number] = handle
        # Ray keeps the callback until the call is done, which may be never: it must not keep the workers.
        reference.future().add_done_callback(partial(_put, weakref.ref(self), number))

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
                    number, future = self._events.popleft()
                except IndexError:  # another thread has taken it
                    break
                self._handlers.pop(number)(future)
            any_events = True
        return any_events


def _put(reference: weakref.ref[Inbox], number: int, future: Any) -> None:
    """Note that a call is done, if anyone still waits for it."""
    inbox = reference()
    if inbox is not None:
        inbox._events.append((number, future))
        inbox._bell.set()
