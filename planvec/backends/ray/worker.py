"""Defines `RayWorker`, the client of an actor. A restart makes a new actor, perhaps on another node.

    waiting for a place (`node`) -> starting -> ready -> exited -> (restart) -> pausing -> waiting for a place

Ray tells of answers and of the exit of an actor in threads of its own, which only note the events. A thread
that waits for an answer handles them, starts actors and checks the deadlines (see `RayGroup`).
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import re
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import ray
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    RayError,
    RaySystemError,
    RayTaskError,
    RuntimeEnvSetupError,
)

from planvec.backends.audit import check_audit
from planvec.backends.base import ExitReason, Pending
from planvec.backends.client import Blame, WorkerClient, WorkerGroup, check_limits, limit
from planvec.backends.messages import Failure, pickle_factory
from planvec.backends.ray.actor import (
    CONCURRENCY_GROUPS,
    Packed,
    SharedStates,
    StepActor,
    pack_by_value,
    read_answer,
)
from planvec.backends.ray.cluster import Cluster, cluster_nodes
from planvec.backends.sharded.backend import Sharded
from planvec.backends.signals import DelayedSignals
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


# options of actors that planvec sets: it restarts actors and retries rows by itself
_OWN = (
    "concurrency_groups",
    "lifetime",
    "max_concurrency",
    "max_pending_calls",
    "max_restarts",
    "max_task_retries",
    "name",
)
# strings have the same hashes in all actors, so that sets of strings have the same order
_HASH_SEED = {"PYTHONHASHSEED": "0"}


class ActorOptions:
    """Checks options of `ray.remote`. Needs no connection to Ray."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        own = [name for name in _OWN if name in options]
        if own:
            raise InvalidBatchError(
                f"ray_actor_options: expected none of {list(_OWN)}, which planvec sets itself, got {own}"
            )
        # the `runtime_env` that the user has passed; empty if there is none
        self.runtime_env = _mapping(options, "runtime_env")
        variables = {**_HASH_SEED, **_mapping(self.runtime_env, "env_vars")}
        complete = {**options, "runtime_env": {**self.runtime_env, "env_vars": variables}}
        if complete.get("num_cpus") is None:
            complete["num_cpus"] = 1
        try:
            remote: Any = ray.remote  # its types know few of its options
            # the class of the actors, with these options
            self.actor_class = remote(concurrency_groups=CONCURRENCY_GROUPS)(StepActor).options(**complete)
        except (ValueError, TypeError) as error:
            raise InvalidBatchError(f"ray_actor_options: {error}") from error
        self.num_cpus: float = complete["num_cpus"]  # the CPUs among them
        # name -> the amount that one actor needs
        self.resources: dict[str, float] = {
            "CPU": self.num_cpus,
            "GPU": options.get("num_gpus") or 0,
            "memory": options.get("memory") or 0,
            **_mapping(options, "resources"),
        }


def _mapping(options: Mapping[str, object], name: str) -> dict[str, Any]:
    """Return an option that must be a dict, or None."""
    value = options.get(name)
    if not isinstance(value, Mapping | None):
        raise InvalidBatchError(f"ray_actor_options: {name}: expected a dict or None, got {value!r}")
    return dict(value or {})


class Launcher:
    """Starts actors that make the same environment."""

    def __init__(self, factory: bytes, options: ActorOptions, cluster: Cluster) -> None:
        self.options, self._cluster = options, cluster
        self._actors: set[Any] = set()
        self._is_ended = False
        self.factory = ray.put(factory)  # the factory in the object store, from which each node takes it once
        self.path = [entry or os.getcwd() for entry in sys.path]  # the `sys.path` of this process
        environments = (options.runtime_env, ray.get_runtime_context().runtime_env)
        has_directory = any("working_dir" in environment for environment in environments)
        # the working directory of this process; None if a `runtime_env` names another one
        self.directory = None if has_directory else os.getcwd()
        # the description of the environment, once a worker has made it
        self.description: EnvDescription | None = None
        # answers until its actors get several requests at a time again; see `_NUM_CAUTIOUS`
        self.num_cautious = 0
        self.shared_states = SharedStates()  # gives references to large states that were sent before

    def why_unusable(self) -> ClosedError | None:
        """Return the error of a call without the connection to Ray: a call would start Ray anew."""
        if self._cluster.is_connected:
            return None
        return ClosedError("Ray was stopped, perhaps by ray.shutdown(); open the environment again")

    def start(self) -> Any:
        """Start an actor, and return its handle at once."""
        actor = self.options.actor_class.remote()
        self._actors.add(actor)
        return actor

    def kill(self, actor: Any) -> None:
        """Kill an actor, once: a worker kills it and releases it. One that is dead already is forgotten."""
        if actor not in self._actors:
            return
        if self._cluster.is_connected:
            with contextlib.suppress(Exception):  # it is dead, or Ray is being stopped
                ray.kill(actor, no_restart=True)
        self._actors.discard(actor)  # last: an interrupted kill is repeated

    def end(self) -> None:
        """Kill all actors that are left. Stop Ray if planvec has started it. May be called again."""
        self._is_ended = True
        for actor in list(self._actors):
            self.kill(actor)
        self._cluster.close()

    def end_later(self) -> None:
        """Do the same in a thread: the garbage collector may run in one of Ray's own threads."""
        if not self._is_ended and self._cluster.is_connected:
            threading.Thread(target=self.end, name="planvec-ray-end", daemon=True).start()


