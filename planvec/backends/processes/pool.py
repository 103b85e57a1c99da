"""Spreads the rows of a batch over worker processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from planvec.backends.processes.child.host import Call
from planvec.backends.processes.external_process import ExternalProcess, close_all
from planvec.backends.processes.jobs import CallJob, Job
from planvec.backends.processes.link import DIFFERENT
from planvec.backends.processes.promises import JobsPromise
from planvec.backends.processes.row_jobs import ObserveJob, RolloutJob, RowJob, Sink, StepJob
from planvec.backends.processes.supervision import PoolSupervisor
from planvec.backends.processes.waiting import Watch
from planvec.backends.stats import Stats
from planvec.envs.plan_env import EnvDescription
from planvec.errors import InvalidBatchError, WorkerStartError
from planvec.rows import space_arrays
from planvec.rows.checks import Batch, split
from planvec.rows.infos import merge_columns
from planvec.rows.outputs import Errors, Outputs
from planvec.rows.promises import Promise
from planvec.rows.results import Rollouts, Transitions
from planvec.rows.rollouts import RolloutPlan

__all__ = ["Pool"]

J = TypeVar("J", bound=RowJob)


class Pool:
    """Workers that host the same environment.

    Args:
        processes: At least one, each hosting a `PlanEnv`.
        timeout: Seconds that one chunk may take before its worker is killed; None: for ever.
        max_restarts: How often a row is tried again after a worker died over it.
        max_worker_rss: Bytes of memory above which a worker is replaced between two chunks, or None.

    Raises:
        WorkerStartError: A worker did not come up; none is left.
        UnsupportedEnvError: The environment cannot be saved faithfully; no worker is left.
        InvalidBatchError: Workers take more than `max_worker_rss` before their first step.
    """

    def __init__(
        self,
        processes: Sequence[ExternalProcess],
        timeout: float | None,
        max_restarts: int,
        max_worker_rss: int | None,
    ) -> None:
        self.processes = list(processes)
        self._watch = Watch(self.processes)
        self.stats = Stats()
        self._supervisor = PoolSupervisor(self.processes, max_restarts, self.stats)
        try:
            self._watch.wait_for(lambda: all(process.is_settled for process in self.processes), None)
            descriptions = [process.wait_ready() for process in self.processes]
            self.description = _agreed(self.processes, descriptions)
            if max_worker_rss is not None:
                _check_rss(self.processes, max_worker_rss)
        except BaseException:
            close_all(self.processes)
            raise
        self._supervisor.action_space = self.description.action_space
        for process in self.processes:
            process.timeout, process.max_rss = timeout, max_worker_rss

    @property
    def num_workers(self) -> int:
        """How many processes."""
        return len(self.processes)

    def step(self, batch: Batch, return_state: bool, mask_errors: bool, keep: bool) -> Promise[Transitions]:
        """Step checked rows.

        Args:
            batch: The rows.
            return_state: Whether new states are wanted.
            mask_errors: Whether rows that fail are flagged, rather than raise.
            keep: Whether the caller goes on before the answer is there, and may change the arrays.
        """
        space = self.description.observation_space
        dtype = self.description.state_format.dtype
        num_rows = len(batch)
        sink = Sink(lambda: Outputs.empty(num_rows, dtype, space, return_state))

        def job(rows: slice) -> StepJob:
            part = batch if rows.stop - rows.start == num_rows else batch.part(rows)
            return StepJob(part, rows.start, return_state, mask_errors, sink)

        jobs = self._spread(num_rows, job, keep)
        self._count(jobs)
        out = sink.get()

        def finish() -> Transitions:
            done = list(_leaves(jobs))
            parts = [(job.columns, job.num_rows) for job in done]
            columns = merge_columns(parts) if parts else {}
            return out.transitions(space, columns, self._errors(done) if mask_errors else None)

        return self._promise(jobs, finish)

    def rollout(self, plan: RolloutPlan, mask_errors: bool, keep: bool) -> Promise[Rollouts]:
        """Roll out checked rows. Args: as `step`."""
        dtype = self.description.state_format.dtype
        sink = Sink(lambda: Outputs.empty(len(plan), dtype, None))

        def job(rows: slice) -> RolloutJob:
            return RolloutJob(plan.part(rows), rows.start, mask_errors, sink)

        jobs = self._spread(len(plan), job, keep)
        self._count(jobs)
        out = sink.get()
        return self._promise(jobs, lambda: out.rollouts(self._errors(_leaves(jobs)) if mask_errors else None))

    def _errors(self, jobs: Iterable[RowJob]) -> Errors:
        errors = {row: error for job in jobs for row, error in job.errors.items()}
        self.stats.masked_rows += len(errors)
        return errors

    def observe(self, states: Any) -> Any:
        """The observations of checked states."""
        space = self.description.observation_space
        out = space_arrays.empty_rows(space, len(states))
        jobs = self._spread(len(states), lambda rows: ObserveJob(states[rows], rows.start, out), False)
        self._promise(jobs, lambda: None).result()
        return space_arrays.finish_rows(space, out)

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the first worker's environment and wait for its value."""
        job = CallJob(Call(name, args, kwargs))
        job.is_pure = name == "reset"  # its seed is always given
        self._supervisor.submit(self._workers()[0], job)
        return self._promise([job], lambda: job.value).result()

    def sync(self, state: Any) -> None:
        """Set the base state of every worker, and of those that will replace one."""
        self._workers()
        call = self._supervisor.base_state = Call("set_state", (state,))
        jobs = []
        for process in self.processes:
            jobs.append(CallJob(call))
            jobs[-1].is_pure = True
            self._supervisor.submit(process, jobs[-1])
        self._promise(jobs, lambda: None).result()

    def render(self, states: Any) -> list[Any]:
        """The frames of checked states."""
        processes = self._workers()
        jobs = []
        for process, rows in zip(processes, split(len(states), len(processes)), strict=False):
            jobs.append(CallJob(Call("render", (states[rows],)), rows.start))
            jobs[-1].is_pure = True
            self._supervisor.submit(process, jobs[-1])
        self._promise(jobs, lambda: None).result()
        return [frame for job in jobs for frame in job.value]

    def close(self) -> None:
        """Close every worker."""
        close_all(self.processes)

    # -- dispatch -----------------------------------------------------------------------------

    def _workers(self) -> list[ExternalProcess]:
        """The workers that are there; if none is, those that are on their way.

        Workers that are just being replaced get no share: they help with what is left when they come up.
        """
        for process in self.processes:
            if not process.is_ready:
                break
        else:
            return self.processes
        self._watch.pump()  # perhaps it has come up meanwhile
        self._supervisor.revive()
        ready = [process for process in self.processes if process.is_ready]
        coming = ready or [process for process in self.processes if process.failure is None]
        return coming or self.processes

    def _spread(self, num_rows: int, make: Callable[[slice], J], keep: bool) -> list[J]:
        """One slice per worker; a slice larger than a slab becomes several jobs."""
        processes = self._workers()
        jobs: list[J] = []
        for process, rows in zip(processes, split(num_rows, len(processes)), strict=False):
            for wave in _waves(rows, process.capacity):
                job = make(wave)
                job.siblings = jobs
                jobs.append(job)
                self._supervisor.submit(process, job)
        if keep:  # even those that were sent: they are sent again if their worker dies
            with self._supervisor.lock:  # nobody parts them meanwhile
                for job in jobs:
                    if not job.is_done:
                        job.keep()
        return jobs

    def _count(self, jobs: Sequence[Job]) -> None:
        with self._supervisor.lock:
            self.stats.num_rows += sum(job.num_rows for job in jobs)
            self.stats.num_chunks += len(jobs)

    def _promise(self, jobs: Sequence[Job], finish: Callable[[], Any]) -> JobsPromise[Any]:
        return JobsPromise(self._watch, jobs, finish)


