"""`ProcessWorker`: one worker process, from its start to its end, and its successors.

    starting -> ready -> exited -> (restart) -> resting -> starting

No thread runs in the parent: whoever waits for an answer reads what has arrived, sends what waits, and looks
at the clock (see `group`). The end of a process is seen by the operating system's own handle of it, beside
the channel.

What must not be left half done by a signal handler that raises is noted first: see `messenger`.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from planvec.backends.base import WorkerExit
from planvec.backends.processes.exits import make_exit
from planvec.backends.processes.messenger import Messenger
from planvec.backends.processes.os.signals import delayed_signals
from planvec.backends.processes.starting.launch import Child
from planvec.backends.stats import ExitReason
from planvec.errors import ClosedError, PlanvecError, WorkerStartError

__all__ = ["ProcessWorker"]


class ProcessWorker(Messenger):
    """A worker process. See `backends.base.Worker`.

    Args:
        factory: The cloudpickled factory of the hosted object.
        start_method: One of `START_METHODS`.
        name: For messages and process listings.

    Attributes:
        generation: Changes whenever `filenos` does.
    """

    def __init__(self, factory: bytes, start_method: str, name: str) -> None:
        super().__init__(name)
        self.factory = factory
        self.start_method = start_method
        self.generation = 0
        self._starts_at = math.inf
        self._unreported_exit: WorkerExit | None = None
        self._is_in_callback = False
        self._start()

    def listen(self, changed: Callable[[ProcessWorker], None], lock: threading.RLock) -> None:
        """Have `changed(self)` called whenever it has become ready or has ended."""
        self._changed, self.lock = changed, lock
        if self.exit is not None:
            changed(self)

    # -- life ---------------------------------------------------------------------------------------

    def _start(self) -> None:
        with delayed_signals():  # a process that was started and not noted would be lost
            self._child = Child(self.factory, self.start_method, self.name)
            self._conversation.begin(self._child.channel)
            self.watchdog.begin()
            self._is_outgrown = False
            self.description, self.is_ready = None, False
            self.generation += 1
            self._starts_at, self._is_disconnected = math.inf, False

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
            if not self._is_disconnected:
                self._child.kill()
                self._unreported_exit = WorkerExit(ExitReason.STOPPED, f"{self.name} (pid {self.pid}) {how}")
                self._report_exit()

    def memory_used(self) -> int:
        """Return the bytes that the process has in memory; 0 where the system does not tell."""
        return self._child.memory_used()

    def close(self) -> None:
        """End the process, which has a second to close its object. See `begin_close` and `finish_close`."""
        self.begin_close()
        self.finish_close(time.monotonic() + 1.0)

    def begin_close(self) -> None:
        """Begin to close: an idle worker ends when it reads the end of the stream; a busy one is killed."""
        if self._child.is_foreign:
            self.is_closed = True
            return  # nor is the lock to be trusted: another thread may have held it in the fork
        with self.lock:
            if not self.is_closed:
                self.is_closed = self._is_disconnected = True
                self.is_ready = False
                self.generation += 1
                if self._conversation.sent:
                    self._child.kill()
                self._conversation.is_open = False
                self._child.channel.close()
                self._unreported_exit = None
                for pending in self._conversation.end():
                    pending.finish(error=ClosedError(f"{self.name} was closed"))

    def finish_close(self, deadline: float) -> None:
        """Finish closing: wait until `deadline` (`time.monotonic()`), then kill."""
        self._child.join(max(0.0, deadline - time.monotonic()))
        self._child.kill()
        self._child.end()

    # -- time ---------------------------------------------------------------------------------------

    def seconds_left(self, now: float) -> float:
        """Return in how many seconds `check_clock` should be called; infinite if only events matter."""
        if self._unreported_exit is not None or self._conversation.is_interrupted:
            return 0.0
        if self._is_disconnected:
            return self._starts_at - now
        return self.watchdog.seconds_left(now, self._conversation, self.is_ready)

    def check_clock(self, now: float) -> None:
        """Do what is due. Args: now: `time.monotonic()`."""
        if self._unreported_exit is not None or self._conversation.is_interrupted or self._starts_at <= now:
            with self.lock:
                self._repair()
                self._start_if_due()
        elif not self._is_disconnected and self.watchdog.is_due(now, self._conversation, self.is_ready):
            with self.lock:
                if self._is_disconnected:
                    return  # another thread was here first
                kill_reason = self.watchdog.inspect(self._child, self._conversation, self.is_ready)
                if kill_reason is None:
                    return
                if not self.is_ready and kill_reason.reason is ExitReason.TIMEOUT:
                    self.give_up_starting(kill_reason.how)
                else:
                    self._kill_and_end(*kill_reason)

    def _start_if_due(self) -> None:
        if self._starts_at > time.monotonic() or self.is_closed:
            return
        try:
            self._start()
        except WorkerStartError as error:  # out of processes, memory or files
            self._starts_at = math.inf
            self._unreported_exit = WorkerExit(ExitReason.CRASH, str(error), was_starting=True)
            self._report_exit()

    # -- the end of a process -----------------------------------------------------------------------

    def handle_exit(self) -> None:
        """The process has ended: take what it had answered, then tell everybody."""
        with self.lock:
            self._check_own()
            child = self._child
            while self._child is child and not self._is_disconnected and child.channel.is_readable():
                self.receive()
            if self._child is child and not self._is_disconnected and not child.is_alive():
                self._end_crashed()

    def give_up_starting(self, how: str) -> None:
        """Give up on a process that does not become ready. Args: how: For the message."""
        with self.lock:
            if not self.is_ready and not self._is_disconnected:
                self._child.kill()
                self._give_up(WorkerStartError(f"{self.name} {how}"))

    def _end_crashed(self, may_be_cause: bool = True) -> None:
        """The process has ended, or does not listen any more. Args: as of `_end`."""
        self._end(ExitReason.CRASH, self._child.how_it_ended(), may_be_cause)

    def _kill_and_end(self, reason: ExitReason, how: str, may_be_cause: bool = True) -> None:
        """Kill the process. Args: as of `_end`."""
        self._child.kill()
        self._end(reason, f"{how}, and was killed", may_be_cause)

    def _end(self, reason: ExitReason, how: str, may_be_cause: bool = True) -> None:
        """Let the process go, and tell everybody.

        Args:
            reason: For `Stats`.
            how: What it did, for messages.
            may_be_cause: Whether the request at work may be the cause.
        """
        exit = make_exit(
            f"{self.name} (pid {self.pid}) {how}",
            reason,
            self._conversation,
            is_ready=self.is_ready,
            was_killed=reason is not ExitReason.TIMEOUT and self._child.was_killed,
            may_be_cause=may_be_cause,
        )
        self._unreported_exit = exit
        self._report_exit()

    def _give_up(self, error: PlanvecError) -> None:
        """End a process that cannot make its object: another one could not either."""
        self._unreported_exit = WorkerExit(ExitReason.CRASH, str(error), was_starting=True, error=error)
        self._report_exit()

    @property
    def _has_unreported_exit(self) -> bool:
        return self._unreported_exit is not None

    def _report_exit(self) -> None:
        """Tell everybody of an exit that was noted. Done again, should a signal handler raise in it."""
        exit = self._unreported_exit
        if exit is None or self._is_in_callback:
            return
        self._is_in_callback = True
        try:
            with delayed_signals():
                self._is_disconnected, self.is_ready = True, False
                self.generation += 1
                current = self._conversation.sent[0].pending if self._conversation.sent else None
                lost = self._conversation.end()
                self._child.end()
                self.exit = exit
                for pending in reversed(lost):  # so that the oldest is in front of all that is done again
                    pending.fail(exit, is_current=pending is current)
                self._unreported_exit, self._is_in_callback = None, False
                self._changed(self)
        finally:
            self._is_in_callback = False
