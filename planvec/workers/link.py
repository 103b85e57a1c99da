"""The parent's end of a worker: what was asked of it, and what has come of that.

    parent                                              child (host.py)
    ------                                              -----
    Job.write -> slab slot  -- frame (ticket, verb) -->  reads the slot
                                                         steps its rows
    Job.read  <- slab slot  <-- frame (ticket, done) --  writes the slot

    asked for -> waiting (any number) -> sent (at most two, one per slot) -> done

No thread runs in the parent: whoever waits for an answer reads what has arrived and sends what waits.
A ticket is used once, and an answer under another ticket than the oldest one sent is a broken worker.
Death is seen by the operating system's own handle of the process, beside the channel.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from planvec.errors import (
    ClosedError,
    EnvError,
    InvalidBatchError,
    PlanvecError,
    UnsupportedEnvError,
    WorkerCrashedError,
    WorkerStartError,
    WorkerTimeoutError,
)
from planvec.plan_env import EnvDescription
from planvec.workers import host
from planvec.workers.jobs import Job
from planvec.workers.launch import Child
from planvec.workers.messages import Frame
from planvec.workers.slab import NUM_SLOTS, Slab, Slot

__all__ = ["DIFFERENT", "Link", "Supervisor"]

_UNREADABLE = (pickle.UnpicklingError, ImportError, AttributeError, TypeError, ValueError, LookupError)
"""What unpickling raises where a class is missing."""
_MAX_LOST = 3
"""How often a job may find its worker dead already before it counts as the cause."""
_SMALL = 32 << 10
"""A frame below this size fits into the socket's buffer, so sending it never waits for the worker."""

DIFFERENT = (
    "results would depend on the worker. A factory must make the same one in every process; give what it "
    "draws at random (a map, say) a fixed value"
)
"""Why a difference between the environments of two processes is refused."""

Supervisor = Callable[["Link", PlanvecError, Job | None, list[Job]], list[Job]]
"""Told that a process is gone, with the job at work and all that were not done; returns those to fail."""


class _Sent(NamedTuple):
    """A job that was sent: under which ticket, and where in the slab its rows lie."""

    ticket: int
    slot: int
    job: Job


