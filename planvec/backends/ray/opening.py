"""Opens a backend over the actors of a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from planvec.backends.limits import check_limits
from planvec.backends.messages.factories import pickle_factory
from planvec.backends.ray.cluster import Cluster
from planvec.backends.ray.group import RayGroup
from planvec.backends.ray.inbox import Inbox
from planvec.backends.ray.launcher import Launcher
from planvec.backends.ray.options import ActorOptions
from planvec.backends.ray.places import PlaceCheck, num_places
from planvec.backends.ray.worker import RayWorker
from planvec.backends.sharded import Sharded
from planvec.errors import InvalidBatchError

__all__ = ["over_ray"]

_MESSAGE_COST = 25.0
"""See `Sharded`. A message to an actor and its answer cost a core about 2 ms, on both sides together."""


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
        factory: Makes a `PlanEnv`, on the nodes of the cluster. It is pickled.
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