_CAPACITY = 1 << 16  # largest number of rows in one request
# Longest time for a late actor to tell at which row it is. Code that holds the interpreter does not tell.
_PROGRESS_SECONDS = 1.0
_DELAY_SECONDS = 3.0  # time without a place after which an actor is taken to wait for resources
# Answers without the death of an actor, after which each actor gets the next request while it works on one
# again. If an actor dies, the answer to the first may be lost although it was done; with one request at a
# time it is known on which one an actor has died.
_NUM_CAUTIOUS = 64


class RayWorker(WorkerClient):
    """Executes requests in an actor. Implements `backends.base.Worker`."""

    def __init__(self, name: str, launcher: Launcher, group: RayGroup) -> None:
        self._launcher, self._group = launcher, group
        self._pid = os.getpid()
        super().__init__(name)
        self.capacity = _CAPACITY

    @property
    def is_foreign(self) -> bool:
        return os.getpid() != self._pid

    @property
    def has_place(self) -> bool:
        return bool(self.node)

    @property
    def is_delayed(self) -> bool:
        waits = self.exit is None and not self.node
        return waits and time.monotonic() - self._since > _DELAY_SECONDS

    def text(self) -> str:
        return f"{self.name} (pid {self.pid}, node {self.node[:8]})" if self.node else self.name

    def memory_used(self) -> int:
        """Return the bytes of memory that the actor used before its first request."""
        return self._rss

    # -- start and end ------------------------------------------------------------------------------

    def _launch(self) -> None:
        # `node`: the id of the node of the actor; "" while it has no place. `pid`: its process id
        self.node, self.pid, self._rss = "", 0, 0
        # time at which the actor was asked at which row it is, since it is late
        self._late_since: float | None = None
        error = self._launcher.why_unusable()
        if error is not None:
            raise error
        self._actor = self._launcher.start()
        self._expect(self._actor.where.remote(), self._placed)
        self._expect(self._actor.live.remote(), lambda future: self._died(future.exception()))

    def _expect(self, reference: object, handle: Callable[[Any], None]) -> None:
        """Call `handle(future)`, in a thread that waits, when a call of the present actor is done."""
        actor = self._actor

        def handle_unless_replaced(future: object) -> None:
            with self.lock:
                if actor is self._actor and self._is_running:
                    handle(future)

        self._group.expect(reference, handle_unless_replaced)

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
        result, self._rss = future.result()
        if isinstance(result, Failure) and _MISSING.search(result.detail) is not None:
            result.detail += f" on its node: {_ADVICE}"
        first, how = self.description, "was restarted"
        if first is None:
            first, how = self._launcher.description, ""
        try:
            description = self._read_ready(result, first, how)
        except PlanvecError as error:
            self.give_up(error)
            return
        self._launcher.description = self._launcher.description or description
        self.become_ready(description)

    def _died(self, error: BaseException | None) -> None:
        """Report the exit of the actor, given what a call of it raised."""
        closed = self._launcher.why_unusable()
        how, error_at_start = ("", closed) if closed is not None else died(error, self.node)
        if error_at_start is not None:
            self.give_up(error_at_start)
            return
        # Ray tells that an actor cannot be reached before it knows that its node has left.
        was_innocent = lost_node(self.node) or not isinstance(error, ActorDiedError)
        if len(self._sent) > 1:  # perhaps it has done the first one, and only the answer was lost
            self._launcher.num_cautious = _NUM_CAUTIOUS
        blame = Blame(len(self._sent) == 1 and not was_innocent)
        self.end(ExitReason.CRASH, how, blame, was_killed=was_innocent)

    def _kill(self) -> None:
        self._launcher.kill(self._actor)

    def _release(self) -> None:
        self._launcher.kill(self._actor)
        self.node = ""

    def finish_close(self, deadline: float) -> None:
        """Do nothing: the actor is killed."""

    # -- messages -----------------------------------------------------------------------------------

    def _pack(self, request: Request[Any]) -> Packed | None:
        if self._sent and self._launcher.num_cautious:
            return None
        error = self._launcher.why_unusable()
        if error is not None:
            raise error
        try:
            return pack_by_value(request, self._launcher.shared_states)
        except RayError as error:
            raise EnvError(f"{request.verb}: {type(error).__name__}: {error}") from error

    def _post(self, pending: Pending, message: Packed) -> None:
        reference = self._actor.perform.remote(*message, self.max_rss is not None)
        self._expect(reference, lambda future: self._answered(pending, future))

    def _answered(self, pending: Pending, future: Any) -> None:
        error = future.exception()
        if isinstance(error, RayError) and not isinstance(error, (RaySystemError, RayTaskError)):
            self._died(error)  # or its answer was lost, with a node or for want of memory
            return
        self._late_since = None
        if error is not None:  # the answer cannot be read here
            unreadable = EnvError(f"{self.name}: {type(error).__name__}: {error}")
            self.complete(pending, lambda: unreadable)
        else:
            self._launcher.num_cautious = max(0, self._launcher.num_cautious - 1)
            outcome, rss = future.result()
            self.complete(pending, partial(read_answer, outcome), rss)

    # -- time ---------------------------------------------------------------------------------------

    def seconds_left(self, now: float) -> float:
        if self._late_since is not None and self._is_running:
            return self._late_since + _PROGRESS_SECONDS - now
        return super().seconds_left(now)

    def _end_late(self, now: float) -> None:
        """Ask the actor at which row it is, then kill it."""
        if self._late_since is None:
            self._late_since = now
            self._expect(self._actor.progress.remote(), self._told_progress)
        elif now - self._late_since >= _PROGRESS_SECONDS:
            self._late(None, 0)

    def _told_progress(self, future: Any) -> None:
        if self._late_since is not None and future.exception() is None:
            number, row, step = future.result()
            if number > self._num_answered + 1:  # the answer to the late request is on its way
                self._late_since, self._since = None, time.monotonic()
                return
            self._late(row if 0 <= row < self._sent[0].request.num_rows else None, step)

    def _late(self, row: int | None, step: int) -> None:
        how = f"did not finish within {self.timeout:g} s"
        self.kill_and_end(ExitReason.TIMEOUT, how, Blame(True, row, step))


