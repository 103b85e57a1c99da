"""Defines `BatchEnv`, which steps batches of states with several workers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from planvec.backends import (
    DEFAULT_AUDIT,
    Backend,
    ExternalProcess,
    InProcess,
    Stats,
    check_limits,
    over_processes,
)
from planvec.envs.env_calls import Blocking, EnvCalls, Mode
from planvec.envs.plan_env import PlanEnv
from planvec.errors import InvalidBatchError
from planvec.rows import wait_for

Workers = Sequence[ExternalProcess] | PlanEnv | Backend


class BatchEnv(EnvCalls[Mode]):
    """Steps batches of states. The results have the same bits with any number of workers.

    With workers, a crash of the environment cannot end this process. It has an environment of its own only
    for small batches of Gymnasium's classic control and toy text, which do not crash, and only if these were
    made by id, without `timeout`, `max_worker_rss` and `codec`.

    Args:
        workers: Processes that each host a `PlanEnv` of the same environment; or one `PlanEnv`, to step in
            this process; or a `Backend`. `close()` closes them.
        blocking: Whether batch calls wait for their result by default; otherwise they return a `Promise`.
        timeout: Seconds that one chunk of a batch may take before its worker is killed; None: no limit.
        max_restarts: How often a row is retried after a worker crashed on it. Then `WorkerCrashedError` names
            the row. Workers are replaced in any case.
        max_worker_rss: Bytes of resident memory above which a worker is replaced between two chunks, for
            environments that leak memory; None: no limit.
        audit: Part of the time of all steps in which some rows are stepped a second time, by another worker
            if there is one. If the results differ, the next call raises `UnsupportedEnvError`.

    Raises:
        InvalidBatchError: An argument is wrong.
        WorkerStartError: A worker did not become ready. No worker is left.
        UnsupportedEnvError: The environment cannot be saved exactly. The message says what to do.
    """

    def __init__(
        self: BatchEnv[Blocking],
        workers: Workers,
        *,
        blocking: Blocking = True,  # type: ignore[assignment] # of each of its types
        timeout: float | None = None,
        max_restarts: int = 3,
        max_worker_rss: int | None = None,
        audit: float = DEFAULT_AUDIT,
    ) -> None:
        if not isinstance(blocking, bool):
            raise InvalidBatchError(f"blocking: expected True or False, got {blocking!r}")
        check_limits(timeout, max_restarts, max_worker_rss, audit)
        self._limits: dict[str, Any] = {
            "blocking": blocking,
            "timeout": timeout,
            "max_restarts": max_restarts,
            "max_worker_rss": max_worker_rss,
            "audit": audit,
        }
        self._processes: tuple[ExternalProcess, ...] = ()
        self._reopen: Callable[[], Workers] | None = None
        backend: Backend
        if isinstance(workers, PlanEnv):
            self._reopen = workers.clone
            backend = InProcess(workers.stepper, audit)
        elif isinstance(workers, Sequence):
            if not len(workers):
                raise InvalidBatchError(
                    "workers: expected at least one ExternalProcess, or a PlanEnv, got none"
                )
            self._processes = tuple(workers)
            self._reopen = partial(_clone_all, self._processes)
            backend = over_processes(
                workers,
                timeout=timeout,
                max_restarts=max_restarts,
                audit=audit,
                max_worker_rss=max_worker_rss,
            )
        else:
            if (timeout, max_restarts, max_worker_rss, audit) != (None, 3, None, DEFAULT_AUDIT):
                raise InvalidBatchError(
                    "timeout, max_restarts, max_worker_rss, audit: expected the defaults with a backend, "
                    "which has limits of its own; pass them to the backend"
                )
            backend = workers
        super().__init__(backend, blocking)
        if self._about.warning:
            warnings.warn(self._about.warning, UserWarning, stacklevel=2)

    @property
    def num_workers(self) -> int:
        """Number of workers; 0 if rows are stepped in this process."""
        return self._backend.num_workers

    @property
    def workers(self) -> tuple[ExternalProcess, ...]:
        """The worker processes; empty if there are none."""
        return self._processes

    @property
    def stats(self) -> Stats:
        """Counts since the environment was opened: rows, chunks, retries, and workers replaced, by reason."""
        return self._backend.stats

    def sync_states(self, state: Any) -> None:
        """Make a state the base state here and in every worker. Later calls of any worker find it there.

        Batch calls do not need this, because they send the states from which rows start. Use it before you
        call single workers directly.

        Args:
            state: One state.

        Raises:
            InvalidBatchError: It is not one state of this environment.
        """
        self.set_state(state)
        wait_for(self._backend.sync_base_state())

    def clone(self) -> BatchEnv[Mode]:
        """Open another `BatchEnv` of the same environment, with as many workers and the same base state.

        Raises:
            TypeError: This `BatchEnv` was opened with a `gymnasium.Env` or a `Backend`, which cannot be
                cloned.
        """
        if self._reopen is None:
            raise TypeError(
                "clone: expected a BatchEnv opened with planvec.make, got one over the backend "
                f"{self._backend!r}; open a second backend and pass it to BatchEnv"
            )
        other: BatchEnv[Any] = BatchEnv(self._reopen(), **self._limits)
        other._reopen = other._reopen or self._reopen
        other.set_state(self.get_state())
        return other

    def __repr__(self) -> str:
        name = self.spec.id if self.spec is not None else self._about.state_format.origin
        workers = "closed" if self._closed else f"num_workers={self.num_workers}"
        return f"<BatchEnv of {name}, {workers}>"


def _clone_all(processes: Sequence[ExternalProcess]) -> list[ExternalProcess]:
    """Start as many processes again."""
    return [process.clone() for process in processes]
