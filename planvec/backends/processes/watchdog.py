"""Decides when a process must be killed: it exceeds its time or its memory, or a signal has stopped it."""

from __future__ import annotations

import math
import time
from typing import NamedTuple

from planvec.backends.processes.conversation import Conversation
from planvec.backends.processes.starting.launch import Child
from planvec.backends.stats import ExitReason

START_SECONDS = 60.0  # longest time for a process to make its object
# time without an answer after which the state of a process is checked: a signal may have stopped it
_STOPPED_SECONDS = 1.0
# Interval of these checks. Two in a row must agree, since some tools stop a process for a moment.
_STOP_CHECK_SECONDS = 0.25
_CANCELLED_SECONDS = 1.0  # longest time that a process may spend on a cancelled request
_MEMORY_CHECK_SECONDS = 0.25  # interval of the memory checks


class KillReason(NamedTuple):
    """Says why a process must be killed."""

    reason: ExitReason  # the reason, counted in `Stats`
    how: str  # what the process did, for messages
    may_be_cause: bool = True  # whether the request in progress may be the cause


class Watchdog:
    """Enforces the limits of one process."""

    def __init__(self) -> None:
        self.timeout: float | None = None  # seconds that one request may take, or None for no limit
        # bytes of memory that the process may use between two requests, or None for no limit
        self.max_rss: int | None = None
        self.begin()

    def begin(self) -> None:
        """Begin to watch a new process."""
        self._next_memory_check = self._next_stop_check = 0.0
        self._was_stopped = False

    def seconds_left(self, now: float, conversation: Conversation, is_ready: bool) -> float:
        """Return the seconds until the process must have answered; infinite if there is no limit."""
        if not is_ready:
            return conversation.since + START_SECONDS - now
        if conversation.sent and self.timeout is not None:
            return conversation.since + self.timeout - now
        return math.inf

    def is_due(self, now: float, conversation: Conversation, is_ready: bool) -> bool:
        """Return whether `inspect` should be called. Cheap."""
        waited = now - conversation.since
        if not is_ready:
            return waited >= _STOPPED_SECONDS
        is_late = self.timeout is not None and waited >= self.timeout
        return bool(conversation.sent) and (is_late or waited >= _STOPPED_SECONDS)

    def inspect(self, child: Child, conversation: Conversation, is_ready: bool) -> KillReason | None:
        """Return why the process must be killed, or None. Call it with the lock of the worker held."""
        now = time.monotonic()
        waited = now - conversation.since
        if not is_ready:
            if waited >= START_SECONDS:
                return KillReason(ExitReason.TIMEOUT, f"was not ready within {START_SECONDS:g} s")
        elif not conversation.sent or child.channel.is_readable():
            return None  # it has answered
        elif self.timeout is not None and waited >= self.timeout:
            if child.is_stopped():
                return self._stopped()
            return KillReason(ExitReason.TIMEOUT, f"did not finish within {self.timeout:g} s")
        elif waited >= _CANCELLED_SECONDS and conversation.sent[0].pending.cancelled():
            return KillReason(
                ExitReason.STOPPED, "worked on a request that was cancelled", may_be_cause=False
            )
        if waited < _STOPPED_SECONDS or now < self._next_stop_check:
            return None
        self._next_stop_check = now + _STOP_CHECK_SECONDS
        was_stopped, self._was_stopped = self._was_stopped, child.is_stopped()
        return self._stopped() if was_stopped and self._was_stopped else None

    def _stopped(self) -> KillReason:
        return KillReason(ExitReason.STOPPED, "had been stopped by a signal")

    def is_outgrown(self, now: float, child: Child) -> bool:
        """Return whether the process uses more memory than `max_rss`. Measured at intervals."""
        if self.max_rss is None or now < self._next_memory_check:
            return False
        self._next_memory_check = now + _MEMORY_CHECK_SECONDS
        return child.memory_used() > self.max_rss
