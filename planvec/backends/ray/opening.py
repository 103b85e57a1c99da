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
