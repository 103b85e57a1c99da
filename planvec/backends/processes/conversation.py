"""What one process is asked, and what it answers.

    parent                                              child (host.py)
    ------                                              -----
    Job.write -> slab slot  -- frame (ticket, verb) -->  reads the slot
                                                         steps its rows, noting each in `Slab.progress`
    Job.read  <- slab slot  <-- frame (ticket, done) --  writes the slot

    asked for -> waiting (any number) -> sent (at most two, one per slot) -> done
                 backlog (of the pool) -^

A ticket is used once, and an answer under another ticket than the oldest one sent is a broken worker.
What becomes of the jobs of a process that is gone is not decided here: see `link`.
"""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from planvec.backends.processes.child import host
from planvec.backends.processes.jobs import Job
from planvec.backends.processes.os.signals import is_from_handler
from planvec.backends.processes.wire.channel import Channel, Frame
from planvec.backends.processes.wire.slab import NUM_SLOTS, Slab, Slot
from planvec.errors import EnvError, InvalidBatchError

__all__ = ["Conversation", "Sent", "WrongTicketError"]

_SMALL = 32 << 10
"""A frame below this size fits into the socket's buffer, so sending it never waits for the worker."""


class WrongTicketError(Exception):
    """A process answered what it was not asked."""


class Sent(NamedTuple):
    """A job that was sent: under which ticket, and where in the slab its rows lie."""

    ticket: int
    slot: int
    job: Job


class Conversation:
    """The jobs of one process, from the asking to the answer. Another process may follow it: `begin`.

    Attributes:
        waiting: What this process alone is to be sent.
        backlog: Jobs that any process of a pool may do; they share it.
        sent: What it was sent and has not answered, the oldest first.
        is_open: Whether more may be sent.
        is_midway: Whether a message is on its way. If none is, a signal handler has raised in one.
        since: When the process was started, or began its present job.
        progress: The cells that tell which ticket, row and step it is at; None where it has no rows.
    """

    def __init__(self) -> None:
        self.waiting: deque[Job] = deque()
        self.backlog: deque[Job] = deque()
        self.sent: deque[Sent] = deque()
        self._tickets = 0

    def begin(self, channel: Channel) -> None:
        """Talk to a new process."""
        self._channel = channel
        self._free_slots = list(range(NUM_SLOTS))
        self._slots: list[Slot] = []
        self.progress: memoryview | None = None
        self._is_greeted = self.is_open = self.is_midway = False
        self.since = time.monotonic()

    def open(self, slab: Slab | None) -> None:
        """Send jobs from now on. Args: slab: Where their rows lie, if it can do any."""
        if slab is not None:
            self._slots, self.progress = slab.slots, slab.progress
        self._is_greeted = self.is_open = True

    def jobs(self) -> list[Job]:
        """All jobs that are not done, each once: an interrupted one may be in both queues."""
        jobs = dict.fromkeys([*(sent.job for sent in self.sent), *self.waiting])
        return [job for job in jobs if job.is_wanted]

    def end(self) -> None:
        """Forget the jobs, and the slab: a view of it would keep its memory."""
        self.is_open = False
        self.sent.clear()
        self.waiting.clear()
        self._slots, self.progress = [], None

    def send_waiting(self) -> None:
        """Send what waits, here and in the backlog, as far as there is room.

        Raises:
            ChannelError: The process is gone. The last job of `sent` has not reached it.
        """
        while (queue := self.waiting or self.backlog) and self.is_open:
            job = queue[0]
            if not job.is_wanted:
                queue.popleft()
                continue
            slot = self._slots[self._free_slots[-1]] if self._free_slots and job.num_rows else None
            if len(self.sent) >= NUM_SLOTS or (job.num_rows and slot is None):
                return
            try:
                payload = job.write(slot)
            except (pickle.PicklingError, TypeError, AttributeError, ValueError, OverflowError) as error:
                if is_from_handler(error):
                    raise
                # Rows that cannot be sent must not stay in the way of the next ones.
                queue.popleft()
                job.fail(InvalidBatchError(f"{job.describe()}: cannot be sent ({error})"))
                continue
            if len(payload) > _SMALL and self.sent:
                return  # the worker may be writing to us: neither side would read
            self._send(job, payload, self._free_slots[-1] if slot is not None else 0, queue)

    def _send(self, job: Job, payload: bytes, slot: int, queue: deque[Job]) -> None:
        self._tickets += 1
        frame = Frame(self._tickets, job.verb, slot, job.num_rows, payload)
        if not self.sent:
            self.since = time.monotonic()
        self.is_midway = True
        self.sent.append(Sent(self._tickets, slot, job))
        queue.popleft()
        if job.num_rows:
            self._free_slots.pop()
        self._channel.send(frame)
        self.is_midway = False

    def receive(self, greet: Callable[[Frame], None]) -> Job | None:
        """Read one frame, which is there.

        Args:
            greet: Takes the first frame of a process, and calls `open`, or ends the process.

        Returns:
            The job that it finishes; None if it was the first, or if another thread was here first.

        Raises:
            ChannelError: The process is gone.
            WrongTicketError: It answered what it was not asked.
        """
        job = None
        self.is_midway = True
        frame = self._channel.receive()
        if frame is not None:
            if self._is_greeted:
                job = self._finish(frame)
            else:
                greet(frame)
        self.is_midway = False
        return job

    def _finish(self, frame: Frame) -> Job:
        ticket, slot_index, job = self.sent[0]
        if frame.ticket != ticket:
            raise WrongTicketError
        slot = self._slots[slot_index] if job.num_rows else None
        self.since = time.monotonic()
        if not job.is_done and job.is_wanted:
            _read(job, slot, frame)
        self.sent.popleft()
        if slot is not None:
            self._free_slots.append(slot_index)
        return job


def _read(job: Job, slot: Slot | None, frame: Frame) -> None:
    """Have a job read its answer, and be done."""
    try:
        if frame.verb == host.FAILED:
            job.fail(pickle.loads(frame.payload).revive(job.first_row))
        else:
            job.read(slot, frame.payload)
            job.finish()
    except Exception as error:
        if is_from_handler(error):
            raise
        job.fail(
            EnvError(
                f"{job.describe()}: the answer cannot be read in this process "
                f"({type(error).__name__}: {error}); leave infos of such types out with info_keys="
            )
        )
