"""Opens a backend over worker processes."""

from __future__ import annotations

from collections.abc import Sequence

from planvec.backends.base import Backend
from planvec.backends.processes.external_process import ExternalProcess
from planvec.backends.processes.group import ProcessGroup
from planvec.backends.processes.worker import ProcessWorker
from planvec.backends.sharded import Sharded
from planvec.backends.small_batches import HarmlessFactory, SmallBatches
from planvec.errors import InvalidBatchError


def over_processes(
    processes: Sequence[ExternalProcess],
    *,
    timeout: float | None,  # seconds that one chunk may take before its worker is killed; None for no limit
    max_restarts: int,
    audit: float,
    max_worker_rss: int | None,
) -> Backend:
    """Return a backend over processes that each host a `PlanEnv`."""
    # Where neither their environment nor a limit needs the isolation of processes, it steps small batches
    # here.
    # `max_worker_rss`: Bytes of memory above which a worker is replaced between two chunks; None for no
    # limit.
    workers = [process._worker for process in processes]
    backend = Sharded(workers, group=ProcessGroup(workers), max_restarts=max_restarts, audit=audit)
    try:
        limit(workers, timeout, max_worker_rss)
    except BaseException:
        backend.close()
        raise
    factory = processes[0].factory
    if not isinstance(factory, HarmlessFactory) or not factory.is_harmless:
        return backend
    are_alike = all(process.factory is factory for process in processes)
    has_limits = timeout is not None or max_worker_rss is not None
    return SmallBatches(backend, factory, audit) if are_alike and not has_limits else backend


def limit(workers: Sequence[ProcessWorker], timeout: float | None, max_worker_rss: int | None) -> None:
    """Limit the time and the memory of workers that are ready."""
    # `timeout`: Seconds that one request may take; None for no limit. `max_worker_rss`: Bytes of memory that
    # a worker may use between two requests; None for no limit.
    if max_worker_rss is not None:
        _check_rss(workers, max_worker_rss)
    for worker in workers:
        worker.watchdog.timeout, worker.watchdog.max_rss = timeout, max_worker_rss


def _check_rss(workers: Sequence[ProcessWorker], max_worker_rss: int) -> None:
    used = max(worker.memory_used() for worker in workers)
    if not used:
        raise InvalidBatchError(
            "max_worker_rss: expected None on a system without /proc, which shows the memory of a process"
        )
    if used >= max_worker_rss:
        raise InvalidBatchError(
            f"max_worker_rss: expected more than the {used:,} bytes that a worker uses before its first "
            f"step, got {max_worker_rss:,}"
        )
