"""Runs processes that each host a `Server`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from planvec.backends.processes.external_process import ExternalProcess
from planvec.backends.processes.group import ProcessGroup
from planvec.backends.processes.pool import limit
from planvec.backends.processes.worker import ProcessWorker
from planvec.backends.waiting import Waiter


class ServedProcesses:
    """Runs processes that each host a `Server`. The caller decides what happens when one exits."""

    def __init__(
        self,
        factories: Sequence[Callable[[], Any]],
        *,
        start_method: str | None,
        name: str = "planvec-worker",
        preload: Sequence[str] = (),
    ) -> None:
        self.lock = threading.RLock()  # protects all state
        self.processes: list[ExternalProcess] = []
        try:
            for index, factory in enumerate(factories):
                self.processes.append(
                    ExternalProcess(
                        factory, start_method=start_method, name=f"{name}-{index}", preload=preload
                    )
                )
        except BaseException:
            for process in self.processes:
                process.close()
            raise
        # their parts that send requests
        self.workers: list[ProcessWorker] = [process._worker for process in self.processes]
        self._group = ProcessGroup(self.workers)
        self._waiter = Waiter(self._group)

    def limit(self, timeout: float | None, max_worker_rss: int | None) -> None:
        """Limit the time and the memory of the processes, which must be ready. See `pool.limit`."""
        limit(self.workers, timeout, max_worker_rss)

    def poll(self) -> None:
        """Handle all messages that have arrived, without waiting."""
        self._waiter.poll()

    def wait_for(self, is_done: Callable[[], bool], timeout: float | None = None) -> None:
        """Wait until `is_done()`, which is evaluated after every message, returns True."""
        self._waiter.wait_for(is_done, timeout)

    def close(self) -> None:
        """Close all processes at the same time, with one common deadline."""
        self._group.close()
