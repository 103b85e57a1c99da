"""Sends the requests of one worker process, and reads its answers.

A signal handler of the user may raise anywhere in this module. Therefore a step that must be completed is
recorded before it begins, and `_repair` completes it in the next call.
"""

from __future__ import annotations

import math
import pickle
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium

from planvec.backends.base import ExitReason, Pending, WorkerExit
from planvec.backends.messages import Failure, read_description, start_error
from planvec.backends.processes.channel import FAILED, Channel, ChannelError, Frame
from planvec.backends.processes.requests import Form, SharedLayout, form_of
from planvec.backends.processes.slab import NUM_SLOTS, Slab, Slot
from planvec.backends.processes.starting import Child
from planvec.backends.sharded.backend import check_replacement
from planvec.backends.signals import is_from_handler
from planvec.errors import ClosedError, EnvError, InvalidBatchError, PlanvecError, WorkerStartError
from planvec.rows import EnvDescription, Request
from planvec.stepping import ROW, STEP, TICKET

# -- Defines `ProcessPending`, a request to a process and the future of its answer ---------------------------


class ProcessPending(Pending):
    """Holds a request to a process."""

    __slots__ = ("form",)

    def __init__(self, request: Request[Any]) -> None:
        super().__init__(request)
        self.form: Form[Any] = form_of(request)  # writes the request


# -- Exchanges requests and answers with one worker process.
#
#     parent                                                child (child.py)
#     ------                                                ---------------------
#     Form.write  -> slot  -- frame (ticket, verb) -->      Form.read
#                                                           EnvStepper.perform, row by row in `progress`
#     read_answer <- slot  <-- frame (ticket, done) --      write_answer
#
#     submitted -> waiting (any number) -> sent (at most two, one per slot) -> done
#
# Each ticket is used once. A process answers in the order of the tickets; any other ticket is a fault of the
# process. `worker` decides what happens to the requests of a process that has exited.

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
        # `slots` are empty if the process hosts no `PlanEnv`; `progress` is None if it steps no rows;
        # `action_space` is None without slots.
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
        # Raises ChannelError if the process has exited; the last request in `sent` has not reached it then.
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
        # Raises ChannelError if the process has exited, WrongTicketError for another ticket than the oldest.
        # `on_ready_message` calls `open` or ends the process.
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


# -- Reads the first message of a worker process, which says whether its object was made ---------------------


def read_ready_message(frame: Frame, name: str, before: Any) -> EnvDescription | SharedLayout | None:
    """Return the description of a `PlanEnv`, the layout of a `Server`, or None for any other object."""
    # `before`: the description or layout before the restart; None on the first start. Raises the worker's
    # start error.
    if frame.verb == FAILED:
        raise start_error(pickle.loads(frame.payload), name)
    description: EnvDescription | SharedLayout | None = read_description(frame.payload, name)
    if isinstance(description, EnvDescription) and before is not None:
        check_replacement(name, before, description)
    elif description is not None and before is not None:
        difference = before.difference(description)
        if difference is not None:
            raise WorkerStartError(f"{name}: its factories made something else after a restart: {difference}")
    return description


# -- Decides when a process must be killed: it exceeds its time or its memory, or a signal has stopped it ----

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


# -- Makes the `WorkerExit` of a process ---------------------------------------------------------------------


def make_exit(
    what: str,
    reason: ExitReason,
    conversation: Conversation,
    *,
    is_ready: bool,
    was_killed: bool,
    may_be_cause: bool,
) -> WorkerExit:
    """Return the exit of a process, with the row that was in progress."""
    # `may_be_cause`: whether the request in progress may be the cause; `was_killed`: from outside.
    exit = WorkerExit(reason, what, was_starting=not is_ready, was_killed=was_killed)
    if not is_ready:
        exit.what += ", while its environment was made and verified with random actions"
    elif conversation.sent and may_be_cause:
        progress = conversation.progress
        # A process that had not begun the request exited for another reason.
        exit.is_cause = progress is None or progress[TICKET] == conversation.sent[0].ticket
        if exit.is_cause and progress is not None and progress[ROW] >= 0:
            exit.row, exit.step = progress[ROW], progress[STEP]
    return exit
