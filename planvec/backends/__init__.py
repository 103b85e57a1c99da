"""Runs batches in this process, or spreads them over workers.

To add a backend, write a `Worker` for `Sharded` or a new `Backend`, in a folder or module of this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from planvec.lazy import lazy_names

if TYPE_CHECKING:
    from planvec.backends.audit import DEFAULT_AUDIT, check_limits
    from planvec.backends.base import Backend, ExitReason, Future, Stats, Worker, WorkerExit
    from planvec.backends.choice import ray_connection, ray_opener
    from planvec.backends.in_process import InProcess
    from planvec.backends.messages import pickle_for_worker
    from planvec.backends.processes import (
        Allocator,
        ExternalProcess,
        ProcessWorker,
        ServedProcesses,
        ServedRequest,
        Server,
        load_from_parent,
        load_pickled,
        num_cores,
        over_processes,
    )
    from planvec.backends.sharded import Sharded
    from planvec.backends.sharded.backend import pause_before_restart

__all__ = [
    "DEFAULT_AUDIT",
    "Allocator",
    "Backend",
    "ExitReason",
    "ExternalProcess",
    "Future",
    "InProcess",
    "ProcessWorker",
    "ServedProcesses",
    "ServedRequest",
    "Server",
    "Sharded",
    "Stats",
    "Worker",
    "WorkerExit",
    "check_limits",
    "load_from_parent",
    "load_pickled",
    "num_cores",
    "over_processes",
    "pause_before_restart",
    "pickle_for_worker",
    "ray_connection",
    "ray_opener",
]

if not TYPE_CHECKING:  # a type checker would accept any name from `__getattr__`
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "DEFAULT_AUDIT": "planvec.backends.audit",
            **dict.fromkeys(
                (
                    *("Allocator", "ProcessWorker", "ServedProcesses", "ServedRequest", "Server"),
                    "load_from_parent",
                    "load_pickled",
                ),
                "planvec.backends.processes",
            ),
            "Backend": "planvec.backends.base",
            "check_limits": "planvec.backends.audit",
            "pause_before_restart": "planvec.backends.sharded.backend",
            "pickle_for_worker": "planvec.backends.messages",
            "ExitReason": "planvec.backends.base",
            "ExternalProcess": "planvec.backends.processes",
            "Future": "planvec.backends.base",
            "InProcess": "planvec.backends.in_process",
            "Sharded": "planvec.backends.sharded",
            "Stats": "planvec.backends.base",
            "Worker": "planvec.backends.base",
            "WorkerExit": "planvec.backends.base",
            "num_cores": "planvec.backends.processes",
            "over_processes": "planvec.backends.processes",
            "ray_connection": "planvec.backends.choice",
            "ray_opener": "planvec.backends.choice",
        },
    )
