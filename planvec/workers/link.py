"""The parent's end of a worker: what was asked of it, and what has come of that.

    parent                                              child (host.py)
    ------                                              -----
    Job.write -> slab slot  -- frame (ticket, verb) -->  reads the slot
                                                         steps its rows, noting each in `Slab.progress`
    Job.read  <- slab slot  <-- frame (ticket, done) --  writes the slot

    asked for -> waiting (any number) -> sent (at most two, one per slot) -> done
                 backlog (of the pool) -^

    starting -> ready -> dead --(a Supervisor decides)--> resting -> starting, or given up

No thread runs in the parent: whoever waits for an answer reads what has arrived and sends what waits.
A ticket is used once, and an answer under another ticket than the oldest one sent is a broken worker.
Death is seen by the operating system's own handle of the process, beside the channel.
"""

from __future__ import annotations

import math
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
)
from planvec.plan_env import EnvDescription
from planvec.stepping import ROW, STEP, TICKET
from planvec.workers import host
from planvec.workers.deaths import Death, Supervisor
from planvec.workers.jobs import Job
from planvec.workers.launch import Child
from planvec.workers.messages import ChannelError, Frame
from planvec.workers.signals import is_from_handler, undisturbed
from planvec.workers.slab import NUM_SLOTS, Slab, Slot

__all__ = ["DIFFERENT", "START_SECONDS", "Link"]

_SMALL = 32 << 10
"""A frame below this size fits into the socket's buffer, so sending it never waits for the worker."""
START_SECONDS = 60.0
"""How long a process may take to make its object."""
_STOPPED_SECONDS = 1.0
"""How long a process may keep its work waiting until it is asked whether somebody has stopped it."""
_LOOK_SECONDS = 0.25
"""How often that is asked. Twice in a row says yes: some tools stop a process for a moment."""
_ABANDONED_SECONDS = 1.0
"""How long work that nobody waits for any more may keep a process busy."""
_WEIGH_SECONDS = 0.25
"""How often a process is asked for the memory that it takes."""