def _leaves(jobs: Sequence[RowJob]) -> Iterator[RowJob]:
    return (leaf for job in jobs for leaf in job.leaves())


def _check_rss(processes: Sequence[ExternalProcess], max_worker_rss: int) -> None:
    used = max(process.memory_used() for process in processes)
    if not used:
        raise InvalidBatchError(
            "max_worker_rss: expected None here, where /proc does not tell what a process takes"
        )
    if used >= max_worker_rss:
        raise InvalidBatchError(
            f"max_worker_rss: expected more than the {used:,} bytes that a worker takes before its first "
            f"step, got {max_worker_rss:,}"
        )


def _waves(rows: slice, capacity: int) -> list[slice]:
    if rows.stop - rows.start <= capacity:
        return [rows]
    starts = range(rows.start, rows.stop, capacity)
    return [slice(start, min(start + capacity, rows.stop)) for start in starts]


def _agreed(
    processes: Sequence[ExternalProcess], descriptions: Sequence[EnvDescription | None]
) -> EnvDescription:
    """The description that all workers give.

    Raises:
        WorkerStartError: They host something else than a `PlanEnv`, or different environments.
    """
    first = descriptions[0]
    for process, description in zip(processes, descriptions, strict=True):
        if description is None or first is None:
            raise WorkerStartError(
                f"workers: expected each to host a planvec.PlanEnv, which {process.name} does not; "
                "pass ExternalProcess(lambda: planvec.PlanEnv(...))"
            )
        for name, one, other in (
            ("observation_space", first.observation_space, description.observation_space),
            ("action_space", first.action_space, description.action_space),
            ("state_dtype", first.state_format.dtype, description.state_format.dtype),
        ):
            if one != other:
                raise WorkerStartError(
                    f"workers: {process.name} made another environment than the first: its {name} is "
                    f"{other}, not {one}"
                )
        if (description.state_format, description.fingerprint) != (first.state_format, first.fingerprint):
            raise WorkerStartError(
                f"workers: {process.name} made another environment than the first: {DIFFERENT}"
            )
    assert first is not None
    return first