class Link:
    """A child process and the jobs that it was asked to do.

    Args:
        factory: The cloudpickled factory of the hosted object.
        start_method: "spawn", "forkserver" or "fork".
        name: For messages and process listings.

    Attributes:
        name: As given.
        lock: Held while anything here changes.
        supervisor: Decides about the jobs of a process that is gone; None fails them.
        generation: Changes whenever `filenos` does.
        failure: Why the process is gone, or None.
        description: What the hosted object says of itself, once it is made.
        capacity: The most rows that one job can carry, once it is made.
        is_ready: Whether it is made.
        is_closed: Whether `hang_up` was called.
    """

    def __init__(self, factory: bytes, start_method: str, name: str) -> None:
        self.name = name
        self.lock = threading.RLock()
        self.supervisor: Supervisor | None = None
        self.generation = 0
        self.capacity = 0
        self.is_closed = False
        self._factory = factory
        self._start_method = start_method
        self._fingerprint: bytes | None = None
        self._tickets = 0
        self._busy_since = 0.0
        self._waiting: deque[Job] = deque()
        self._start()

    # -- life ---------------------------------------------------------------------------------

    def _start(self) -> None:
        self._sent: deque[_Sent] = deque()
        self._free_slots = list(range(NUM_SLOTS))
        self._slots: list[Slot] = []
        self._midway = False
        self.description: EnvDescription | None = None
        self.is_ready = False
        self._child = Child(self._factory, self._start_method, self.name)
        self._started_at = time.monotonic()
        self.failure: PlanvecError | None = None
        self.generation += 1

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid

    def restart(self) -> None:
        """Start the process anew, with a new object from the same factory. Loses what was sent."""
        with self.lock:
            if self.is_closed:
                raise ClosedError(f"{self.name} was closed")
            jobs = self._take_jobs()
            self._child.end()
            self._start()
            for job in jobs:
                job.fail(WorkerCrashedError(f"{self.name} was restarted during the {job.describe()}"))

    def kill(self) -> None:
        """Kill the process at once (SIGKILL). Calls under way raise `WorkerCrashedError`."""
        self._child.kill()

    def hang_up(self) -> None:
        """Begin to close: an idle worker ends when it reads the end of the stream; a busy one is killed."""
        with self.lock:
            if not self.is_closed:
                self.is_closed = True
                self.generation += 1
                if self._sent:
                    self._child.kill()
                self._child.channel.close()
                for job in self._take_jobs():
                    job.fail(ClosedError(f"{self.name} was closed"))

    def reap(self, deadline: float) -> None:
        """Finish closing: wait until `deadline` (`time.monotonic()`), then kill."""
        self._child.join(max(0.0, deadline - time.monotonic()))
        self._child.end()

    # -- jobs ---------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise if the process is closed or gone."""
        if self.is_closed:
            raise ClosedError(f"{self.name} was closed")
        self._check_own()
        if self.failure is not None:
            raise self.failure

    def _check_own(self) -> None:
        if self._child.is_foreign:
            raise ClosedError(
                f"{self.name} belongs to the process that this one was forked from; open another one here"
            )

    def submit(self, job: Job) -> None:
        """Ask for a job; it is sent now if there is room, else while somebody waits."""
        with self.lock:
            self._repair()
            self._waiting.append(job)
            self._send_waiting()

    def _repair(self) -> None:
        """A signal handler that raised has left a frame half sent or half read: start over."""
        if self._midway and not self._is_gone:
            self._child.kill()
            self._crash(None, is_own_fault=False)

    def filenos(self) -> tuple[int, ...]:
        """What becomes readable when an answer comes, and when the process dies; none if it is gone.

        `generation` changes whenever these do.
        """
        return () if self._is_gone else (self._child.channel.fileno(), self._child.handle)

    def seconds_starting(self, now: float) -> float:
        """How long it has been starting; 0 once it is ready. Args: now: `time.monotonic()`."""
        return 0.0 if self.is_ready or self._is_gone else now - self._started_at

    def seconds_busy(self, now: float) -> float:
        """How long the request at work has been there. Args: now: `time.monotonic()`."""
        return now - self._busy_since if self._sent else 0.0

    def _send_waiting(self) -> None:
        while self._waiting and self.is_ready and not self._is_gone:
            job = self._waiting[0]
            slot = self._slots[self._free_slots[-1]] if self._free_slots and job.rows else None
            if len(self._sent) >= NUM_SLOTS or (job.rows and slot is None):
                return
            try:
                payload = job.write(slot)
            except (pickle.PicklingError, TypeError, AttributeError, ValueError, OverflowError) as error:
                # Rows that cannot be sent must not stay in the way of the next ones.
                self._waiting.popleft()
                job.fail(InvalidBatchError(f"{job.describe()}: cannot be sent ({error})"))
                continue
            if len(payload) > _SMALL and self._sent:
                return  # the worker may be writing to us: neither side would read
            self._send(job, payload, self._free_slots[-1] if slot is not None else 0)

    def _send(self, job: Job, payload: bytes, slot: int) -> None:
        self._tickets += 1
        frame = Frame(self._tickets, job.verb, slot, job.num_rows, payload)
        if not self._sent:
            self._busy_since = time.monotonic()
        self._midway = True
        self._sent.append(_Sent(self._tickets, slot, job))
        self._waiting.popleft()
        if job.rows:
            self._free_slots.pop()
        job.num_attempts += 1
        try:
            self._child.channel.send(frame)
        except OSError as error:  # it had died before: whatever killed it, this job did not
            job.num_lost += 1
            self._crash(error, is_own_fault=job.num_lost > _MAX_LOST)
        self._midway = False

    def receive(self) -> None:
        """Read one answer, which is there, and send what waits for its room."""
        with self.lock:
            if self._is_gone:
                return
            self._check_own()
            self._repair()
            self._midway = True
            try:
                frame = self._child.channel.receive()
            except OSError as error:
                self._crash(error)
                return
            if frame is None:  # another thread was here first
                self._midway = False
            elif self.is_ready:
                self._finish(frame)
            else:
                self._greet(frame)
            self._midway = False
            self._send_waiting()

    def _greet(self, frame: Frame) -> None:
        """The first frame: the object was made, or not."""
        if frame.verb == host.FAILED:
            failure: Any = pickle.loads(frame.payload)
            error = failure.revive()
            if not isinstance(error, UnsupportedEnvError):
                cause = error.__cause__
                error = WorkerStartError(
                    f"{self.name} could not be started: {failure.type_name}: {failure.detail}"
                )
                error.__cause__ = cause
            self.give_up(error)
            return
        known = self._fingerprint
        self.description = pickle.loads(frame.payload)
        self._fingerprint = getattr(self.description, "fingerprint", b"")
        if known not in (None, self._fingerprint):
            self.give_up(
                WorkerStartError(f"{self.name} was restarted and made another environment: {DIFFERENT}")
            )
            return
        if isinstance(self.description, EnvDescription):
            slab = Slab(self.description, self._child.memory)
            self._slots, self.capacity = slab.slots, slab.capacity
        self.is_ready = True

    def _finish(self, frame: Frame) -> None:
        ticket, slot_index, job = self._sent[0]
        if frame.ticket != ticket:
            self._child.kill()
            self._crash(None)
            return
        slot = self._slots[slot_index] if job.rows else None
        self._busy_since = time.monotonic()
        try:
            if frame.verb == host.FAILED:
                job.error = pickle.loads(frame.payload).revive(job.first_row)
            else:
                job.read(slot, frame.payload)
        except Exception as error:
            # The first time anything else may come from a signal handler, and is let through.
            job.num_unread += 1
            if job.num_unread == 1 and not isinstance(error, _UNREADABLE):
                raise
            job.error = EnvError(
                f"{job.describe()}: the answer cannot be read in this process "
                f"({type(error).__name__}: {error}); leave infos of such types out with info_keys="
            )
        job.is_done = True
        self._sent.popleft()
        if slot is not None:
            self._free_slots.append(slot_index)

    # -- death --------------------------------------------------------------------------------

    def notice_death(self) -> None:
        """The process is gone: keep what it had answered, fail the rest."""
        with self.lock:
            self._check_own()
            child = self._child
            while self._child is child and not self._is_gone and self._child.channel.is_readable():
                self.receive()
            if self._child is child and not self._is_gone and not child.is_alive():
                self._crash(None)

    @property
    def _is_gone(self) -> bool:
        return self.is_closed or self.failure is not None

    def give_up_starting(self, seconds: float) -> None:
        """Give up on a process that does not get ready."""
        with self.lock:
            self._child.kill()
            self.give_up(WorkerStartError(f"{self.name} was not ready within {seconds:g} s"))

    def time_out(self, seconds: float) -> None:
        """Give up on the request at work: kill the process."""
        with self.lock:
            self._child.kill()
            what = self._sent[0].job.describe() if self._sent else "start"
            self.give_up(
                WorkerTimeoutError(
                    f"{self.name} (pid {self.pid}) did not finish the {what} within {seconds:g} s; "
                    "it was killed"
                )
            )

    def _crash(self, cause: BaseException | None, is_own_fault: bool = True) -> None:
        how = self._child.how_it_ended()
        what = f" during the {self._sent[0].job.describe()}" if self._sent else ""
        message = f"{self.name} (pid {self.pid}) {how}{what}"
        error: PlanvecError = WorkerCrashedError(message)
        if not self.is_ready:
            error = WorkerStartError(
                f"{message}, while its environment was made and tried with random actions"
            )
        error.__cause__ = cause
        self.give_up(error, is_own_fault)

    def give_up(self, error: PlanvecError, is_own_fault: bool = True) -> None:
        """End the process, and let the supervisor decide about its jobs.

        Args:
            error: Why.
            is_own_fault: Whether the job at work may have been the cause.
        """
        self.failure = error
        self.generation += 1
        at_work = self._sent[0].job if self._sent and is_own_fault else None
        jobs = self._take_jobs()
        self._child.end()
        failed = jobs
        try:
            if self.supervisor is not None:
                failed = self.supervisor(self, error, at_work, jobs)
        except OSError as cause:  # no other process could be started
            self._take_jobs()
            error.__cause__ = cause
        for job in failed:
            job.fail(error)

    def _take_jobs(self) -> list[Job]:
        """All jobs that are not done, each once: an interrupted one may be in both queues."""
        jobs = dict.fromkeys([*(sent.job for sent in self._sent), *self._waiting])
        self._sent.clear()
        self._waiting.clear()
        return [job for job in jobs if not job.is_done]
