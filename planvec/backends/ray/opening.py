"""Opens a backend over the actors of a Ray cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle

from planvec.backends.limits import check_limits
from planvec.backends.ray.cluster import Cluster, cluster_nodes
from planvec.backends.ray.group import RayGroup
from planvec.backends.ray.inbox import Inbox
from planvec.backends.ray.launcher import Launcher
from planvec.backends.ray.worker import RayWorker
from planvec.backends.sharded import Sharded
from planvec.errors import WorkerStartError

__all__ = ["over_ray"]

_MESSAGE_COST = 25.0
"""See `Sharded`. A message to an actor and its answer cost a core about 2 ms, on both sides together."""
_PLACE_SECONDS = 20.0
"""Longest time for the first actor to get a place on a node."""


def over_ray(
    factory: Callable[[], Any],
    *,
    num_workers: int | None,
    address: str | None,
    actor_options: Mapping[str, Any] | None,
    timeout: float | None,
    max_restarts: int,
    audit: float,
    max_worker_rss: int | None,
) -> Sharded:
    """Return a backend over actors that each host a `PlanEnv`.

    Args:
        factory: Makes a `PlanEnv`, on the nodes of the cluster. cloudpickle sends it.
        num_workers: Number of actors; None takes as many as the cluster has room for.
        address: See `Cluster`.
        actor_options: Options of `ray.remote` for the actors, such as `num_cpus`, `resources`, `runtime_env`.
        timeout: Seconds that one chunk may take before its actor is killed; None for no limit.
        max_restarts: Largest number of retries of a row on which actors exit.
        audit: Part of the time of all steps in which rows are stepped a second time, and compared.
        max_worker_rss: Bytes of memory above which an actor is replaced between two chunks; None for no
            limit.

    Raises:
        InvalidBatchError: An argument is wrong.
        WorkerStartError: The cluster does not answer or has no room, the factory cannot be pickled, or an
            actor could not make the environment.
        UnsupportedEnvError: The environment cannot be saved exactly.
    """
    check_limits(timeout, max_restarts, max_worker_rss, audit)
    try:
        pickled = cloudpickle.dumps(factory)
    except Exception as error:
        text = f"factory: {factory!r} cannot be pickled ({type(error).__name__}: {error})"
        raise WorkerStartError(f"{text}; nothing was started") from error
    options = dict(actor_options or {})
    cluster = Cluster(address, options.get("num_cpus", 1) * (num_workers or 1))
    workers: list[RayWorker] = []
    try:
        launcher, inbox = Launcher(pickled, options), Inbox()
        num_workers = _room(launcher.resources) if num_workers is None else num_workers
        for index in range(num_workers):  # so that those that were started are closed if one raises
            workers.append(RayWorker(f"planvec-actor-{index}", launcher, inbox))
        backend = Sharded(
            workers,
            group=RayGroup(workers, inbox, cluster, _PlaceCheck(workers, launcher)),
            max_restarts=max_restarts,
            audit=audit,
            message_cost=_MESSAGE_COST,
        )
    except BaseException:
        for worker in workers:
            worker.close()
        cluster.close()
        raise
    for worker in workers:
        worker.timeout, worker.max_rss = timeout, max_worker_rss
    return backend


def _room(needed: Mapping[str, float]) -> int:
    """Return the number of actors for which all nodes together have resources, at least 1.

    An actor that needs nothing counts as one that needs a CPU.
    """
    used = {name: amount for name, amount in needed.items() if amount} or {"CPU": 1}
    nodes = [node["Resources"] for node in cluster_nodes() if node["Alive"]]
    return max(1, sum(min(int(node.get(name, 0) / used[name]) for name in used) for node in nodes))


class _PlaceCheck:
    """Gives up the workers if none of them gets a place on a node at first."""

    def __init__(self, workers: list[RayWorker], launcher: Launcher) -> None:
        self._workers, self._launcher = workers, launcher
        self._deadline = time.monotonic() + _PLACE_SECONDS

    def __call__(self) -> None:
        if self._deadline < time.monotonic():
            self._deadline = float("inf")
            if not any(worker.node or worker.exit for worker in self._workers):
                error = WorkerStartError(self._text())
                for worker in self._workers:
                    worker.give_up(error)

    def _text(self) -> str:
        needed = {name: amount for name, amount in self._launcher.resources.items() if amount}
        alive = [node["Resources"] for node in cluster_nodes() if node["Alive"]]
        nodes = [{name: resources.get(name, 0) for name in needed} for resources in alive]
        is_possible = any(all(node[name] >= needed[name] for name in needed) for node in nodes)
        advice = (
            "all of it is in use: close what uses it, or add nodes"
            if is_possible
            else "no node has as much: change ray_actor_options, or add such a node"
        )
        return (
            f"ray_actor_options: no node had room for an actor within {_PLACE_SECONDS:g} s. An actor needs "
            f"{needed}, the nodes have {nodes}; {advice}"
        )
