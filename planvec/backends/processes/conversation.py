"""The messages between this process and one worker process.

    parent                                                child (child/host.py)
    ------                                                ---------------------
    Form.write  -> slot  -- frame (ticket, verb) -->      Form.read
                                                          EnvStepper.perform, row by row in `progress`
    read_answer <- slot  <-- frame (ticket, done) --      write_answer

    submitted -> waiting (any number) -> sent (at most two, one per slot) -> done

A ticket is used once, and an answer under another ticket than the oldest one sent is a broken worker.
What becomes of the requests of a process that is gone is not decided here: see `worker`.
"""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium

from planvec.backends.base import WorkerExit
from planvec.backends.processes.os.signals import is_from_handler
from planvec.backends.processes.pending import Pending
from planvec.backends.processes.wire.answers import read_answer, read_value
from planvec.backends.processes.wire.channel import Channel, Frame
from planvec.backends.processes.wire.failures import Failure
from planvec.backends.processes.wire.slab import NUM_SLOTS, Slab, Slot
from planvec.backends.processes.wire.verbs import FAILED
from planvec.errors import EnvError, InvalidBatchError

__all__ = ["Conversation", "Sent", "WrongTicketError"]

_SMALL = 32 << 10
"""A frame below this size fits into the socket's buffer, so that sending it never waits for the worker."""


class WrongTicketError(Exception):
    """A process answered something that it was not asked."""


class Sent(NamedTuple):
    """A request that was sent: its ticket, and the slot of its rows."""

    ticket: int
    slot: int
    pending: Pending


