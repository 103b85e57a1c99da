"""Defines `RayWorker`, a worker that runs in an actor and is restarted in a new one, perhaps on another node.

    waiting for resources -> starting -> ready -> exited -> (restart) -> pausing -> waiting for resources

Ray tells of answers and of the exit of an actor in threads of its own, which only put events into an `Inbox`.
A thread that waits for an answer handles the events, starts actors and checks the deadlines (see `RayGroup`).
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import re
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    RayError,
    RaySystemError,
    RayTaskError,
    RuntimeEnvSetupError,
)

from planvec.backends.audit import check_limits
from planvec.backends.base import ExitReason, Pending, WorkerExit
from planvec.backends.messages import Failure, pickle_factory, read_description, start_error
from planvec.backends.ray.actor import Reply, pack_by_value, read_reply
from planvec.backends.ray.cluster import ActorOptions, Cluster, Launcher, cluster_nodes
from planvec.backends.sharded.backend import Sharded, check_replacement, check_same
from planvec.backends.signals import delayed_signals
from planvec.errors import ClosedError, EnvError, InvalidBatchError, PlanvecError, WorkerStartError
from planvec.rows import EnvDescription, Request

# -- Finds out why an actor has died, or could not be made ---------------------------------------------------

_CAUSE = re.compile(r"The actor is dead because (.*?)(?:\. |\.?$)", re.DOTALL | re.MULTILINE)
_MISSING = re.compile(r"No module named '([^']+)'")
_ADVICE = (
    "install the same packages on all nodes, or let Ray install what is missing: "
    'ray_actor_options={"runtime_env": {"pip": [...]}}, or "py_modules" for modules of your own'
)


def died(error: BaseException | None, node: str) -> tuple[str, PlanvecError | None]:
    """Return how an actor ended, for messages, and the error if all others would end in the same way."""
    # `node`: "" if the actor never had a place.
    text = str(error)
    if isinstance(error, RuntimeEnvSetupError):
        return "", WorkerStartError(f"ray_actor_options: the runtime_env cannot be set up: {text.strip()}")
    missing = _MISSING.search(text)
    if missing is not None and not node:
        return "", WorkerStartError(
            f"a node of the cluster lacks the package {missing.group(1).partition('.')[0]!r}: {_ADVICE}"
        )
    if lost_node(node):
        return "was lost with its node, which has left the cluster", None
    if isinstance(error, ActorUnavailableError):
        return "cannot be reached, perhaps since its node has left", None
    cause = _CAUSE.search(text)
    return ("died: " + " ".join((cause.group(1) if cause else text).split())[:300]), None


def lost_node(node: str) -> bool:
    """Return whether a node has left the cluster."""
    return bool(node) and any(info["NodeID"] == node and not info["Alive"] for info in cluster_nodes())


def with_advice(failure: Failure) -> Failure:
    """Return why an environment could not be made, with the fix if a module is missing on the node."""
    if _MISSING.search(failure.detail) is None:
        return failure
    return replace(failure, detail=f"{failure.detail} on its node: {_ADVICE}")


# -- Defines `Inbox`, which hands the events of Ray's threads to the threads that wait -----------------------


class Inbox:
    """Collects the results of calls of actors."""

    # Ray calls back in a thread that must not block and must not call Ray, so the results are handled later.

    def __init__(self) -> None:
        self._handlers: dict[int, Callable[[Any], None]] = {}
        self._numbers = itertools.count()
        self._events: deque[tuple[int, Any]] = deque()
        self._bell = threading.Event()

    def expect(self, reference: Any, handle: Callable[[Any], None]) -> None:
        """Call `handle(future)` in `deliver` when a call is done."""
        number = next(self._numbers)
        self._handlers[number] = handle
        # Ray keeps the callback until the call is done, which may be never: it must not keep the workers.
        reference.future().add_done_callback(partial(_put, weakref.ref(self), number))

    def wait(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for a result. Returns whether there is one."""
        return self._bell.wait(max(0.0, timeout))

    def deliver(self) -> bool:
        """Handle all results that have arrived, and return whether there were any."""
        any_events = False
        self._bell.clear()
        while self._events:
            with delayed_signals():  # an interrupt must not lose an answer
                try:
                    number, future = self._events.popleft()
                except IndexError:  # another thread has taken it
                    break
                self._handlers.pop(number)(future)
            any_events = True
        return any_events


