"""Opens a backend over the actors of a Ray cluster."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from planvec.backends.audit import check_limits
from planvec.backends.messages import pickle_factory
from planvec.backends.ray.cluster import ActorOptions, Cluster, Launcher, cluster_nodes
from planvec.backends.ray.worker import Inbox, RayGroup, RayWorker
from planvec.backends.sharded import Sharded
from planvec.errors import InvalidBatchError, WorkerStartError

# -- Finds out whether the nodes of a cluster have room for actors -------------------------------------------

_log = logging.getLogger("planvec")
_PLACE_SECONDS = 20.0  # longest time for the first actor to get a place on a node
_TOLD_SECONDS = 10.0  # time after which the log says that workers wait for a place
# longest time for it if Ray has to set up a `runtime_env` first, and a node is large enough
_SETUP_SECONDS = 600.0


def num_places(needed: Mapping[str, float]) -> int:
    """Return the number of actors for which all nodes together have resources, at least 1."""
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