class Conversation:
    """The requests of one process, until they are answered. Another process may follow it: `begin`.

    Attributes:
        waiting: Submitted, but not sent.
        sent: Sent, but not answered; the oldest first.
        is_open: Whether more may be sent.
        since: When the process was started, or began its present request.
        progress: The cells that tell which ticket, row and step it is at; None where it has no rows.
    """

    def __init__(self) -> None:
        self.waiting: deque[Pending] = deque()
        self.sent: deque[Sent] = deque()
        self._tickets = 0
        self._delivering: Pending | None = None  # being handed on
        self._is_in_callback = False

    def begin(self, channel: Channel) -> None:
        """Talk to a new process."""
        self._channel = channel
        self._free_slots = list(range(NUM_SLOTS))
        self._slots: list[Slot] = []
        self._space: gymnasium.Space[Any] | None = None
        self.progress: memoryview | None = None
        self._is_ready = self.is_open = self._is_in_message = False
        self.since = time.monotonic()

    def open(self, slab: Slab | None, action_space: gymnasium.Space[Any] | None) -> None:
        """Send requests from now on.

        Args:
            slab: The memory of its rows, if it can step any.
            action_space: The space of one action likewise.
        """
        if slab is not None:
            self._slots, self.progress = slab.slots, slab.progress
        self._space = action_space
        self._is_ready = self.is_open = True

    def end(self) -> list[Pending]:
        """Forget the requests and the slab (a view of it would keep its memory).

        Returns:
            The requests that are not done, the oldest first.
        """
        delivering = [] if self._delivering is None or self._is_in_callback else [self._delivering]
        # Each once: one that was interrupted may be in both queues.
        pending = list(dict.fromkeys([*delivering, *(sent.pending for sent in self.sent), *self.waiting]))
        self._delivering = None
        self.is_open = False
        self.sent.clear()
        self.waiting.clear()
        self._slots, self.progress = [], None
        return pending

    def submit(self, pending: Pending) -> None:
        """Send a request if there is room, else keep a copy of it until there is.

        Raises:
            ChannelError: As of `send_waiting`.
        """
        self.waiting.append(pending)
        self.send_waiting()
        if not (pending.is_sent or pending.done()):
            pending.request = pending.request.copy()  # the caller may change its arrays

    def send_waiting(self) -> None:
        """Send what waits, as far as there is room.

        Raises:
            ChannelError: The process is gone. The last of `sent` has not reached it.
        """
        waiting = self.waiting
        while waiting and self.is_open:
            pending = waiting[0]
            if pending.done():
                waiting.popleft()
                continue
            has_slot = pending.form.has_slot
            if len(self.sent) >= NUM_SLOTS or (has_slot and not self._free_slots):
                return
            index = self._free_slots[-1] if has_slot else 0
            slot = self._slots[index].first(pending.request.num_rows) if has_slot else None
            try:
                payload = pending.form.write(pending.request, slot, self._space)
            except (pickle.PicklingError, TypeError, AttributeError, ValueError, OverflowError) as error:
                if is_from_handler(error):
                    raise
                # A request that cannot be sent must not stay in the way of the next ones.
                waiting.popleft()
                if not isinstance(error, InvalidBatchError):
                    error = InvalidBatchError(f"{pending.describe()}: cannot be sent ({error})")
                pending.finish(error=error)
                continue
            if len(payload) > _SMALL and self.sent:
                return  # the worker may be writing to us: neither side would read
            self._send(pending, payload, index)

    def _send(self, pending: Pending, payload: bytes, slot: int) -> None:
        self._tickets += 1
        frame = Frame(self._tickets, pending.form.verb, slot, pending.request.num_rows, payload)
        if not self.sent:
            self.since = time.monotonic()
        self._is_in_message = True
        self.sent.append(Sent(self._tickets, slot, pending))
        pending.is_sent = True
        self.waiting.popleft()
        if pending.form.has_slot:
            self._free_slots.pop()
        self._channel.send(frame)
        self._is_in_message = False

    @property
    def is_interrupted(self) -> bool:
        """Whether a signal handler has raised in a message, or while an answer was handed on."""
        return (self._is_in_message or self._delivering is not None) and not self._is_in_callback

    def receive(self, on_ready_message: Callable[[Frame], None]) -> Pending | None:
        """Read one frame, which is there.

        Args:
            on_ready_message: Takes the first frame of a process, and calls `open`, or ends the process.

        Returns:
            The request that it answers; None if it was the first, or if another thread was here first.

        Raises:
            ChannelError: The process is gone.
            WrongTicketError: It answered something that it was not asked.
        """
        self._is_in_message = True
        frame = self._channel.receive()
        if frame is None:
            self._is_in_message = False
            return None
        if self._is_ready:
            return self._finish(frame)
        self._is_in_callback = True
        try:
            on_ready_message(frame)
        finally:
            self._is_in_callback = False
        self._is_in_message = False
        return None

    def _finish(self, frame: Frame) -> Pending:
        ticket, index, pending = self.sent[0]
        if frame.ticket != ticket:
            raise WrongTicketError
        self.since = time.monotonic()
        has_slot = pending.form.has_slot
        slot = self._slots[index].first(frame.num_rows) if has_slot else None
        # The slot is free from here on: whoever is delivering copies it before anything else is sent.
        self._delivering = pending
        self.sent.popleft()
        if has_slot:
            self._free_slots.append(index)
        self._is_in_message = False
        self._is_in_callback = True
        try:
            _read(pending, slot, frame)
        finally:
            self._is_in_callback = False
        self._delivering = None
        return pending

    def fail_delivery(self, exit: WorkerExit) -> bool:
        """Fail the answer whose handing on was interrupted, if there is one; returns whether there was."""
        delivering, self._delivering = self._delivering, None
        if delivering is not None:
            delivering.fail(exit, is_current=False)
        return delivering is not None


def _read(pending: Pending, slot: Slot | None, frame: Frame) -> None:
    """Read an answer, and tell whoever waits for it."""
    if pending.cancelled():
        pending.finish()
        return
    try:
        if frame.verb == FAILED:
            failure: Failure = pickle.loads(frame.payload)
            answer, error = None, failure.to_error()
        else:
            answer = read_value(frame.payload) if slot is None else read_answer(slot, frame.payload)
            error = None
    except Exception as cause:
        if is_from_handler(cause):
            raise
        text = (
            f"{pending.describe()}: the answer cannot be read in this process "
            f"({type(cause).__name__}: {cause}); leave infos of such types out with info_keys="
        )
        answer, error = None, EnvError(text)
    pending.finish(answer, error)
