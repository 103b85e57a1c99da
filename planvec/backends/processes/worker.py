"""Defines `ProcessWorker`, a worker that runs in a process and is restarted in a new one.

    starting -> ready -> exited -> (restart) -> pausing -> starting

The parent runs no thread for it. A thread that waits for an answer reads the messages that have arrived,
sends the requests that wait, and checks the deadlines (see `group`). The parent detects the exit of a process
through the channel and through a handle of the process that the operating system provides.

A signal handler may raise anywhere: `messenger` explains how interrupted steps are completed.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from planvec.backends.base import WorkerExit
from planvec.backends.processes.exits import make_exit
from planvec.backends.processes.messenger import Messenger
from planvec.backends.processes.starting.launch import Child
from planvec.backends.processes.wire.spec import WorkerSpec
from planvec.backends.signals import delayed_signals
from planvec.backends.stats import ExitReason
from planvec.errors import ClosedError, PlanvecError, WorkerStartError


class ProcessWorker(Messenger):
    """Executes requests in a process. Implements `backends.base.Worker`."""

    is_delayed = False  # A process never waits for a place

    def __init__(self, spec: WorkerSpec, start_method: str) -> None:
        super().__init__(spec.name)
        self.spec = spec  # what its processes are started with
        self.start_method = start_method
        self.generation = 0  # A number that changes whenever `filenos` does
        self._starts_at = math.inf
        self._is_in_callback = False
        self._start()

    def listen(self, changed: Callable[[ProcessWorker], None], lock: threading.RLock) -> None:
        """Set the callback for changes, and the lock to hold. See `backends.base.Worker.listen`."""
        self._changed, self.lock = changed, lock
        if self.exit is not None:
            changed(self)

    # -- life ---------------------------------------------------------------------------------------

    def _start(self) -> None:
        with delayed_signals():  # an interrupt between start and assignment would leave an unknown process
            self._child = Child(self.spec, self.start_method)
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

    @property
    def is_busy(self) -> bool:
        """Whether the process has requests to answer."""
        return bool(self._conversation.sent)

    def restart(self, pause: float = 0.0) -> None:
        """Start a new process in `pause` seconds. Requests wait until it is ready."""
        self.exit = None
        self._starts_at = time.monotonic() + pause
        self._start_if_due()

    def kill(self) -> None:
        """Kill the process and all of its child processes (SIGKILL)."""
        self._check_own()
        with self.lock:
            self._child.kill()

    def abort(self, how: str) -> None:
        """Kill the process. Its requests raise `WorkerExit`, whose message ends with `how`."""
        with self.lock:
            if not self._is_disconnected:
                self._child.kill()
                self._unreported_exit = WorkerExit(ExitReason.STOPPED, f"{self.name} (pid {self.pid}) {how}")
                self._report_exit()

    def memory_used(self) -> int:
        """Return the bytes of memory that the process uses; 0 if the system does not show it."""
        return self._child.memory_used()

    def close(self) -> None:
        """Close the worker. An idle process has one second to close its object; a busy one is killed."""
        self.begin_close()
        self.finish_close(time.monotonic() + 1.0)

    def begin_close(self) -> None:
        """Close the channel: an idle process reads the end of the stream and exits. Kill a busy process."""
        if self._child.is_foreign:
            self.is_closed = True
            return  # without the lock: another thread may have held it during the fork
        with self.lock:
            if not self.is_closed:
                self.is_closed = self._is_disconnected = True
                self.is_ready = False
                self.generation += 1
                if self._conversation.sent:
                    self._child.kill()
                self._conversation.is_open = False
                self._child.channel.close()
                self._unreported_exit, self._starts_at = None, math.inf
                error = ClosedError(f"{self.name} was closed")
                for pending in self._conversation.end():
                    pending.finish(error=error)
                self.exit = WorkerExit(ExitReason.STOPPED, str(error), error=error)
                self._changed(self)

    def finish_close(self, deadline: float) -> None:
        """Wait for the process until `deadline` (`time.monotonic()`), then kill it and free its resources."""
        self._child.join(max(0.0, deadline - time.monotonic()))
        self._child.kill()
        self._child.end()

    # -- time ---------------------------------------------------------------------------------------

    def seconds_left(self, now: float) -> float:
        """Return the seconds until `check_clock` must be called; infinite if there is no deadline."""
        if self._unreported_exit is not None or self._conversation.is_interrupted:
            return 0.0
        if self._is_disconnected:
            return self._starts_at - now
        return self.watchdog.seconds_left(now, self._conversation, self.is_ready)

    def check_clock(self, now: float) -> None:
        """Start or kill the process if it is time to. `now` is `time.monotonic()`."""
        if self._unreported_exit is not None or self._conversation.is_interrupted or self._starts_at <= now:
            with self.lock:
                self._repair()
                self._start_if_due()
        elif not self._is_disconnected and self.watchdog.is_due(now, self._conversation, self.is_ready):
            with self.lock:
                if self._is_disconnected:
                    return  # another thread has ended it
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
        """Handle the exit of the process: read the answers that it sent before, then report the exit."""
        with self.lock:
            self._check_own()
            child = self._child
            while self._child is child and not self._is_disconnected and child.channel.is_readable():
                self.receive()
            if self._child is child and not self._is_disconnected and not child.is_alive():
                self._end_crashed()

    def give_up_starting(self, how: str) -> None:
        """Kill a process that does not become ready. `how` says in the message what it did."""
        with self.lock:
            if not self.is_ready and not self._is_disconnected:
                self._child.kill()
                self._give_up(WorkerStartError(f"{self.name} {how}"))

    def _end_crashed(self, may_be_cause: bool = True) -> None:
        self._end(ExitReason.CRASH, self._child.how_it_ended(), may_be_cause)

    def _kill_and_end(self, reason: ExitReason, how: str, may_be_cause: bool = True) -> None:
        self._child.kill()
        self._end(reason, f"{how}, and was killed", may_be_cause)

    def _end(self, reason: ExitReason, how: str, may_be_cause: bool = True) -> None:
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
        """End a process that cannot make its object. A restart would fail in the same way."""
        self._unreported_exit = WorkerExit(ExitReason.CRASH, str(error), was_starting=True, error=error)
        self._report_exit()

    def _report_exit(self) -> None:
        """Report a recorded exit. If a signal handler raises in it, the next call reports the exit again."""
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
                for pending in reversed(lost):  # each is retried first, so that the oldest comes first
                    pending.fail(exit, is_current=pending is current)
                self._unreported_exit, self._is_in_callback = None, False
                self._changed(self)
        finally:
            self._is_in_callback = False
