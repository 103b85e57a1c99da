"""Runs workers in processes. `conversation` shows the messages, and `worker` the states of a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planvec.lazy import lazy_names

if TYPE_CHECKING:
    from planvec.backends.messages import load_from_parent, load_pickled
    from planvec.backends.processes.requests import ServedRequest, Server
    from planvec.backends.processes.slab import Allocator
    from planvec.backends.processes.system import num_cores
    from planvec.backends.processes.worker import (
        ExternalProcess,
        ProcessWorker,
        ServedProcesses,
        over_processes,
    )

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
            "Allocator": "planvec.backends.processes.slab",
            "ExternalProcess": "planvec.backends.processes.worker",
            "ProcessWorker": "planvec.backends.processes.worker",
            "ServedProcesses": "planvec.backends.processes.worker",
            "ServedRequest": "planvec.backends.processes.requests",
            "Server": "planvec.backends.processes.requests",
            "load_from_parent": "planvec.backends.messages",
            "load_pickled": "planvec.backends.messages",
            "num_cores": "planvec.backends.processes.system",
            "over_processes": "planvec.backends.processes.worker",
        },
    )