_log = logging.getLogger("planvec")
_PLACE_SECONDS = 20.0  # longest time for the first actor to get a place on a node
_TOLD_SECONDS = 10.0  # time after which the log says that workers wait for a place
# longest time for it if Ray has to set up a `runtime_env` first, and a node is large enough
_SETUP_SECONDS = 600.0


class RayGroup(WorkerGroup):
    """Handles what happens to the actors of a backend."""

    # Ray calls back in a thread that must not block and must not call Ray, so the results are handled later.

    def __init__(self, launcher: Launcher) -> None:
        self.workers: list[RayWorker] = []
        super().__init__(self.workers)
        self._launcher = launcher
        self._handlers: dict[int, Callable[[Any], None]] = {}
        self._numbers = itertools.count()
        self._events: deque[tuple[int, Any]] = deque()
        self._bell = threading.Event()
        self._pid = os.getpid()
        self._started = self._served_at = time.monotonic()
        self._has_place, self._num_told = False, 0
        weakref.finalize(self, launcher.end_later).atexit = False  # Ray itself ends them at exit

    def expect(self, reference: Any, handle: Callable[[Any], None]) -> None:
        """Call `handle(future)`, in a thread that waits, when a call of an actor is done."""
        number = next(self._numbers)
        self._handlers[number] = handle
        # Ray keeps the callback until the call is done, which may be never: it must not keep the workers.
        reference.future().add_done_callback(partial(_note_done, weakref.ref(self), number))

    def _deliver(self) -> bool:
        """Handle all results that have arrived, and return whether there were any."""
        any_events = False
        self._bell.clear()
        while self._events:
            with DelayedSignals():  # an interrupt must not lose an answer
                try:
                    number, future = self._events.popleft()
                except IndexError:  # another thread has taken it
                    break
                self._handlers.pop(number)(future)
            any_events = True
        return any_events

    def poll(self) -> None:
        self._check_owner()
        self._deliver()
        self._check_clock()

    def wait(self, timeout: float | None) -> bool:
        self._check_owner()
        self._bell.wait(self._seconds(timeout, time.monotonic()))
        has_any = self._deliver()
        if not has_any or time.monotonic() >= self._next_clock_check:
            self._check_clock()
        return has_any

    def _check_owner(self) -> None:
        if os.getpid() != self._pid:
            raise ClosedError("the workers belong to the process that forked this one; open new ones here")

    def _check_clock(self) -> None:
        error = self._launcher.why_unusable()
        if error is not None:
            for worker in self.workers:
                worker.give_up(error)
            return
        super()._check_clock()
        self._tell_who_waits()
        self._has_place = self._has_place or any(worker.node or worker.exit for worker in self.workers)
        if not self._has_place and time.monotonic() - self._started > _PLACE_SECONDS:
            self._check_first_place()

    def _tell_who_waits(self) -> None:
        """Say in the log that workers wait for a place: after a while, and whenever more of them do."""
        now = time.monotonic()
        num_waiting = sum(worker.is_delayed for worker in self.workers)
        if not num_waiting:
            self._served_at, self._num_told = now, 0
        elif now - self._served_at > _TOLD_SECONDS and num_waiting > self._num_told:
            self._num_told = num_waiting
            what = "a place" + (" or their runtime_env" if self._launcher.options.runtime_env else "")
            needed, nodes = self._amounts()
            text = "%d of %d actors still wait for %s; an actor needs %s, the nodes have %s"
            _log.warning(text, num_waiting, len(self.workers), what, needed, nodes)

    def _check_first_place(self) -> None:
        """Give all workers up if none of them can get a place."""
        needed, nodes = self._amounts()
        waited = time.monotonic() - self._started
        if not any(all(node[name] >= needed[name] for name in needed) for node in nodes):
            advice = "no node has as much: change ray_actor_options, or add such a node"
        elif not self._launcher.options.runtime_env:
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
        for worker in self.workers:
            worker.give_up(error)

    def _amounts(self) -> tuple[dict[str, float], list[dict[str, float]]]:
        """Return what an actor needs, and what each node has of that."""
        needed = {name: amount for name, amount in self._launcher.options.resources.items() if amount}
        alive = [node["Resources"] for node in cluster_nodes() if node["Alive"]]
        return needed, [{name: resources.get(name, 0) for name in needed} for resources in alive]

    def close(self) -> None:
        """Kill all actors. Stop Ray if planvec has started it. Does nothing in a fork."""
        super().close()
        if os.getpid() == self._pid:
            self._launcher.end()


