"""Sends the requests of one worker process, and reads its answers.

A signal handler of the user may raise anywhere in this module. Therefore a step that must be completed is
recorded before it begins, and `_repair` completes it in the next call.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from planvec.backends.base import WorkerExit
from planvec.backends.processes.conversation import Conversation, WrongTicketError
from planvec.backends.processes.pending import ProcessPending
from planvec.backends.processes.ready_message import read_ready_message
from planvec.backends.processes.starting.launch import Child
from planvec.backends.processes.watchdog import Watchdog
from planvec.backends.processes.wire.channel import ChannelError, Frame
from planvec.backends.processes.wire.slab import Slab
from planvec.backends.stats import ExitReason
from planvec.errors import ClosedError, PlanvecError
from planvec.rows import EnvDescription, Request


class Messenger(ABC):
    """Sends requests to a process and reads its answers. A subclass starts, ends and restarts the process."""

    _child: Child

    def __init__(self, name: str) -> None:
        self.name = name  # the name in messages
        self.lock = threading.RLock()  # Protects all state. The lock of the backend, once there is one.
        self.watchdog = Watchdog()  # enforces the limits on time and memory
        self.capacity = 0  # Largest number of rows in one request. Valid once the process is ready.
        # `is_ready`: whether the object is made and the process accepts requests
        self.is_ready = self.is_closed = False  # `is_closed`: whether `close` was called
        # The description of the hosted environment, or None if the object is not a `PlanEnv`. Valid once the
        # process is ready.
        self.description: EnvDescription | None = None
        # The layout of the hosted `Server`, with the shared memory mapped, or None if the object is no
        # `Server`. Valid once the process is ready; a replacement has another one.
        self.layout: Any = None
        # the exit of the process until it is restarted; None while it runs
        self.exit: WorkerExit | None = None
        self._changed: Callable[[Any], None] = lambda worker: None
        self._first_description: Any = None
        self._conversation = Conversation()
        self._unreported_exit: WorkerExit | None = None  # recorded, but not reported yet
        self._is_disconnected = self._is_outgrown = False

    @abstractmethod
    def _report_exit(self) -> None:
        """Report a recorded exit, if there is one, to the futures and to the callback for changes."""

    @abstractmethod
    def _end_crashed(self, may_be_cause: bool = True) -> None:
        """End a process that has exited or has stopped reading."""

    @abstractmethod
    def _end(self, reason: ExitReason, how: str, may_be_cause: bool = True) -> None:
        """Record the exit of the process, and report it."""

    @abstractmethod
    def _kill_and_end(self, reason: ExitReason, how: str, may_be_cause: bool = True) -> None:
        """Kill the process, then record and report its exit."""

    @abstractmethod
    def _give_up(self, error: PlanvecError) -> None:
        """End a process that cannot make its object, with the error to raise."""

    def check(self) -> None:
        """Raise `ClosedError` if the process was closed, or if this is a fork of the process that owns it."""
        if self.is_closed:
            raise ClosedError(f"{self.name} was closed")
        self._check_own()

    def _check_own(self) -> None:
        if self._child.is_foreign:
            raise ClosedError(f"{self.name} belongs to the process that forked this one; open a new one here")

    def submit(self, request: Request[Any]) -> ProcessPending:
        """Queue a request and return its future. It is sent at once if there is room, else during a wait."""
        if self._child.is_foreign:
            self._check_own()
        pending = ProcessPending(request)
        with self.lock:
            if self._conversation.is_interrupted or self._unreported_exit is not None:
                self._repair()
            if self.is_closed:
                pending.finish(error=ClosedError(f"{self.name} was closed"))
            elif self.exit is not None:
                pending.fail(self.exit, is_current=False)
            else:
                try:
                    self._conversation.submit(pending)
                except ChannelError:  # the process exited before this request: the request is not the cause
                    self._end_crashed(may_be_cause=len(self._conversation.sent) > 1)
        return pending

    def _repair(self) -> None:
        """Complete the steps that a signal handler interrupted."""
        self._report_exit()
        if not self._conversation.is_interrupted or self._is_disconnected:
            return
        lost = WorkerExit(ExitReason.STOPPED, f"an answer of {self.name} was interrupted")
        if not self._conversation.fail_delivery(lost):  # the request is retried; the process is still usable
            self._kill_and_end(ExitReason.STOPPED, "was interrupted in a message", may_be_cause=False)

    def filenos(self) -> tuple[int, ...]:
        """Return the file descriptors of the channel and of the process handle, or () after the exit."""
        # The first becomes readable when an answer arrives, the second when the process exits. `generation`
        # changes whenever they do.
        with self.lock:
            return () if self._is_disconnected else (self._child.channel.fileno(), self._child.handle)

    def receive(self) -> None:
        """Read one answer, if one has arrived, and send the requests that waited for its slot."""
        conversation = self._conversation
        with self.lock:
            if self._is_disconnected:
                return
            if conversation.is_interrupted or self._unreported_exit is not None or self._child.is_foreign:
                self._check_own()
                self._repair()
                if self._is_disconnected:
                    return
            try:
                pending = conversation.receive(self._on_ready_message)
                has_stepped = pending is not None and pending.form.may_step
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
                self._kill_and_end(ExitReason.CRASH, "answered a request that was not sent to it")

    def _on_ready_message(self, frame: Frame) -> None:
        """Handle the first frame: become ready, or end a process that could not make its object."""
        try:
            description = read_ready_message(frame, self.name, self._first_description)
        except PlanvecError as error:
            self._give_up(error)
            return
        self._first_description = self._first_description or description
        if isinstance(description, EnvDescription):
            self.description = description
            slab = Slab(description, self._child.memory)
            self.capacity = slab.capacity
            self._conversation.open(slab.slots, slab.progress, description.action_space)
        elif description is not None:
            self.layout = description
            self._conversation.open([], description.map_memory(self._child.memory))
        else:
            self._conversation.open([], None)
        self.is_ready = True
        self._conversation.send_waiting()
        self._changed(self)
