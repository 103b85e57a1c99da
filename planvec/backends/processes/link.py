"""The life of one worker process: started, asked, watched, replaced or given up.

    starting -> ready -> dead --(a Supervisor decides)--> resting -> starting, or given up

What is said meanwhile is the business of a `Conversation`. No thread runs in the parent: whoever waits for
an answer reads what has arrived and sends what waits, and looks at the clock. Death is seen by the
operating system's own handle of the process, beside the channel.
"""

from __future__ import annotations

import math
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from planvec.backends.processes.child import host
from planvec.backends.processes.conversation import Conversation, WrongTicketError
from planvec.backends.processes.deaths import Death, Supervisor
from planvec.backends.processes.jobs import Job
from planvec.backends.processes.os.launch import Child
from planvec.backends.processes.os.signals import undisturbed
from planvec.backends.processes.wire.channel import ChannelError, Frame
from planvec.backends.processes.wire.slab import Slab
from planvec.envs.plan_env import EnvDescription
from planvec.errors import (
    ClosedError,
    PlanvecError,
    UnsupportedEnvError,
    WorkerCrashedError,
    WorkerStartError,
)
from planvec.stepping.row_loop import ROW, STEP, TICKET

__all__ = ["DIFFERENT", "START_SECONDS", "Link"]

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


