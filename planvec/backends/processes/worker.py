"""`ProcessWorker`: one worker process, from its start to its end, and its successors.

    starting -> ready -> exited -> (restart) -> resting -> starting

No thread runs in the parent: whoever waits for an answer reads what has arrived, sends what waits, and looks at
the clock (see `group`). The end of a process is seen by the operating system's own handle of it, beside
the channel.

A signal handler of the user's may raise anywhere in here. What must not be left half done is noted first, and
finished by whoever comes next: `_repair`.
"""

from __future__ import annotations

import math
import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

from planvec.backends.base import WorkerExit
from planvec.backends.processes.conversation import Conversation, WrongTicketError
from planvec.backends.processes.os.launch import Child
from planvec.backends.processes.os.signals import undisturbed
from planvec.backends.processes.pending import Pending
from planvec.backends.processes.watchdog import Watchdog
from planvec.backends.processes.wire.channel import ChannelError, Frame
from planvec.backends.processes.wire.failures import Failure
from planvec.backends.processes.wire.slab import Slab
from planvec.backends.processes.wire.verbs import FAILED
from planvec.backends.sharded import DIFFERENT
from planvec.backends.stats import ExitReason
from planvec.errors import ClosedError, PlanvecError, UnsupportedEnvError, WorkerStartError
from planvec.rows import EnvDescription, Request
from planvec.stepping import ROW, STEP, TICKET

__all__ = ["ProcessWorker"]