DIFFERENT = (
    "results would depend on the worker. A factory must make the same one in every process; give what it "
    "draws at random (a map, say) a fixed value"
)
"""Why a difference between the environments of two processes is refused."""
_WAS_STOPPED = "had been stopped by a signal"


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
        lock: Held while anything here changes; the links of a pool share one.
        supervisor: Decides about the jobs of a process that is gone.
        backlog: Jobs that any process of a pool may do; they share it.
        timeout: Seconds that one request may take before the process is killed, or None.
        max_rss: Bytes that the process may have in memory between two requests, or None.
        num_deaths: Deaths since this link last finished a job.
        generation: Changes whenever `filenos` does.
        failure: Why the process was given up, or None.
        description: What the hosted object says of itself, once it is made.
        capacity: The most rows that one job can carry, once it is made.
        is_ready: Whether it is made.
        is_closed: Whether `hang_up` was called.
    """

    def __init__(self, factory: bytes, start_method: str, name: str) -> None:
        self.name = name
        self.lock = threading.RLock()
        self.supervisor = Supervisor()
        self.backlog: deque[Job] = deque()
        self.timeout: float | None = None
        self.max_rss: int | None = None
        self.num_deaths = 0
        self.generation = 0
        self.capacity = 0
        self.is_closed = False
        self.failure: PlanvecError | None = None
        self._factory = factory
        self._start_method = start_method
        self._fingerprint: bytes | None = None
        self._tickets = 0
        self._waiting: deque[Job] = deque()
        self._sent: deque[_Sent] = deque()
        self._starts_at = 0.0
        self._undecided: tuple[Callable[[list[Job]], None], list[Job]] | None = None
        self._is_deciding = False
        self._start()

    # -- life ---------------------------------------------------------------------------------

    def _start(self) -> None:
        with undisturbed():  # a process that was started and not noted would be lost
            self._child = Child(self._factory, self._start_method, self.name)
            self._free_slots = list(range(NUM_SLOTS))
            self._slots: list[Slot] = []
            self._progress: memoryview | None = None
            self._midway = False
            self._is_outgrown = False
            self._weigh_at = self._look_at = 0.0
            self._stopped_before = False
            self.description: EnvDescription | None = None
            self.is_ready = False
            self._since = time.monotonic()  # when it started, or began its present request
            self.generation += 1
            self._starts_at, self._is_gone = math.inf, False

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid

    @property
    def is_settled(self) -> bool:
        """Whether nothing is to be waited for: it is ready, given up, or closed."""
        return self.is_ready or self.is_closed or self.failure is not None

    def restart(self) -> None:
        """Start the process anew, with a new object from the same factory. Loses what was sent."""
        with self.lock:
            if self.is_closed:
                raise ClosedError(f"{self.name} was closed")
            jobs = self._jobs()
            self._bury()
            try:
                self.failure = None
                self._start()
            except WorkerStartError as error:
                self.failure = error
                raise
            finally:
                for job in jobs:
                    job.fail(WorkerCrashedError(f"{self.name} was restarted during the {job.describe()}"))

    def start_again(self, delay: float) -> None:
        """Start the process anew, after some seconds; what is asked for meanwhile waits."""
        now = time.monotonic()
        self.failure = None
        self._starts_at = now + delay
        self._start_if_due(now)

    def kill(self) -> None:
        """Kill the process at once (SIGKILL), and what it has started.

        Calls under way raise `WorkerCrashedError`, or, in a `BatchEnv`, are done again.
        """
        self._check_own()
        with self.lock:
            self._child.kill()

    def memory_used(self) -> int:
        """Bytes that the process has in memory; 0 where the system does not tell."""
        return self._child.memory_used()

    def hang_up(self) -> None:
        """Begin to close: an idle worker ends when it reads the end of the stream; a busy one is killed."""
        if self._child.is_foreign:
            self.is_closed = True
            return  # nor is the lock to be trusted: another thread may have held it in the fork
        with self.lock:
            if not self.is_closed:
                self.is_closed = self._is_gone = True
                self.is_ready = False
                self.generation += 1
                if self._sent:
                    self._child.kill()
                self._child.channel.close()
                undecided = [] if self._undecided is None else self._undecided[1]
                self._undecided = None
                for job in (*self._jobs(), *undecided, *self.backlog):
                    job.fail(ClosedError(f"{self.name} was closed"))

    def reap(self, deadline: float) -> None:
        """Finish closing: wait until `deadline` (`time.monotonic()`), then kill."""
        self._child.join(max(0.0, deadline - time.monotonic()))
        self._child.kill()
        self._let_go()

    # -- jobs ---------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise if the process is closed or given up."""
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
        if self._child.is_foreign:
            self._check_own()
        with self.lock:
            if self._midway or self._undecided is not None:
                self._repair()
            if self.is_ready:
                self._waiting.append(job)
                self.send_waiting()
            elif self.is_closed:
                job.fail(ClosedError(f"{self.name} was closed"))
            elif self.failure is not None:
                job.fail(self.failure)
            else:
                self._waiting.append(job)

    def _repair(self) -> None:
        """A signal handler that raised has left something half done: start over."""
        if self._undecided is not None and not self._is_deciding:
            self._decide()
        if self._midway and not self._is_gone:
            self._put_down("stopped", "was interrupted in a message", is_own_fault=False)

    def filenos(self) -> tuple[int, ...]:
        """What becomes readable when an answer comes, and when the process dies; none if it is gone.

        `generation` changes whenever these do.
        """
        with self.lock:
            return () if self._is_gone else (self._child.channel.fileno(), self._child.handle)

    def send_waiting(self) -> None:
        """Send what waits, here and in the backlog, as far as there is room."""
        if self._midway:
            self._repair()
        while (queue := self._waiting or self.backlog) and self.is_ready and not self._is_outgrown:
            job = queue[0]
            if not job.is_wanted:
                queue.popleft()
                continue
            slot = self._slots[self._free_slots[-1]] if self._free_slots and job.num_rows else None
            if len(self._sent) >= NUM_SLOTS or (job.num_rows and slot is None):
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
            if len(payload) > _SMALL and self._sent:
                return  # the worker may be writing to us: neither side would read
            self._send(job, payload, self._free_slots[-1] if slot is not None else 0, queue)

    def _send(self, job: Job, payload: bytes, slot: int, queue: deque[Job]) -> None:
        self._tickets += 1
        frame = Frame(self._tickets, job.verb, slot, job.num_rows, payload)
        if not self._sent:
            self._since = time.monotonic()
        self._midway = True
        self._sent.append(_Sent(self._tickets, slot, job))
        queue.popleft()
        if job.num_rows:
            self._free_slots.pop()
        try:
            self._child.channel.send(frame)
        except ChannelError:  # it had died before: whatever killed it, this job did not
            self._crash(is_own_fault=len(self._sent) > 1)
        self._midway = False

    def receive(self) -> None:
        """Read one answer, which is there, and send what waits for its room."""
        with self.lock:
            if self._is_gone:
                return
            if self._midway or self._undecided is not None or self._child.is_foreign:
                self._check_own()
                self._repair()
                if self._is_gone:
                    return
            self._midway = True
            try:
                frame = self._child.channel.receive()
            except ChannelError:
                self._crash()
                return
            if frame is None:  # another thread was here first
                self._midway = False
            elif self.is_ready:
                self._finish(frame)
            else:
                self._greet(frame)
            self._midway = False
            if self._is_outgrown and not self._sent and not self._is_gone:
                self._die("outgrown", f"took more memory than max_worker_rss={self.max_rss:,} bytes")
            if self._waiting or self.backlog:
                self.send_waiting()

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
            self._slots, self.capacity, self._progress = slab.slots, slab.capacity, slab.progress
        self.is_ready = True
        self.supervisor.num_failed_starts = 0

    def _finish(self, frame: Frame) -> None:
        ticket, slot_index, job = self._sent[0]
        if frame.ticket != ticket:
            self._put_down("crashes", "answered what it was not asked")
            return
        slot = self._slots[slot_index] if job.num_rows else None
        self._since = time.monotonic()
        if not job.is_done and job.is_wanted:
            self._read(job, slot, frame)
        self._sent.popleft()
        if slot is not None:
            self._free_slots.append(slot_index)
        self.num_deaths = self.supervisor.num_idle_deaths = 0
        if self.max_rss is not None and job.num_rows and self._since >= self._weigh_at:
            self._weigh_at = self._since + _WEIGH_SECONDS
            self._is_outgrown = self._child.memory_used() > self.max_rss

    def _read(self, job: Job, slot: Slot | None, frame: Frame) -> None:
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

    # -- time ---------------------------------------------------------------------------------

    def patience(self, now: float) -> float:
        """Seconds until `tick` should be called; infinite if an answer or a death comes first."""
        if self._undecided is not None:
            return 0.0
        if self._is_gone:
            return self._starts_at - now if self._is_resting else math.inf
        if not self.is_ready:
            return self._since + START_SECONDS - now
        if self._sent and self.timeout is not None:
            return self._since + self.timeout - now
        return math.inf

    def tick(self, now: float) -> None:
        """Do what is due. Args: now: `time.monotonic()`."""
        if self._is_resting or self._undecided is not None:
            with self.lock:
                self._repair()
                self._start_if_due(now)
        elif not self._is_gone and (self._sent or not self.is_ready):
            waited = now - self._since
            if not self.is_ready and waited >= START_SECONDS:
                self.give_up_starting(START_SECONDS)
            elif self.timeout is not None and self.is_ready and waited >= self.timeout:
                self._time_out(self.timeout)
            elif waited >= _ABANDONED_SECONDS and self._sent and not self._sent[0].job.is_wanted:
                self._abandon()
            elif waited >= _STOPPED_SECONDS and now >= self._look_at:
                self._look_at = now + _LOOK_SECONDS
                self._look_whether_stopped()

    def _start_if_due(self, now: float) -> None:
        if not self._is_resting or now < self._starts_at:
            return
        try:
            self._start()
        except WorkerStartError as error:  # out of processes, memory or files
            self._starts_at = math.inf
            self.num_deaths += 1
            death = Death("crashes", str(error), was_starting=True)
            self._settle(lambda jobs: self.supervisor.died(self, death, jobs))

    def _abandon(self) -> None:
        """The call that the process works for was interrupted, or has failed: others shall not wait."""
        with self.lock:
            if not self._is_gone and self._sent and not self._sent[0].job.is_wanted:
                self._put_down("stopped", "worked for nobody any more", is_own_fault=False)

    def _look_whether_stopped(self) -> None:
        with self.lock:
            is_stopped = not self._is_gone and self._child.is_stopped()
            if is_stopped and self._stopped_before:
                self._put_down("stopped", _WAS_STOPPED)
            self._stopped_before = is_stopped

    def _time_out(self, seconds: float) -> None:
        """Give up on the request at work: kill the process."""
        with self.lock:
            is_answered = self._is_gone or not self._sent or self._child.channel.is_readable()
            if is_answered or time.monotonic() - self._since < seconds:
                return  # another thread was here first, or it has just answered
            if self._child.is_stopped():
                self._put_down("stopped", _WAS_STOPPED)
            else:
                self._put_down("timeouts", f"did not finish within {seconds:g} s")

    def give_up_starting(self, seconds: float) -> None:
        """Give up on a process that does not get ready."""
        with self.lock:
            if self.is_ready or self._is_gone:
                return  # another thread was here first
            self._child.kill()
            self.give_up(WorkerStartError(f"{self.name} was not ready within {seconds:g} s"))

    # -- death --------------------------------------------------------------------------------

    def notice_death(self) -> None:
        """The process is gone: keep what it had answered; a supervisor decides about the rest."""
        with self.lock:
            self._check_own()
            child = self._child
            while self._child is child and not self._is_gone and child.channel.is_readable():
                self.receive()
            if self._child is child and not self._is_gone and not child.is_alive():
                self._crash()

    @property
    def _is_resting(self) -> bool:
        """Whether it is between two processes."""
        return self._starts_at < math.inf and not self.is_closed and self.failure is None

    def _crash(self, is_own_fault: bool = True) -> None:
        """The process has ended, or nothing can be said to it any more. Args: as `_die`."""
        self._die("crashes", self._child.how_it_ended(), is_own_fault)

    def _put_down(self, kind: str, how: str, is_own_fault: bool = True) -> None:
        """Kill the process. Args: as `_die`."""
        self._child.kill()
        self._die(kind, f"{how}, and was killed", is_own_fault)

    def _die(self, kind: str, how: str, is_own_fault: bool = True) -> None:
        """End the process, and let the supervisor decide about its jobs.

        Args:
            kind: See `Death`.
            how: For messages.
            is_own_fault: Whether the job at work may have been the cause.
        """
        what, job, row, step = f"{self.name} (pid {self.pid}) {how}", None, -1, 0
        if not self.is_ready:
            what += ", while its environment was made and tried with random actions"
        elif self._sent:
            ticket, _, at_work = self._sent[0]
            what += f" during the {at_work.describe()} (ticket {ticket})"
            # A worker that had not begun it yet has died of something else.
            has_begun = self._progress is None or self._progress[TICKET] == ticket
            if is_own_fault and has_begun:
                job = at_work
                if self._progress is not None:
                    row, step = self._progress[ROW], self._progress[STEP]
        is_foreign = kind != "timeouts" and self._child.was_killed
        death = Death(kind, what, job, row, step, not self.is_ready, is_foreign)
        self.num_deaths += 1
        self._settle(lambda jobs: self.supervisor.died(self, death, jobs))

    def give_up(self, error: PlanvecError) -> None:
        """End the process, which cannot make its object."""
        self._settle(lambda jobs: self.supervisor.cannot_start(self, error, jobs))

    def _settle(self, decide: Callable[[list[Job]], None]) -> None:
        """End the process, and have it decided what becomes of its jobs."""
        self._undecided = decide, self._jobs()
        self._decide()

    def _decide(self) -> None:
        """Done again, should a handler raise in it: a signal may come by way of another thread."""
        assert self._undecided is not None
        decide, jobs = self._undecided
        self._is_deciding = True
        try:
            with undisturbed():
                self._bury()
                decide(jobs)
                self._undecided = None
        finally:
            self._is_deciding = False

    def _bury(self) -> None:
        """End the process, and forget its jobs."""
        self._is_gone = True
        self.is_ready = False
        self.generation += 1
        self._sent.clear()
        self._waiting.clear()
        self._let_go()

    def _let_go(self) -> None:
        """End the process, and give its memory back: a view of the slab would keep it."""
        self._slots, self._progress = [], None
        self._child.end()

    def _jobs(self) -> list[Job]:
        """All jobs that are not done, each once: an interrupted one may be in both queues."""
        jobs = dict.fromkeys([*(sent.job for sent in self._sent), *self._waiting])
        return [job for job in jobs if job.is_wanted]
