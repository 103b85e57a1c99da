"""Spreads the rows of a batch over worker processes, and replaces those that die."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from planvec import space_arrays
from planvec.arrays import Batch, split
from planvec.errors import PlanvecError, WorkerStartError
from planvec.infos import merge_columns
from planvec.plan_env import EnvDescription
from planvec.promise import Promise
from planvec.rollouts import RolloutOutputs, RolloutPlan
from planvec.stepping import Outputs
from planvec.transitions import Rollouts, Transitions
from planvec.workers.external_process import ExternalProcess, close_all
from planvec.workers.host import Call
from planvec.workers.jobs import CallJob, Job, ObserveJob, RolloutJob, Sink, StepJob
from planvec.workers.link import DIFFERENT, Link
from planvec.workers.promises import JobsPromise
from planvec.workers.waiting import Watch

__all__ = ["Pool", "Stats"]

J = TypeVar("J", bound=Job)
_log = logging.getLogger("planvec")


@dataclass(slots=True)
class Stats:
    """Counts since the environment was opened.

    Attributes:
        num_rows: Rows stepped or rolled out.
        num_chunks: Requests that they were sent in.
        restarts: Workers replaced.
        retries: Requests sent again.
    """

    num_rows: int = 0
    num_chunks: int = 0
    restarts: int = 0
    retries: int = 0


class Pool:
    """Workers that host the same environment.

    Args:
        processes: At least one, each hosting a `PlanEnv`.
        timeout: Seconds that one chunk may take before its worker is killed; None: for ever.
        max_restarts: How often the same chunk is sent again after its worker died.

    Raises:
        WorkerStartError: A worker did not come up; none is left.
        UnsupportedEnvError: The environment cannot be saved faithfully; no worker is left.
    """

    def __init__(
        self, processes: Sequence[ExternalProcess], timeout: float | None, max_restarts: int
    ) -> None:
        self.processes = list(processes)
        self._watch = Watch(self.processes, timeout)
        self._max_restarts = max_restarts
        self.stats = Stats()
        self._base_state: Call | None = None
        try:
            descriptions = [process.wait_ready() for process in self.processes]
            self.description = _agreed(self.processes, descriptions)
        except BaseException:
            close_all(self.processes)
            raise
        for process in self.processes:
            process.supervisor = self._replace

    @property
    def num_workers(self) -> int:
        """How many processes."""
        return len(self.processes)

    def step(self, batch: Batch, return_state: bool, keep: bool) -> Promise[Transitions]:
        """Step checked rows.

        Args:
            batch: The rows.
            return_state: Whether new states are wanted.
            keep: Whether the caller goes on before the answer is there, and may change the arrays.
        """
        space = self.description.observation_space
        dtype = self.description.state_format.dtype
        sink = Sink(lambda: Outputs.empty(len(batch), dtype, space, return_state))
        jobs = self._spread(len(batch), lambda rows: StepJob(batch, rows, return_state, sink), keep)
        self._count(jobs)
        out = sink.get()

        def finish() -> Transitions:
            parts = [(job.columns, job.num_rows) for job in jobs]
            return out.transitions(space, merge_columns(parts) if parts else {})

        return self._promise(jobs, finish)

    def rollout(self, plan: RolloutPlan, keep: bool) -> Promise[Rollouts]:
        """Roll out checked rows. Args: as `step`."""
        out = RolloutOutputs.empty(len(plan), self.description.state_format.dtype)
        jobs = self._spread(len(plan), lambda rows: RolloutJob(plan, rows, out), keep)
        self._count(jobs)
        return self._promise(jobs, out.rollouts)

    def observe(self, states: Any) -> Any:
        """The observations of checked states."""
        space = self.description.observation_space
        out = space_arrays.empty_rows(space, len(states))
        jobs = self._spread(len(states), lambda rows: ObserveJob(states, rows, out), False)
        self._promise(jobs, lambda: None).result()
        return space_arrays.finish_rows(space, out)

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the first worker's environment and wait for its value."""
        job = CallJob(Call(name, args, kwargs))
        job.is_pure = name == "reset"  # its seed is always given
        self._submit(self.processes[0], job)
        return self._promise([job], lambda: job.value).result()

    def sync(self, state: Any) -> None:
        """Set the base state of every worker, and of those that will replace one."""
        self._base_state = Call("set_state", (state,))
        jobs = [CallJob(self._base_state) for _ in self.processes]
        for job in jobs:
            job.is_pure = True
        for process, job in zip(self.processes, jobs, strict=True):
            self._submit(process, job)
        self._promise(jobs, lambda: None).result()

    def render(self, states: Any) -> list[Any]:
        """The frames of checked states."""
        jobs = []
        slices = split(len(states), self.num_workers)
        for process, rows in zip(self.processes, slices, strict=False):
            jobs.append(CallJob(Call("render", (states[rows],)), rows.start))
            self._submit(process, jobs[-1])
        self._promise(jobs, lambda: None).result()
        return [frame for job in jobs for frame in job.value]

    def close(self) -> None:
        """Close every worker."""
        close_all(self.processes)

    # -- dispatch -----------------------------------------------------------------------------

    def _spread(self, num_rows: int, make: Callable[[slice], J], keep: bool) -> list[J]:
        """One slice per worker; a slice larger than a slab becomes several jobs."""
        jobs = []
        for process, rows in zip(self.processes, split(num_rows, self.num_workers), strict=False):
            for wave in _waves(rows, process.capacity):
                jobs.append(make(wave))
                self._submit(process, jobs[-1])
        if keep:  # even those that were sent: they are sent again if their worker dies
            for job in jobs:
                if not job.is_done:
                    job.keep()
        return jobs

    def _count(self, jobs: Sequence[Job]) -> None:
        self.stats.num_rows += sum(job.num_rows for job in jobs)
        self.stats.num_chunks += len(jobs)

    def _submit(self, process: Link, job: Job) -> None:
        if process.failure is not None:
            self._restart(process)  # it did not come up the last time; perhaps it does now
        process.check()
        process.submit(job)

    def _promise(self, jobs: Sequence[Job], finish: Callable[[], Any]) -> JobsPromise[Any]:
        return JobsPromise(self._watch, jobs, finish)

    def _replace(self, process: Link, error: PlanvecError, at_work: Job | None, jobs: list[Job]) -> list[Job]:
        """Replace a process that is gone; send again what may be sent again.

        Only the job at work can have been the death of it: the others lose no attempt.
        """
        if isinstance(error, WorkerStartError):
            return jobs
        self.stats.restarts += 1
        _log.warning("%s; it is replaced", error)
        self._restart(process)
        failed = []
        for job in jobs:
            is_innocent = job is not at_work
            if is_innocent and job.num_attempts:
                job.num_attempts -= 1
            has_attempts = not isinstance(error, TimeoutError) and job.num_attempts <= self._max_restarts
            if job.is_pure and (is_innocent or has_attempts):
                self.stats.retries += not is_innocent
                process.submit(job)
            else:
                failed.append(job)
        return failed

    def _restart(self, process: Link) -> None:
        """Start a process anew, and give it the base state that all were given."""
        process.restart()
        if self._base_state is not None:
            process.submit(CallJob(self._base_state))


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
