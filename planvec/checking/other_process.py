"""Opens the environment of a check in another process."""

from __future__ import annotations

from collections.abc import Callable

from planvec.backends import Backend, ExternalProcess
from planvec.envs import BatchEnv, PlanEnv


def open_in_worker(
    over_ray: Callable[..., Backend] | None, ray_address: str | None, factory: Callable[[], PlanEnv]
) -> BatchEnv:
    """Open an environment in a worker process, or in an actor of a Ray cluster."""
    if over_ray is None:
        return BatchEnv([ExternalProcess(factory)], audit=0.0)
    return BatchEnv(
        over_ray(
            factory,
            num_workers=1,
            address=ray_address,
            actor_options=None,
            timeout=None,
            max_restarts=3,
            audit=0.0,
            max_worker_rss=None,
        )
    )