def _put(reference: weakref.ref[Inbox], number: int, future: Any) -> None:
    """Note that a call is done, if anyone still waits for it."""
    inbox = reference()
    if inbox is not None:
        inbox._events.append((number, future))
        inbox._bell.set()


# -- Sends the requests of one worker to its actor, and reads the answers ------------------------------------

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


# -- Handles the events of several actors, and closes them together ------------------------------------------

_CLOCK_SECONDS = 0.05  # interval of the deadline checks while answers arrive without a pause
_MAX_SECONDS = 0.5  # longest sleep: another thread may have restarted a worker


class RayGroup:
    """Handles what happens to the actors of a backend. Implements `backends.base.WorkerGroup`."""

    def __init__(
        self, workers: Sequence[RayWorker], inbox: Inbox, launcher: Launcher, check: Callable[[], None]
    ) -> None:
        self._workers, self._inbox, self._launcher, self._check = workers, inbox, launcher, check
        self._next_clock_check = 0.0
        self._pid = os.getpid()
        weakref.finalize(self, launcher.end_later).atexit = False  # Ray itself ends them at exit

    def poll(self) -> None:
        """Handle all events that have happened, without waiting."""
        self._check_owner()
        self._inbox.deliver()
        self._check_clock()

    def wait(self, timeout: float | None) -> bool:
        """Wait until something happens, and handle it."""
        # `timeout`: Seconds to wait, or None for no limit.
        # Returns whether anything was handled.
        self._check_owner()
        now = time.monotonic()
        left = [_MAX_SECONDS, *(worker.seconds_left(now) for worker in self._workers)]
        self._inbox.wait(min(left if timeout is None else [*left, timeout]))
        has_any = self._inbox.deliver()
        if not has_any or time.monotonic() >= self._next_clock_check:
            self._check_clock()
        return has_any

    def _check_owner(self) -> None:
        if os.getpid() != self._pid:
            raise ClosedError("the workers belong to the process that forked this one; open new ones here")

    def _check_clock(self) -> None:
        error = self._launcher.why_unusable()
        if error is not None:
            for worker in self._workers:
                worker.give_up(error)
            return
        now = time.monotonic()
        self._next_clock_check = now + _CLOCK_SECONDS
        for worker in self._workers:
            if worker.seconds_left(now) <= 0:
                with delayed_signals():  # an interrupt must not lose an actor, or the report of its exit
                    worker.check_clock(now)
        self._check()

    def close(self) -> None:
        """Kill all actors. Stop Ray if planvec has started it. Does nothing in a fork."""
        if os.getpid() == self._pid:  # another thread may have held the locks during the fork
            for worker in self._workers:
                worker.close()
            self._launcher.end()


# -- Finds out whether the nodes of a cluster have room for actors -------------------------------------------

_log = logging.getLogger("planvec")
_PLACE_SECONDS = 20.0  # longest time for the first actor to get a place on a node
_TOLD_SECONDS = 10.0  # time after which the log says that workers wait for a place
# longest time for it if Ray has to set up a `runtime_env` first, and a node is large enough
_SETUP_SECONDS = 600.0


def num_places(needed: Mapping[str, float]) -> int:
    """Return the number of actors for which all nodes together have resources, at least 1."""
    # An actor that needs nothing counts as one that needs a CPU.
    used = {name: amount for name, amount in needed.items() if amount} or {"CPU": 1}
    nodes = [node["Resources"] for node in cluster_nodes() if node["Alive"]]
    return max(1, sum(min(int(node.get(name, 0) / used[name]) for name in used) for node in nodes))


