"""Runs workers in processes. `conversation` shows the messages, and `worker` the states of a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planvec.lazy import lazy_names

if TYPE_CHECKING:
    from planvec.backends.messages.main_classes import load_from_parent
    from planvec.backends.messages.unpickling import load_pickled
    from planvec.backends.processes.external_process import ExternalProcess
    from planvec.backends.processes.os.cores import num_cores
    from planvec.backends.processes.pool import over_processes
    from planvec.backends.processes.served_processes import ServedProcesses
    from planvec.backends.processes.wire.served import ServedRequest, Server
    from planvec.backends.processes.wire.slab import Allocator
    from planvec.backends.processes.worker import ProcessWorker

__all__ = [
    "Allocator",
    "ExternalProcess",
    "ProcessWorker",
    "ServedProcesses",
    "ServedRequest",
    "Server",
    "load_from_parent",
    "load_pickled",
    "num_cores",
    "over_processes",
]

# Lazy, so that a worker, which imports `child`, does not import the modules of the parent.
if not TYPE_CHECKING:  # a type checker would accept any name from `__getattr__`
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "Allocator": "planvec.backends.processes.wire.slab",
            "ExternalProcess": "planvec.backends.processes.external_process",
            "ProcessWorker": "planvec.backends.processes.worker",
            "ServedProcesses": "planvec.backends.processes.served_processes",
            "ServedRequest": "planvec.backends.processes.wire.served",
            "Server": "planvec.backends.processes.wire.served",
            "load_from_parent": "planvec.backends.messages.main_classes",
            "load_pickled": "planvec.backends.messages.unpickling",
            "num_cores": "planvec.backends.processes.os.cores",
            "over_processes": "planvec.backends.processes.pool",
        },
    )
