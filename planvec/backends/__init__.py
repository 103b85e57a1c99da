"""Runs batches in this process, or spreads them over workers.

To add a backend, write a `Worker` for `Sharded` or a new `Backend`, in a folder or module of this package.
"""

from __future__ import annotations

# Hands on the names that other folders use.
# ruff: noqa: F401
# mypy: implicit-reexport
from planvec.backends.audit import DEFAULT_AUDIT, check_audit
from planvec.backends.base import Backend, ExitReason, Stats, Worker, WorkerExit
from planvec.backends.choice import BackendName, ray_connection, ray_opener
from planvec.backends.client import check_limits
from planvec.backends.in_process import InProcess
from planvec.backends.messages import load_from_parent, load_pickled, pickle_for_worker
from planvec.backends.processes.requests import ServedRequest, Server
from planvec.backends.processes.slab import Allocator
from planvec.backends.processes.system import default_num_workers, num_cores
from planvec.backends.processes.worker import (
    ExternalProcess,
    ProcessWorker,
    ServedProcesses,
    open_processes,
    over_processes,
)
from planvec.backends.sharded.backend import Sharded
from planvec.backends.sharded.recovery import pause_before_restart
from planvec.backends.signals import DelayedSignals