class ProcessWorker:
    """A worker process. See `backends.base.Worker`.

    Args:
        factory: The cloudpickled factory of the hosted object.
        start_method: One of `START_METHODS`.
        name: For messages and process listings.

    Attributes:
        name: As given.
        capacity: The most rows that one request can have, once it is ready.
        description: Of the hosted environment, once it is ready; None where the object is something else.
        exit: How it ended, until it is started again.
        lock: Held while anything here changes.
        watchdog: Looks after it while it works; has its limits.
        generation: Changes whenever `filenos` does.
        is_closed: Whether `hang_up` was called.
    """

    def __init__(self, factory: bytes, start_method: str, name: str) -> None:
        self.name = name
        self.factory = factory
        self.start_method = start_method
        self.lock = threading.RLock()
        self.watchdog = Watchdog()
        self.capacity = 0
        self.generation = 0
        self.is_closed = False
        self.exit: WorkerExit | None = None
        self._changed: Callable[[Any], None] = lambda worker: None
        self._fingerprint: bytes | None = None
        self._conversation = Conversation()
        self._starts_at = math.inf
        self._leaving: WorkerExit | None = None  # noted, but perhaps not told to everybody
        self._is_leaving = False
        self._start()

    def listen(self, changed: Callable[[ProcessWorker], None], lock: threading.RLock) -> None:
        """Have `changed(self)` called whenever it has become ready or has ended."""
        self._changed, self.lock = changed, lock
        if self.exit is not None:
            changed(self)

    # -- life ---------------------------------------------------------------------------------------

    def _start(self) -> None:
        with undisturbed():  # a process that was started and not noted would be lost
            self._child = Child(self.factory, self.start_method, self.name)
            self._conversation.begin(self._child.channel)
            self.watchdog.begin()
            self._is_outgrown = False
            self.description: EnvDescription | None = None
            self.is_ready = False
            self.generation += 1
            self._starts_at, self._is_gone = math.inf, False

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid

    def restart(self, pause: float = 0.0) -> None:
        """Start the process anew after its exit, in `pause` seconds; requests wait until it is ready."""
        self.exit = None
        self._starts_at = time.monotonic() + pause
        self._start_if_due()

    def kill(self) -> None:
        """Kill the process at once (SIGKILL), and what it has started."""
        self._check_own()
        with self.lock:
            self._child.kill()

    def abort(self, how: str) -> None:
        """Kill the process, and forget its requests, which raise `WorkerExit`. Args: how: For the message."""
        with self.lock:
            if not self._is_gone:
                self._child.kill()
                self._leaving = WorkerExit(ExitReason.STOPPED, f"{self.name} (pid {self.pid}) {how}")
                self._leave()

    def memory_used(self) -> int:
        """Return the bytes that the process has in memory; 0 where the system does not tell."""
        return self._child.memory_used()

    def close(self) -> None:
        """End the process, which has a second to close its object. See `hang_up` and `reap`."""
        self.hang_up()
        self.reap(time.monotonic() + 1.0)

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
                if self._conversation.sent:
                    self._child.kill()
                self._conversation.is_open = False
                self._child.channel.close()
                self._leaving = None
                for pending in self._conversation.end():
                    pending.finish(error=ClosedError(f"{self.name} was closed"))

    def reap(self, deadline: float) -> None:
        """Finish closing: wait until `deadline` (`time.monotonic()`), then kill."""
        self._child.join(max(0.0, deadline - time.monotonic()))
        self._child.kill()
        self._child.end()

    # -- requests -----------------------------------------------------------------------------------

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
            if self._conversation.is_interrupted or self._leaving is not None:
                self._repair()
            if self.is_closed:
                pending.finish(error=ClosedError(f"{self.name} was closed"))
            elif self.exit is not None:
                pending.lose(self.exit, is_at_work=False)
            else:
                try:
                    self._conversation.submit(pending)
                except ChannelError:  # it had died before: whatever killed it, this request did not
                    self._crash(is_own_fault=len(self._conversation.sent) > 1)
        return pending

    def _repair(self) -> None:
        """Finish what a signal handler that raised has left half done."""
        if self._leaving is not None and not self._is_leaving:
            self._leave()
        if not self._conversation.is_interrupted or self._is_gone:
            return
        lost = WorkerExit(ExitReason.STOPPED, f"an answer of {self.name} was interrupted")
        if not self._conversation.lose_told(lost):  # it is done again; the process is as good as before
            self._put_an_end(ExitReason.STOPPED, "was interrupted in a message", is_own_fault=False)

    def filenos(self) -> tuple[int, ...]:
        """Return what becomes readable when an answer comes, and when the process ends; nothing if it is gone.

        `generation` changes whenever these do.
        """
        with self.lock:
            return () if self._is_gone else (self._child.channel.fileno(), self._child.handle)

    def receive(self) -> None:
        """Read one answer, which is there, and send what waits for its room."""
        conversation = self._conversation
        with self.lock:
            if self._is_gone:
                return
            if conversation.is_interrupted or self._leaving is not None or self._child.is_foreign:
                self._check_own()
                self._repair()
                if self._is_gone:
                    return
            try:
                pending = conversation.receive(self._greet)
                has_stepped = pending is not None and pending.form.has_slot
                if has_stepped and self.watchdog.is_outgrown(conversation.since, self._child):
                    self._is_outgrown, conversation.is_open = True, False
                if self._is_outgrown and not conversation.sent and not self._is_gone:
                    self._end(
                        ExitReason.OUTGROWN,
                        f"took more memory than max_worker_rss={self.watchdog.max_rss:,} bytes",
                    )
                elif conversation.waiting:
                    conversation.send_waiting()
            except ChannelError:
                self._crash()
            except WrongTicketError:
                self._put_an_end(ExitReason.CRASH, "answered what it was not asked")

    def _greet(self, frame: Frame) -> None:
        """Take the first frame: the object was made, or not."""
        if frame.verb == FAILED:
            failure: Failure = pickle.loads(frame.payload)
            error: PlanvecError = failure.revive()
            if not isinstance(error, UnsupportedEnvError):
                cause = error.__cause__
                error = WorkerStartError(
                    f"{self.name} could not be started: {failure.type_name}: {failure.detail}"
                )
                error.__cause__ = cause
            self._give_up(error)
            return
        self.description = pickle.loads(frame.payload)
        slab, space = None, None
        if self.description is not None:
            fingerprint = self.description.fingerprint
            if self._fingerprint not in (None, fingerprint):
                error = WorkerStartError(
                    f"{self.name} was restarted and made another environment: {DIFFERENT}"
                )
                self._give_up(error)
                return
            self._fingerprint = fingerprint
            slab, space = Slab(self.description, self._child.memory), self.description.action_space
            self.capacity = slab.capacity
        self._conversation.open(slab, space)
        self.is_ready = True
        self._conversation.send_waiting()
        self._changed(self)

    # -- time ---------------------------------------------------------------------------------------

    def seconds_left(self, now: float) -> float:
        """Return in how many seconds `check_clock` should be called; infinite if only events matter."""
        if self._leaving is not None:
            return 0.0
        if self._is_gone:
            return self._starts_at - now
        return self.watchdog.seconds_left(now, self._conversation, self.is_ready)

    def check_clock(self, now: float) -> None:
        """Do what is due. Args: now: `time.monotonic()`."""
        if self._leaving is not None or self._starts_at <= now:
            with self.lock:
                self._repair()
                self._start_if_due()
        elif not self._is_gone and self.watchdog.is_due(now, self._conversation, self.is_ready):
            with self.lock:
                if self._is_gone:
                    return  # another thread was here first
                verdict = self.watchdog.inspect(self._child, self._conversation, self.is_ready)
                if verdict is None:
                    return
                if not self.is_ready and verdict.reason is ExitReason.TIMEOUT:
                    self.give_up_starting(verdict.how)
                else:
                    self._put_an_end(*verdict)

    def _start_if_due(self) -> None:
        if self._starts_at > time.monotonic() or self.is_closed:
            return
        try:
            self._start()
        except WorkerStartError as error:  # out of processes, memory or files
            self._starts_at = math.inf
            self._leaving = WorkerExit(ExitReason.CRASH, str(error), was_starting=True)
            self._leave()

    # -- the end of a process -----------------------------------------------------------------------

    def notice_exit(self) -> None:
        """The process has ended: take what it had answered, then tell everybody."""
        with self.lock:
            self._check_own()
            child = self._child
            while self._child is child and not self._is_gone and child.channel.is_readable():
                self.receive()
            if self._child is child and not self._is_gone and not child.is_alive():
                self._crash()

    def give_up_starting(self, how: str) -> None:
        """Give up on a process that does not become ready. Args: how: For the message."""
        with self.lock:
            if not self.is_ready and not self._is_gone:
                self._child.kill()
                self._give_up(WorkerStartError(f"{self.name} {how}"))

    def _crash(self, is_own_fault: bool = True) -> None:
        """The process has ended, or does not listen any more. Args: as of `_end`."""
        self._end(ExitReason.CRASH, self._child.how_it_ended(), is_own_fault)

    def _put_an_end(self, reason: ExitReason, how: str, is_own_fault: bool = True) -> None:
        """Kill the process. Args: as of `_end`."""
        self._child.kill()
        self._end(reason, f"{how}, and was killed", is_own_fault)

    def _end(self, reason: ExitReason, how: str, is_own_fault: bool = True) -> None:
        """Let the process go, and tell everybody.

        Args:
            reason: For `Stats`.
            how: What it did, for messages.
            is_own_fault: Whether the request at work may be the cause.
        """
        exit = WorkerExit(reason, f"{self.name} (pid {self.pid}) {how}")
        exit.was_starting = not self.is_ready
        exit.was_killed = reason is not ExitReason.TIMEOUT and self._child.was_killed
        if exit.was_starting:
            exit.what += ", while its environment was made and tried with random actions"
        elif self._conversation.sent and is_own_fault:
            progress = self._conversation.progress
            # A worker that had not begun it yet has died of something else.
            exit.is_cause = progress is None or progress[TICKET] == self._conversation.sent[0].ticket
            if exit.is_cause and progress is not None and progress[ROW] >= 0:
                exit.row, exit.step = progress[ROW], progress[STEP]
        self._leaving = exit
        self._leave()

    def _give_up(self, error: PlanvecError) -> None:
        """End a process that cannot make its object: another one could not either."""
        self._leaving = WorkerExit(ExitReason.CRASH, str(error), was_starting=True, error=error)
        self._leave()

    def _leave(self) -> None:
        """Tell everybody of an exit that was noted. Done again, should a signal handler raise in it."""
        exit = self._leaving
        assert exit is not None
        self._is_leaving = True
        try:
            with undisturbed():
                self._is_gone, self.is_ready = True, False
                self.generation += 1
                at_work = self._conversation.sent[0].pending if self._conversation.sent else None
                lost = self._conversation.end()
                self._child.end()
                self.exit = exit
                for pending in reversed(lost):  # so that the oldest is in front of all that is done again
                    pending.lose(exit, is_at_work=pending is at_work)
                self._leaving = None
                self._changed(self)
        finally:
            self._is_leaving = False
