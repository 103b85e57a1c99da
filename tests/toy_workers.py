"""Two workers without processes: how little a worker for `Sharded` needs. See `planvec.backends.Worker`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from planvec import BatchEnv, PlanEnv
from planvec.backends import Sharded, WorkerExit
from planvec.rows import Answer, Request


class ThreadWorker:
    """Steps its own environment in a thread of its own."""

    capacity = 100
    exit: WorkerExit | None = None
    is_ready = True
    is_delayed = False

    def __init__(self, make: Callable[[], PlanEnv], number: int) -> None:
        self.name = f"thread-{number}"
        self._env = make()
        self.description = self._env.stepper.description
        self._thread = ThreadPoolExecutor(1)

    def listen(self, changed: Any, lock: Any) -> None:
        """Do nothing: the worker is always ready, and does not exit."""

    def submit(self, request: Request[Any]) -> Future[Answer]:
        # A copy, since the caller may change its arrays.
        return self._thread.submit(self._env.stepper.perform, request.copy())

    def restart(self, pause: float = 0.0) -> None:
        raise AssertionError("the worker does not exit")

    def close(self) -> None:
        self._thread.shutdown()
        self._env.close()


class ObjectWorker(ThreadWorker):
    """Steps its environment in `submit`."""

    def submit(self, request: Request[Any]) -> Future[Answer]:
        future: Future[Answer] = Future()
        try:
            future.set_result(self._env.stepper.perform(request))
        except Exception as error:
            future.set_exception(error)
        return future


def over(kind: type[ThreadWorker], make: Callable[[], PlanEnv], num_workers: int) -> BatchEnv:
    """Open a `BatchEnv` over toy workers."""
    return BatchEnv(Sharded([kind(make, number) for number in range(num_workers)]))
