"""Defines `RayWorker`, a worker that runs in an actor and is restarted in a new one, perhaps on another node.

    waiting for resources -> starting -> ready -> exited -> (restart) -> pausing -> waiting for resources

Ray tells of answers and of the exit of an actor in threads of its own, which only put events into an `Inbox`.
A thread that waits for an answer handles the events, starts actors and checks the deadlines (see `group`).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

from ray.exceptions import ActorDiedError

from planvec.backends.base import WorkerExit
from planvec.backends.messages.failures import Failure
from planvec.backends.messages.ready import read_description, start_error
from planvec.backends.ray.exits import died, lost_node, with_advice
from planvec.backends.ray.inbox import Inbox
from planvec.backends.ray.launcher import Launcher
from planvec.backends.ray.messenger import Messenger
from planvec.backends.sharded import check_replacement, check_same
from planvec.backends.stats import ExitReason
from planvec.errors import ClosedError, PlanvecError, WorkerStartError
from planvec.rows import EnvDescription

_START_SECONDS = 60.0  # longest time for an actor that has a place to make its environment
_CANCELLED_SECONDS = 1.0  # longest time that an actor may spend on a cancelled request
# Longest time for a late actor to tell at which row it is. Code that holds the interpreter does not tell.
_PROGRESS_SECONDS = 1.0
_DELAY_SECONDS = 3.0  # time without a place after which an actor is taken to wait for resources


class RayWorker(Messenger):
    """Executes requests in an actor. Implements `backends.base.Worker`."""

    def __init__(self, name: str, launcher: Launcher, inbox: Inbox) -> None:
        super().__init__(name, launcher, inbox)
        self._starts_at = math.inf
        self._start()

    def listen(self, changed: Callable[[RayWorker], None], lock: threading.RLock) -> None:
        """Set the callback for changes, and the lock to hold. See `backends.base.Worker.listen`."""
        self._changed, self.lock = changed, lock
        if self.exit is not None:
            changed(self)

    # -- life ---------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._generation += 1
        self.node, self.pid, self.is_ready, self._is_outgrown = "", 0, False, False
        self._num_answers = 0
        self._starts_at, self._since, self._late_since = math.inf, time.monotonic(), None
        actor = self._actor = self._launcher.start()
        self._expect(actor.where.remote(), self._placed)
        self._expect(actor.live.remote(), lambda future: self._died(future.exception()))

    @property
    def is_delayed(self) -> bool:
        """Whether its actor waits for resources, so that the others should go on without it."""
        waits = self.exit is None and not self.node
        return waits and time.monotonic() - self._since > _DELAY_SECONDS

    def _placed(self, future: Any) -> None:
        """Make the environment, now that the actor runs on a node."""
        if future.exception() is not None:
            self._died(future.exception())
            return
        (self.pid, self.node), self._since = future.result(), time.monotonic()
        launcher = self._launcher
        opened = self._actor.open.remote(launcher.factory, launcher.path, launcher.directory)
        self._expect(opened, self._opened)

    def _opened(self, future: Any) -> None:
        if future.exception() is not None:
            self._died(future.exception())
            return
        result: bytes | Failure
        result, self.rss = future.result()
        try:
            if isinstance(result, Failure):
                raise start_error(with_advice(result), self.name)
            description: EnvDescription = read_description(result, self.name)
            if self.description is not None:
                check_replacement(self.name, self.description, description)
            elif self._launcher.description is not None:
                check_same(self.name, self._launcher.description, description)
        except PlanvecError as error:
            self.give_up(error)
            return
        self.description = description
        self._launcher.description = self._launcher.description or description
        self.is_ready, self._since = True, time.monotonic()
        self._send_waiting()  # before what the change makes others send, which is newer
        self._changed(self)

    def restart(self, pause: float = 0.0) -> None:
        """Start a new actor in `pause` seconds. Requests wait until it is ready."""
        self.exit = None
        self._starts_at = time.monotonic() + pause
        self._start_if_due()

    def _start_if_due(self) -> None:
        if not self.is_closed and self._starts_at <= time.monotonic():
            error = self._launcher.why_unusable()
            if error is not None:
                self.give_up(error)
            else:
                self._start()

    def close(self) -> None:
        """Kill the actor. Futures that are not done raise `ClosedError`."""
        with self.lock:
            if not self.is_closed:
                self.is_closed = True
                error = ClosedError(f"{self.name} was closed")
                self._lose(WorkerExit(ExitReason.STOPPED, str(error), error=error))

    # -- time ---------------------------------------------------------------------------------------

    def seconds_left(self, now: float) -> float:
        """Return the seconds until `check_clock` must be called; infinite if there is no deadline."""
        if self.exit is not None or self.is_closed:
            return math.inf
        if self._starts_at < math.inf:
            return self._starts_at - now
        if self._late_since is not None:
            return self._late_since + _PROGRESS_SECONDS - now
        if not self.is_ready:
            return self._since + _START_SECONDS - now if self.node else math.inf
        if not self._sent:
            return math.inf
        allowed = math.inf if self.timeout is None else self.timeout
        if self._sent[0].cancelled():
            allowed = min(allowed, _CANCELLED_SECONDS)
        return self._since + allowed - now

    def check_clock(self, now: float) -> None:
        """Start or kill the actor if it is time to. `now` is `time.monotonic()`."""
        with self.lock:
            if self.exit is not None or self.is_closed:
                return
            if self._starts_at < math.inf:
                self._start_if_due()
            elif not self.is_ready:
                if self.node and now - self._since >= _START_SECONDS:
                    self.give_up(
                        WorkerStartError(f"{self._text()} was not ready within {_START_SECONDS:g} s")
                    )
            elif self._sent:
                self._check_request(now)

    def _check_request(self, now: float) -> None:
        """Kill an actor that takes too long, after it was asked at which row it is."""
        if self._late_since is not None:
            if now - self._late_since >= _PROGRESS_SECONDS:
                self._late(None, 0)
        elif self.timeout is not None and now - self._since >= self.timeout:
            self._late_since = now
            self._expect(self._actor.progress.remote(), self._told_progress)
        elif self._sent[0].cancelled() and now - self._since >= _CANCELLED_SECONDS:
            how = "worked on a request that was cancelled, and was killed"
            self._lose(WorkerExit(ExitReason.STOPPED, f"{self._text()} {how}"))

    def _told_progress(self, future: Any) -> None:
        if self._late_since is not None and future.exception() is None:
            number, row, step = future.result()
            if number > self._num_answers + 1:  # the answer to the late request is on its way
                self._late_since, self._since = None, time.monotonic()
                return
            self._late(row if 0 <= row < self._sent[0].request.num_rows else None, step)

    def _late(self, row: int | None, step: int) -> None:
        how = f"did not finish within {self.timeout:g} s, and was killed"
        self._lose(WorkerExit(ExitReason.TIMEOUT, f"{self._text()} {how}", is_cause=True, row=row, step=step))

    # -- the end of an actor ------------------------------------------------------------------------

    def _died(self, error: BaseException | None) -> None:
        """Report the exit of the actor."""
        closed = self._launcher.why_unusable()
        reason, error_at_start = ("", closed) if closed is not None else died(error, self.node)
        if error_at_start is not None:
            self.give_up(error_at_start)
            return
        # Ray tells that an actor cannot be reached before it knows that its node has left.
        was_innocent = lost_node(self.node) or not isinstance(error, ActorDiedError)
        if len(self._sent) > 1:  # perhaps it has done the first one, and only the answer was lost
            self._launcher.caution.begin()
        exit = WorkerExit(
            ExitReason.CRASH,
            f"{self._text()} {reason}",
            is_cause=self.is_ready and len(self._sent) == 1 and not was_innocent,
            was_starting=not self.is_ready,
            was_killed=was_innocent,
        )
        self._lose(exit)

    def give_up(self, error: PlanvecError) -> None:
        """End an actor that cannot make its environment: another one would fail in the same way."""
        with self.lock:
            if self.exit is None and not self.is_closed:
                self._lose(WorkerExit(ExitReason.CRASH, str(error), was_starting=True, error=error))

    def _lose(self, exit: WorkerExit) -> None:
        """Kill the actor, and report its exit to the futures and to the callback for changes."""
        self._launcher.kill(self._actor)
        self._generation += 1
        self.exit, self.is_ready, self.node = exit, False, ""
        lost, self._late_since = [*self._sent, *self._waiting], None
        current = self._sent[0] if self._sent else None
        self._sent.clear()
        self._waiting.clear()
        for pending in reversed(lost):  # each is retried first, so that the oldest comes first
            error = exit.error if isinstance(exit.error, ClosedError) else None
            if error is not None:
                pending.finish(error=error)
            else:
                pending.fail(exit, is_current=pending is current)
        self._changed(self)
