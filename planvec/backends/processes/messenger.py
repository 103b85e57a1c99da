"""Sends the requests of one worker process, and reads its answers.

A signal handler of the user's may raise anywhere in here. What must not be left half done is noted first, and
finished by whoever comes next: `_repair`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from planvec.backends.base import WorkerExit
from planvec.backends.processes.conversation import Conversation, WrongTicketError
from planvec.backends.processes.pending import Pending
from planvec.backends.processes.ready_message import read_ready_message
from planvec.backends.processes.starting.launch import Child
from planvec.backends.processes.watchdog import Watchdog
from planvec.backends.processes.wire.channel import ChannelError, Frame
from planvec.backends.processes.wire.slab import Slab
from planvec.backends.stats import ExitReason
from planvec.errors import ClosedError, PlanvecError
from planvec.rows import EnvDescription, Request

__all__ = ["Messenger"]


class Messenger(ABC):
    """Sends requests to a process and reads its answers. Subclasses decide about a process that ends.

    Args:
        name: For messages.

    Attributes:
        name: As given.
        lock: Held while anything here changes.
        watchdog: Looks after the process while it works; has its limits.
        is_ready: Whether its object is made.
        is_closed: Whether it was closed.
        capacity: The most rows that one request can have, once it is ready.
        description: Of the hosted environment, once it is ready; None where the object is something else.
        exit: How it ended, until it is started again.
    """

    _child: Child

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = threading.RLock()
        self.watchdog = Watchdog()
        self.capacity = 0
        self.is_ready = self.is_closed = False
        self.description: EnvDescription | None = None
        self.exit: WorkerExit | None = None
        self._changed: Callable[[Any], None] = lambda worker: None
        self._fingerprint: bytes | None = None
        self._conversation = Conversation()
        self._is_disconnected = self._is_outgrown = False

    @property
    @abstractmethod
    def _has_unreported_exit(self) -> bool:
        """Whether an exit was noted that not everybody was delivering of yet."""

    @abstractmethod
    def _report_exit(self) -> None:
        """Tell everybody of such an exit."""

    @abstractmethod
    def _end_crashed(self, may_be_cause: bool = True) -> None:
        """The process has ended, or does not listen any more."""

    @abstractmethod
    def _end(self, reason: ExitReason, how: str, may_be_cause: bool = True) -> None:
        """Let the process go."""

    @abstractmethod
    def _kill_and_end(self, reason: ExitReason, how: str, may_be_cause: bool = True) -> None:
        """Kill the process, and let it go."""

    @abstractmethod
    def _give_up(self, error: PlanvecError) -> None:
        """Let a process go that cannot make its object."""

    def check(self) -> None:
        """Raise if the process is closed, or belongs to another process."""
        if self.is_closed:
            raise ClosedError(f"{self.name} was closed")
        self._check_own()

    def _check_own(self) -> None:
        if self._child.is_foreign:
            raise ClosedError(
                f"{self.name} belongs to the process that this one was forked from; open another one here"
            )

    def submit(self, request: Request[Any]) -> Pending:
        """Ask for something; it is sent now if there is room, else while somebody waits."""
        if self._child.is_foreign:
            self._check_own()
        pending = Pending(request)
        with self.lock:
            if self._conversation.is_interrupted or self._has_unreported_exit:
                self._repair()
            if self.is_closed:
                pending.finish(error=ClosedError(f"{self.name} was closed"))
            elif self.exit is not None:
                pending.fail(self.exit, is_current=False)
            else:
                try:
                    self._conversation.submit(pending)
                except ChannelError:  # it had died before: whatever killed it, this request did not
                    self._end_crashed(may_be_cause=len(self._conversation.sent) > 1)
        return pending

    def _repair(self) -> None:
        """Finish what a signal handler that raised has left half done."""
        self._report_exit()
        if not self._conversation.is_interrupted or self._is_disconnected:
            return
        lost = WorkerExit(ExitReason.STOPPED, f"an answer of {self.name} was interrupted")
        if not self._conversation.fail_delivery(lost):  # it is done again; the process is as good as before
            self._kill_and_end(ExitReason.STOPPED, "was interrupted in a message", may_be_cause=False)

    def filenos(self) -> tuple[int, ...]:
        """Return what becomes readable when an answer comes, and when the process ends; () if it is gone.

        `generation` changes whenever these do.
        """
        with self.lock:
            return () if self._is_disconnected else (self._child.channel.fileno(), self._child.handle)

    def receive(self) -> None:
        """Read one answer, which is there, and send what waits for its room."""
        conversation = self._conversation
        with self.lock:
            if self._is_disconnected:
                return
            if conversation.is_interrupted or self._has_unreported_exit or self._child.is_foreign:
                self._check_own()
                self._repair()
                if self._is_disconnected:
                    return
            try:
                pending = conversation.receive(self._on_ready_message)
                has_stepped = pending is not None and pending.form.has_slot
                if has_stepped and self.watchdog.is_outgrown(conversation.since, self._child):
                    self._is_outgrown, conversation.is_open = True, False
                if self._is_outgrown and not conversation.sent and not self._is_disconnected:
                    self._end(
                        ExitReason.OUTGROWN,
                        f"took more memory than max_worker_rss={self.watchdog.max_rss:,} bytes",
                    )
                elif conversation.waiting:
                    conversation.send_waiting()
            except ChannelError:
                self._end_crashed()
            except WrongTicketError:
                self._kill_and_end(ExitReason.CRASH, "answered what it was not asked")

    def _on_ready_message(self, frame: Frame) -> None:
        """Take the first frame: the object was made, or not."""
        try:
            self.description = read_ready_message(frame, self.name, self._fingerprint)
        except PlanvecError as error:
            self._give_up(error)
            return
        slab, space = None, None
        if self.description is not None:
            self._fingerprint = self.description.fingerprint
            slab, space = Slab(self.description, self._child.memory), self.description.action_space
            self.capacity = slab.capacity
        self._conversation.open(slab, space)
        self.is_ready = True
        self._conversation.send_waiting()
        self._changed(self)
