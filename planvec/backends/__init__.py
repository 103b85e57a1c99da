"""Runs batches in this process, or spreads them over workers.

To add a backend, write a `Worker` for `Sharded` or a new `Backend`, in a folder or module of this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from planvec.lazy import lazy_names

if TYPE_CHECKING:
    from planvec.backends.audit import DEFAULT_AUDIT, check_audit, check_limits
    from planvec.backends.base import Backend, ExitReason, Stats, Worker, WorkerExit
    from planvec.backends.choice import ray_connection, ray_opener
    from planvec.backends.in_process import InProcess
    from planvec.backends.messages import load_from_parent, load_pickled, pickle_for_worker
    from planvec.backends.processes.requests import ServedRequest, Server
    from planvec.backends.processes.slab import Allocator
    from planvec.backends.processes.system import num_cores
    from planvec.backends.processes.worker import (
        ExternalProcess,
        ProcessWorker,
        ServedProcesses,
        over_processes,
    )
    from planvec.backends.sharded.backend import Sharded
    from planvec.backends.sharded.recovery import pause_before_restart

__all__ = [
    "DEFAULT_AUDIT",
    "Allocator",
    "Backend",
    "ExitReason",
    "ExternalProcess",
    "InProcess",
    "ProcessWorker",
    "ServedProcesses",
    "ServedRequest",
    "Server",
    "Sharded",
    "Stats",
    "Worker",
    "WorkerExit",
    "check_audit",
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
            name: f"planvec.backends.{module}"
            for module, names in {
                "audit": ("DEFAULT_AUDIT", "check_audit", "check_limits"),
                "base": ("Backend", "ExitReason", "Stats", "Worker", "WorkerExit"),
                "choice": ("ray_connection", "ray_opener"),
                "in_process": ("InProcess",),
                "messages": ("load_from_parent", "load_pickled", "pickle_for_worker"),
                "processes.requests": ("ServedRequest", "Server"),
                "processes.slab": ("Allocator",),
                "processes.system": ("num_cores",),
                "processes.worker": ("ExternalProcess", "ProcessWorker", "ServedProcesses", "over_processes"),
                "sharded.backend": ("Sharded",),
                "sharded.recovery": ("pause_before_restart",),
            }.items()
            for name in names
        },
    )
