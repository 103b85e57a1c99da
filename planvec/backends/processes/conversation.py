"""Exchanges requests and answers with one worker process.

    parent                                                child (child/host.py)
    ------                                                ---------------------
    Form.write  -> slot  -- frame (ticket, verb) -->      Form.read
                                                          EnvStepper.perform, row by row in `progress`
    read_answer <- slot  <-- frame (ticket, done) --      write_answer

    submitted -> waiting (any number) -> sent (at most two, one per slot) -> done

Each ticket is used once. A process answers in the order of the tickets; any other ticket is a fault of the
process. `worker` decides what happens to the requests of a process that has exited.
"""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium

from planvec.backends.base import WorkerExit
from planvec.backends.messages.failures import Failure
from planvec.backends.processes.pending import ProcessPending
from planvec.backends.processes.wire.channel import Channel, Frame
from planvec.backends.processes.wire.slab import NUM_SLOTS, Slot
from planvec.backends.processes.wire.verbs import FAILED
from planvec.backends.signals import is_from_handler
from planvec.errors import EnvError, InvalidBatchError

_SMALL = 32 << 10  # A payload of at most this size fits into the buffer of the socket: sending it never waits


class WrongTicketError(Exception):
    """Raised when a process answers another request than the oldest one."""


class Sent(NamedTuple):
    """Holds a request that was sent, its ticket, and the slot of its rows."""

    ticket: int
    slot: int
    pending: ProcessPending


class Conversation:
    """Holds the requests of one process until they are answered. `begin` continues with a new process."""

    # `is_open`: Whether more requests may be sent. `since`: Time at which the process was started or began
    # the oldest sent request (`time.monotonic()`). `progress`: The ticket, the row and the step that the
    # process is executing; None if it steps no rows.

    def __init__(self) -> None:
        # requests that are submitted but not sent, the oldest first
        self.waiting: deque[ProcessPending] = deque()
        self.sent: deque[Sent] = deque()  # requests that are sent but not answered, the oldest first
        self._tickets = 0
        self._delivering: ProcessPending | None = None  # its answer is being delivered
        self._is_in_callback = False

    def begin(self, channel: Channel) -> None:
        """Begin the conversation with a new process. Waiting requests stay."""
        self._channel = channel
        self._free_slots = list(range(NUM_SLOTS))
        self._slots: list[Slot] = []
        self._space: gymnasium.Space[Any] | None = None
        self.progress: memoryview | None = None
        self._is_ready = self.is_open = self._is_in_message = False
        self.since = time.monotonic()

    def open(
        self,
        slots: list[Slot],
        progress: memoryview | None,
        action_space: gymnasium.Space[Any] | None = None,
    ) -> None:
        """Start to send requests. The process is ready."""
        self._slots, self.progress, self._space = slots, progress, action_space
        self._is_ready = self.is_open = True

    def end(self) -> list[ProcessPending]:
        """Remove all requests and the slab, whose memory is freed with its last view."""
        # Returns the requests that are not done, the oldest first.
        delivering = [] if self._delivering is None or self._is_in_callback else [self._delivering]
        # Without duplicates: if a signal handler interrupted `_send`, a request is in both queues.
        pending = list(dict.fromkeys([*delivering, *(sent.pending for sent in self.sent), *self.waiting]))
        self._delivering = None
        self.is_open = False
        self.sent.clear()
        self.waiting.clear()
        self._slots, self.progress = [], None
        return pending

    def submit(self, pending: ProcessPending) -> None:
        """Send a request if there is room; otherwise copy it and let it wait."""
        self.waiting.append(pending)
        self.send_waiting()
        if not (pending.is_sent or pending.done()):
            pending.request = pending.request.copy()  # the caller may change its arrays

    def send_waiting(self) -> None:
        """Send waiting requests while there is room."""
        waiting = self.waiting
        while waiting and self.is_open:
            pending = waiting[0]
            if pending.done():
                waiting.popleft()
                continue
            has_slot = pending.form.has_slot
            if len(self.sent) >= NUM_SLOTS or (has_slot and not self._free_slots):
                return
            request = pending.request
            num_rows = request.num_rows
            index = self._free_slots[-1] if has_slot else 0
            slot = self._slots[index].first(num_rows) if has_slot else None
            try:
                payload = pending.form.write(request, slot, self._space)
            except Exception as error:  # pickling runs code of the user, which may raise anything
                if is_from_handler(error):
                    raise
                # A request that cannot be sent must not block the next ones.
                waiting.popleft()
                pending.finish(error=_as_invalid(error, pending))
                continue
            if len(payload) > _SMALL and self.sent:
                return  # the process may be writing, too: if both sides write, neither reads
            self._send(pending, index, num_rows, payload)

    def _send(self, pending: ProcessPending, slot: int, num_rows: int, payload: bytes) -> None:
        self._tickets += 1
        if not self.sent:
            self.since = time.monotonic()
        self._is_in_message = True
        self.sent.append(Sent(self._tickets, slot, pending))
        pending.is_sent = True
        self.waiting.popleft()
        if pending.form.has_slot:
            self._free_slots.pop()
        self._channel.send(self._tickets, pending.form.verb, slot, num_rows, payload)
        self._is_in_message = False

    @property
    def is_interrupted(self) -> bool:
        """Whether a signal handler raised during a message or during the delivery of an answer."""
        return (self._is_in_message or self._delivering is not None) and not self._is_in_callback

    def receive(self, on_ready_message: Callable[[Frame], None]) -> ProcessPending | None:
        """Read one frame, if one has arrived, and complete the request that it answers."""
        # Returns the completed request; None for the first frame, or if another thread has read the frame.
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

    def _finish(self, frame: Frame) -> ProcessPending:
        ticket, index, pending = self.sent[0]
        if frame.ticket != ticket:
            raise WrongTicketError
        self.since = time.monotonic()
        has_slot = pending.form.has_slot
        slot = self._slots[index].first(frame.num_rows) if has_slot else None
        # The slot is free from here on: the callback copies the answer before another request is sent.
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
        """Fail the request whose delivery was interrupted. Return whether there is one."""
        delivering, self._delivering = self._delivering, None
        if delivering is not None:
            delivering.fail(exit, is_current=False)
        return delivering is not None


def _as_invalid(error: Exception, pending: ProcessPending) -> InvalidBatchError:
    """Return the error for a request that cannot be written."""
    if isinstance(error, InvalidBatchError):
        return error
    cause = f"{type(error).__name__}: {error}"
    return InvalidBatchError(f"{pending.describe()}: an argument cannot be pickled ({cause})")


def _read(pending: ProcessPending, slot: Slot | None, frame: Frame) -> None:
    """Read an answer, and complete its request."""
    if pending.cancelled():
        pending.finish()
        return
    try:
        if frame.verb == FAILED:
            failure: Failure = pickle.loads(frame.payload)
            answer, error = None, failure.to_error()
        else:
            answer = pending.form.read_answer(slot, frame.payload)
            error = None
    except Exception as cause:
        if is_from_handler(cause):
            raise
        text = (
            f"{pending.describe()}: the answer cannot be read in this process "
            f"({type(cause).__name__}: {cause}); exclude infos of such types with info_keys="
        )
        answer, error = None, EnvError(text)
    pending.finish(answer, error)
