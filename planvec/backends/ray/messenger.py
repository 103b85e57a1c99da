"""Sends the requests of one worker to its actor, and reads the answers."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any

from ray.exceptions import RayError, RaySystemError, RayTaskError

from planvec.backends.base import WorkerExit
from planvec.backends.pending import Pending
from planvec.backends.ray.actor import Reply, read_reply
from planvec.backends.ray.inbox import Inbox
from planvec.backends.ray.launcher import Launcher
from planvec.backends.ray.packing import pack_by_value
from planvec.backends.signals import delayed_signals
from planvec.backends.stats import ExitReason
from planvec.errors import EnvError, InvalidBatchError
from planvec.rows import EnvDescription, Request

_CAPACITY = 1 << 16  # largest number of rows in one request


class Messenger(ABC):
    """Sends requests to an actor and reads its answers. A subclass starts, ends and restarts the actor."""

    # `capacity`: Largest number of rows in one request.
    # `node`: The id of the node of the actor; "" while it has no place.
    # `pid`: The process id of the actor.
    # `rss`: Bytes of memory that the actor used before its first request; 0 if they are not known.

    _actor: Any

    capacity = _CAPACITY

    def __init__(self, name: str, launcher: Launcher, inbox: Inbox) -> None:
        self.name = name
        self.lock = threading.RLock()
        self.timeout: float | None = None  # seconds that one request may take, or None for no limit
        # bytes of memory that the actor may use between two requests, or None for no limit
        self.max_rss: int | None = None
        # The description of the environment. Valid once the actor is ready.
        self.description: EnvDescription | None = None
        self.exit: WorkerExit | None = None  # the exit of the actor until it is restarted; None while it runs
        # `is_ready`: whether the environment is made and the actor accepts requests
        self.is_ready = self.is_closed = False  # `is_closed`: whether `close` was called
        self.node, self.pid, self.rss = "", 0, 0
        self._launcher, self._inbox = launcher, inbox
        self._changed: Callable[[Any], None] = lambda worker: None
        self._sent: deque[Pending] = deque()  # to the actor, the oldest first
        self._waiting: deque[Pending] = deque()  # for the actor to be ready
        self._generation = 0  # of the actor: events of earlier ones are dropped
        self._num_answers = 0  # of the actor
        self._late_since: float | None = None
        self._is_outgrown = False

    @abstractmethod
    def _died(self, error: BaseException | None) -> None:
        """Report that the actor has died, given what a call of it raised."""

    @abstractmethod
    def _lose(self, exit: WorkerExit) -> None:
        """Kill the actor, and report its exit to the futures and to the callback for changes."""

    @property
    def is_busy(self) -> bool:
        """Whether the actor has requests to answer."""
        return bool(self._sent)

    def _text(self) -> str:
        return f"{self.name} (pid {self.pid}, node {self.node[:8]})" if self.node else self.name

    def _expect(self, reference: Any, handle: Callable[[Any], None]) -> None:
        """Call `handle(future)`, in a thread that waits, when a call of the present actor is done."""
        generation = self._generation

        def handle_unless_replaced(future: Any) -> None:
            with self.lock:
                if generation == self._generation:
                    handle(future)

        self._inbox.expect(reference, handle_unless_replaced)

    def submit(self, request: Request[Any]) -> Pending:
        """Queue a request and return its future. It is sent at once if the actor is ready."""
        pending = Pending(request)
        with self.lock:
            if self.exit is not None:
                pending.fail(self.exit, is_current=False)
            elif self._has_room():
                self._send(pending)
            else:
                pending.request = request.copy()
                self._waiting.append(pending)
        return pending

    def _has_room(self) -> bool:
        """Return whether the next request may be sent."""
        may_send = self.is_ready and not self._is_outgrown
        return may_send and not (self._sent and self._launcher.caution.is_needed)

    def _send_waiting(self) -> None:
        while self._waiting and self._has_room():
            pending = self._waiting.popleft()
            if not pending.done():
                self._send(pending)

    def _send(self, pending: Pending) -> None:
        closed = self._launcher.why_unusable()
        if closed is not None:
            pending.finish(error=closed)
            return
        try:
            packed = pack_by_value(pending.request, self._launcher.shared_states)
        except RayError as error:
            pending.finish(error=EnvError(f"{pending.request.verb}: {type(error).__name__}: {error}"))
            return
        except Exception as error:
            text = f"an argument cannot be pickled ({type(error).__name__}: {error}); nothing was sent"
            pending.finish(error=InvalidBatchError(f"{pending.request.verb}: {text}"))
            return
        with delayed_signals():  # an interrupt must not leave a request that nobody waits for
            reference = self._actor.perform.remote(*packed, self.max_rss is not None)
            if not self._sent:
                self._since = time.monotonic()
            self._sent.append(pending)
            pending.is_sent = True
            self._expect(reference, lambda future: self._answered(pending, future))

    def _answered(self, pending: Pending, future: Any) -> None:
        error = future.exception()
        if isinstance(error, RayError) and not isinstance(error, (RaySystemError, RayTaskError)):
            self._died(error)  # or its answer was lost, with a node or for want of memory
            return
        self._sent.remove(pending)
        self._num_answers += 1
        self._since, self._late_since = time.monotonic(), None
        if error is not None:  # the answer cannot be read here
            pending.finish(error=EnvError(f"{self.name}: {type(error).__name__}: {error}"))
            return
        self._launcher.caution.answered()
        reply: Reply = future.result()
        if self.max_rss is not None and reply.rss > self.max_rss:
            self._is_outgrown = True
        if reply.failure is not None:
            pending.finish(error=reply.failure.to_error())
        else:
            assert reply.answer is not None
            try:
                answer = read_reply(reply.answer)
            except Exception as error:
                text = f"the answer cannot be read in this process ({type(error).__name__}: {error})"
                advice = "exclude infos that only the nodes can make with info_keys"
                pending.finish(error=EnvError(f"{pending.request.verb}: {text}; {advice}"))
            else:
                pending.finish(answer)
        if self._is_outgrown and not self._sent and self.exit is None:
            how = f"took more memory than max_worker_rss={self.max_rss:,} bytes"
            self._lose(WorkerExit(ExitReason.OUTGROWN, f"{self._text()} {how}"))
        self._send_waiting()
