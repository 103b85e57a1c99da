"""Ray on this machine, for all tests of a process: starting it takes seconds."""

from __future__ import annotations

import logging
import sys

__all__ = ["RAY_CPUS", "connect_ray", "disconnect_ray"]

RAY_CPUS = 8


def connect_ray() -> None:
    """Start Ray, unless this process has."""
    import ray  # here, since most runs do not need it

    if not ray.is_initialized():
        ray.init(num_cpus=RAY_CPUS, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)


def disconnect_ray() -> None:
    """Stop Ray and its processes, if it was started."""
    if "ray" in sys.modules:
        sys.modules["ray"].shutdown()
