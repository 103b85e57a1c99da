"""When a process must be killed: it takes too long, too much memory, or somebody has stopped it."""

from __future__ import annotations

import math
import time
from typing import NamedTuple

from planvec.backends.processes.conversation import Conversation
from planvec.backends.processes.starting.launch import Child
from planvec.backends.stats import ExitReason

__all__ = ["START_SECONDS", "KillReason", "Watchdog"]

START_SECONDS = 60.0
"""How long a process may take to make its object."""
_STOPPED_SECONDS = 1.0
"""How long a process may keep its work waiting until it is asked whether somebody has stopped it."""
_STOP_CHECK_SECONDS = 0.25
"""How often that is asked. Twice in a row says yes: some tools stop a process for a moment."""
_CANCELLED_SECONDS = 1.0
"""How long a request that was cancelled may keep a process busy."""
_MEMORY_CHECK_SECONDS = 0.25
"""How often a process is asked for the memory that it takes."""


class KillReason(NamedTuple):
    """Why a process must be killed.

    Attributes:
        reason: For `Stats`.
        how: What it did, for messages.
        may_be_cause: Whether the request at work may be the cause.
    """

    reason: ExitReason
    how: str
    may_be_cause: bool = True


class Watchdog:
    """Looks after one process while it works.

    Attributes:
        timeout: Seconds that one request may take, or None.
        max_rss: Bytes that the process may have in memory between two requests, or None.
    """

    def __init__(self) -> None:
        self.timeout: float | None = None
        self.max_rss: int | None = None
        self.begin()

    def begin(self) -> None:
        """Begin with a new process."""
        self._next_memory_check = self._next_stop_check = 0.0
        self._was_stopped = False

    def seconds_left(self, now: float, conversation: Conversation, is_ready: bool) -> float:
        """Return in how many seconds the process must have said something; infinite if there is no limit."""
        if not is_ready:
            return conversation.since + START_SECONDS - now
        if conversation.sent and self.timeout is not None:
            return conversation.since + self.timeout - now
        return math.inf

    def is_due(self, now: float, conversation: Conversation, is_ready: bool) -> bool:
        """Return whether `inspect` has something to look at. Cheap."""
        waited = now - conversation.since
        if not is_ready:
            return waited >= _STOPPED_SECONDS
        is_late = self.timeout is not None and waited >= self.timeout
        return bool(conversation.sent) and (is_late or waited >= _STOPPED_SECONDS)

    def inspect(self, child: Child, conversation: Conversation, is_ready: bool) -> KillReason | None:
        """Return why the process must be killed, or None. The lock of the worker is held."""
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
        """Return whether the process takes more memory than it may. It is asked now and then."""
        if self.max_rss is None or now < self._next_memory_check:
            return False
        self._next_memory_check = now + _MEMORY_CHECK_SECONDS
        return child.memory_used() > self.max_rss
