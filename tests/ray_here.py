"""A Ray cluster on this machine, for all tests of a process: starting it takes seconds."""

from __future__ import annotations

import logging
from typing import Any

__all__ = ["PLACES", "RAY_CPUS", "connect_ray", "disconnect_ray"]

RAY_CPUS = 8
PLACES = "places"
"""A resource of which the first node has one."""

_clusters: list[Any] = []


def connect_ray() -> Any:
    """Start a cluster of one node and connect to it, unless this process has. Return Ray's `Cluster`."""
    import ray  # here, since most runs do not need it
    from ray.cluster_utils import Cluster

    if not _clusters:
        _clusters.append(
            Cluster(
                initialize_head=True,
                head_node_args={"num_cpus": RAY_CPUS, "resources": {PLACES: 1}, "include_dashboard": False},
            )
        )
    if not ray.is_initialized():
        ray.init(address=_clusters[0].address, logging_level=logging.ERROR, log_to_driver=False)
    return _clusters[0]


def disconnect_ray() -> None:
    """Stop Ray and its processes, if it was started."""
    while _clusters:
        import ray

        ray.shutdown()
        _clusters.pop().shutdown()
