"""Runs workers in processes. `conversation` shows the messages, and `worker` the states of a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planvec.lazy import lazy_names

if TYPE_CHECKING:
    from planvec.backends.processes.external_process import ExternalProcess
    from planvec.backends.processes.os.cores import num_cores
    from planvec.backends.processes.pool import over_processes

__all__ = ["ExternalProcess", "num_cores", "over_processes"]

# Lazy, so that a worker, which imports `child`, does not import the modules of the parent.
if not TYPE_CHECKING:  # a type checker would accept any name from `__getattr__`
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "ExternalProcess": "planvec.backends.processes.external_process",
            "num_cores": "planvec.backends.processes.os.cores",
            "over_processes": "planvec.backends.processes.pool",
        },
    )