def _note_done(reference: weakref.ref[RayGroup], number: int, future: object) -> None:
    """Note that a call is done, if anyone still waits for it."""
    group = reference()
    if group is not None:
        group._events.append((number, future))
        group._bell.set()


# See `Sharded`. A message to an actor and its answer cost a core about 2 ms, on both sides together.
_MESSAGE_COST = 25.0


def num_places(needed: Mapping[str, float]) -> int:
    """Return the number of actors for which all nodes together have resources, at least 1."""
    # An actor that needs nothing counts as one that needs a CPU.
    used = {name: amount for name, amount in needed.items() if amount} or {"CPU": 1}
    nodes = [node["Resources"] for node in cluster_nodes() if node["Alive"]]
    return max(1, sum(min(int(node.get(name, 0) / used[name]) for name in used) for node in nodes))


def over_ray(
    factory: Callable[[], Any],
    *,
    num_workers: int | None,
    address: str | None,
    actor_options: Mapping[str, object] | None,
    timeout: float | None,
    max_restarts: int,
    audit: float,
    max_worker_rss: int | None,
) -> Sharded:
    """Return a backend over actors that each host a `PlanEnv`. For the limits, see `limit`."""
    check_limits(timeout, max_restarts, max_worker_rss)
    check_audit(audit)
    pickled = pickle_factory(factory)
    options = ActorOptions(actor_options or {})
    cluster = Cluster(address, options.num_cpus * (num_workers or 1))
    workers: list[RayWorker] = []
    try:
        launcher = Launcher(pickled, options, cluster)
        group = RayGroup(launcher)
        workers = group.workers
        for index in range(num_places(options.resources) if num_workers is None else num_workers):
            # One by one: the exception that starting one raises must find the others in the list.
            workers.append(RayWorker(f"planvec-actor-{index}", launcher, group))
        backend = Sharded(
            workers,
            group=group,
            max_restarts=max_restarts,
            audit=audit,
            message_cost=_MESSAGE_COST,
            has_one_clock=False,
        )
        limit(workers, timeout, max_worker_rss)
    except BaseException:
        for worker in workers:
            worker.close()
        cluster.close()
        raise
    return backend