class Link:
    """A child process and the jobs that it was asked to do.

    Args:
        factory: The cloudpickled factory of the hosted object.
        start_method: "template", "spawn", "forkserver" or "fork".
        name: For messages and process listings.

    Attributes:
        name: As given.
        lock: Held while anything here changes; the links of a pool share one.
        supervisor: Decides about the jobs of a process that is gone.
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
        self._talk = Conversation()
        self._starts_at = 0.0
        self._undecided: tuple[Callable[[list[Job]], None], list[Job]] | None = None
        self._is_deciding = False
        self._start()

    def share(self, supervisor: Supervisor, lock: threading.RLock, backlog: deque[Job]) -> None:
        """Be one of a pool.

        Args:
            supervisor: Of all its processes.
            lock: For all of them.
            backlog: Jobs that any of them may do.
        """
        self.supervisor, self.lock, self._talk.backlog = supervisor, lock, backlog

    # -- life ---------------------------------------------------------------------------------

    def _start(self) -> None:
        with undisturbed():  # a process that was started and not noted would be lost
            self._child = Child(self._factory, self._start_method, self.name)
            self._talk.begin(self._child.channel)
            self._is_outgrown = False
            self._weigh_at = self._look_at = 0.0
            self._stopped_before = False
            self.description: EnvDescription | None = None
            self.is_ready = False
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
            jobs = self._talk.jobs()
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
                if self._talk.sent:
                    self._child.kill()
                self._talk.is_open = False
                self._child.channel.close()
                undecided = [] if self._undecided is None else self._undecided[1]
                self._undecided = None
                for job in (*self._talk.jobs(), *undecided, *self._talk.backlog):
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
            if self._talk.is_midway or self._undecided is not None:
                self._repair()
            if self.is_ready:
                self._talk.waiting.append(job)
                self.send_waiting()
            elif self.is_closed:
                job.fail(ClosedError(f"{self.name} was closed"))
            elif self.failure is not None:
                job.fail(self.failure)
            else:
                self._talk.waiting.append(job)

    def _repair(self) -> None:
        """A signal handler that raised has left something half done: start over."""
        if self._undecided is not None and not self._is_deciding:
            self._decide()
        if self._talk.is_midway and not self._is_gone:
            self._put_down("stopped", "was interrupted in a message", is_own_fault=False)

    def filenos(self) -> tuple[int, ...]:
        """What becomes readable when an answer comes, and when the process dies; none if it is gone.

        `generation` changes whenever these do.
        """
        with self.lock:
            return () if self._is_gone else (self._child.channel.fileno(), self._child.handle)

    def send_waiting(self) -> None:
        """Send what waits, here and in the backlog, as far as there is room."""
        if self._talk.is_midway:
            self._repair()
        try:
            self._talk.send_waiting()
        except ChannelError:  # it had died before: whatever killed it, the job that was being sent did not
            self._crash(is_own_fault=len(self._talk.sent) > 1)

    def receive(self) -> None:
        """Read one answer, which is there, and send what waits for its room."""
        talk = self._talk
        with self.lock:
            if self._is_gone:
                return
            if talk.is_midway or self._undecided is not None or self._child.is_foreign:
                self._check_own()
                self._repair()
                if self._is_gone:
                    return
            try:
                job = talk.receive(self._greet)
            except ChannelError:
                self._crash()
                return
            except WrongTicketError:
                self._put_down("crashes", "answered what it was not asked")
                return
            if job is not None:
                self._note_done(job)
            if self._is_outgrown and not talk.sent and not self._is_gone:
                self._die("outgrown", f"took more memory than max_worker_rss={self.max_rss:,} bytes")
            if talk.waiting or talk.backlog:
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
        slab = None
        if isinstance(self.description, EnvDescription):
            slab = Slab(self.description, self._child.memory)
            self.capacity = slab.capacity
        self._talk.open(slab)
        self.is_ready = True
        self.supervisor.num_failed_starts = 0

    def _note_done(self, job: Job) -> None:
        """Whatever it did before, it works; now and then, ask what it takes."""
        self.num_deaths = self.supervisor.num_idle_deaths = 0
        now = self._talk.since
        if self.max_rss is not None and job.num_rows and now >= self._weigh_at:
            self._weigh_at = now + _WEIGH_SECONDS
            if self._child.memory_used() > self.max_rss:
                self._is_outgrown, self._talk.is_open = True, False

    # -- time ---------------------------------------------------------------------------------

    def patience(self, now: float) -> float:
        """Seconds until `tick` should be called; infinite if an answer or a death comes first."""
        if self._undecided is not None:
            return 0.0
        if self._is_gone:
            return self._starts_at - now if self._is_resting else math.inf
        if not self.is_ready:
            return self._talk.since + START_SECONDS - now
        if self._talk.sent and self.timeout is not None:
            return self._talk.since + self.timeout - now
        return math.inf

    def tick(self, now: float) -> None:
        """Do what is due. Args: now: `time.monotonic()`."""
        if self._is_resting or self._undecided is not None:
            with self.lock:
                self._repair()
                self._start_if_due(now)
        elif not self._is_gone and (self._talk.sent or not self.is_ready):
            waited = now - self._talk.since
            if not self.is_ready and waited >= START_SECONDS:
                self.give_up_starting(START_SECONDS)
            elif self.timeout is not None and self.is_ready and waited >= self.timeout:
                self._time_out(self.timeout)
            elif waited >= _ABANDONED_SECONDS and self._works_for_nobody:
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

    @property
    def _works_for_nobody(self) -> bool:
        sent = self._talk.sent
        return bool(sent) and not sent[0].job.is_wanted

    def _abandon(self) -> None:
        """The call that the process works for was interrupted, or has failed: others shall not wait."""
        with self.lock:
            if not self._is_gone and self._works_for_nobody:
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
            is_answered = self._is_gone or not self._talk.sent or self._child.channel.is_readable()
            if is_answered or time.monotonic() - self._talk.since < seconds:
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
        elif self._talk.sent:
            ticket, _, at_work = self._talk.sent[0]
            what += f" during the {at_work.describe()} (ticket {ticket})"
            progress = self._talk.progress
            # A worker that had not begun it yet has died of something else.
            has_begun = progress is None or progress[TICKET] == ticket
            if is_own_fault and has_begun:
                job = at_work
                if progress is not None:
                    row, step = progress[ROW], progress[STEP]
        is_foreign = kind != "timeouts" and self._child.was_killed
        death = Death(kind, what, job, row, step, not self.is_ready, is_foreign)
        self.num_deaths += 1
        self._settle(lambda jobs: self.supervisor.died(self, death, jobs))

    def give_up(self, error: PlanvecError) -> None:
        """End the process, which cannot make its object."""
        self._settle(lambda jobs: self.supervisor.cannot_start(self, error, jobs))

    def _settle(self, decide: Callable[[list[Job]], None]) -> None:
        """End the process, and have it decided what becomes of its jobs."""
        self._undecided = decide, self._talk.jobs()
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
        self._let_go()

    def _let_go(self) -> None:
        self._talk.end()
        self._child.end()
