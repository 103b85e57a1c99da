"""Runs workers in the actors of a Ray cluster. `worker` shows the states of an actor.

over_ray -> Sharded -> RayWorker  --request-->  StepActor (on a node of the cluster)
                           ^                        |
            RayGroup  <----+------- answer ---------+
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from planvec.lazy import lazy_names

if TYPE_CHECKING:
    from planvec.backends.ray.cluster import Cluster
    from planvec.backends.ray.worker import over_ray

__all__ = ["Cluster", "over_ray"]

# Lazy, so that an actor, which imports `actor`, does not import the modules of the driver.
if not TYPE_CHECKING:  # a type checker would accept any name from `__getattr__`
    __getattr__, __dir__ = lazy_names(
        __name__,
        {"Cluster": "planvec.backends.ray.cluster", "over_ray": "planvec.backends.ray.worker"},
    )