class PlaceCheck:
    """Says in the log which workers wait for a place, and gives all up if none of them gets one at first."""

    def __init__(self, workers: Sequence[RayWorker], options: ActorOptions) -> None:
        self._workers, self._options = workers, options
        self._started = time.monotonic()
        self._has_place = False
        self._served_at, self._num_told = self._started, 0

    def __call__(self) -> None:
        """Check the places of the workers now."""
        self._tell_who_waits()
        self._has_place = self._has_place or any(worker.node or worker.exit for worker in self._workers)
        if not self._has_place and time.monotonic() - self._started > _PLACE_SECONDS:
            self._check_first_place()

    def _tell_who_waits(self) -> None:
        """Say in the log that workers wait, once they have for a while and whenever more of them do."""
        now = time.monotonic()
        num_waiting = sum(worker.is_delayed for worker in self._workers)
        if not num_waiting:
            self._served_at, self._num_told = now, 0
        elif now - self._served_at > _TOLD_SECONDS and num_waiting > self._num_told:
            self._num_told = num_waiting
            what = "a place" + (" or their runtime_env" if self._options.runtime_env else "")
            needed, nodes = self._amounts()
            text = "%d of %d actors still wait for %s; an actor needs %s, the nodes have %s"
            _log.warning(text, num_waiting, len(self._workers), what, needed, nodes)

    def _check_first_place(self) -> None:
        needed, nodes = self._amounts()
        waited = time.monotonic() - self._started
        if not any(all(node[name] >= needed[name] for name in needed) for node in nodes):
            advice = "no node has as much: change ray_actor_options, or add such a node"
        elif not self._options.runtime_env:
            advice = "all of it is in use: close what uses it, or add nodes"
        elif waited > _SETUP_SECONDS:
            advice = "all of it is in use, or the runtime_env takes longer to set up"
        else:
            return
        self._has_place = True  # each worker is given up once
        error = WorkerStartError(
            f"ray_actor_options: no node had room for an actor within {waited:.0f} s. An actor needs "
            f"{needed}, the nodes have {nodes}; {advice}"
        )
        for worker in self._workers:
            worker.give_up(error)

    def _amounts(self) -> tuple[dict[str, float], list[dict[str, float]]]:
        """Return what an actor needs, and what each node has of that."""
        needed = {name: amount for name, amount in self._options.resources.items() if amount}
        alive = [node["Resources"] for node in cluster_nodes() if node["Alive"]]
        return needed, [{name: resources.get(name, 0) for name in needed} for resources in alive]


# See `Sharded`. A message to an actor and its answer cost a core about 2 ms, on both sides together.
_MESSAGE_COST = 25.0


# -- Opens a backend over actors -----------------------------------------------------------------------------


def over_ray(
    factory: Callable[[], Any],
    *,
    num_workers: int | None,
    address: str | None,
    actor_options: Mapping[str, Any] | None,
    timeout: float | None,  # seconds that one chunk may take before its actor is killed; None for no limit
    max_restarts: int,
    audit: float,
    max_worker_rss: int | None,
) -> Sharded:
    """Return a backend over actors that each host a `PlanEnv`."""
    # `max_worker_rss`: Bytes of memory above which an actor is replaced between two chunks; None for no
    # limit.
    check_limits(timeout, max_restarts, max_worker_rss, audit)
    pickled = pickle_factory(factory)
    options = ActorOptions(actor_options or {})
    cluster = Cluster(address, options.num_cpus * (num_workers or 1))
    workers: list[RayWorker] = []
    try:
        launcher, inbox = Launcher(pickled, options, cluster), Inbox()
        for index in range(num_places(options.resources) if num_workers is None else num_workers):
            # One by one: the exception that starting one raises must find the others in the list.
            workers.append(RayWorker(f"planvec-actor-{index}", launcher, inbox))
        backend = Sharded(
            workers,
            group=RayGroup(workers, inbox, launcher, PlaceCheck(workers, options)),
            max_restarts=max_restarts,
            audit=audit,
            message_cost=_MESSAGE_COST,
        )
        if max_worker_rss is not None:
            _check_rss(workers, max_worker_rss)
    except BaseException:
        for worker in workers:
            worker.close()
        cluster.close()
        raise
    for worker in workers:
        worker.timeout, worker.max_rss = timeout, max_worker_rss
    return backend


def _check_rss(workers: Sequence[RayWorker], max_worker_rss: int) -> None:
    """Check that the actors that are ready use less memory than they may."""
    used = max(worker.rss for worker in workers)
    if used >= max_worker_rss:
        raise InvalidBatchError(
            f"max_worker_rss: expected more than the {used:,} bytes that an actor uses before its "
            f"first step, got {max_worker_rss:,}"
        )
