"""What becomes of a worker that is gone, and of the rows that it was to step.

    a worker dies over a chunk      the row that it had come to is tried alone, the rows around it elsewhere
    ... and dies over that row      again, up to `max_restarts` times; then the row is guilty
    a guilty row                    raises, or is flagged (`on_error="mask"`)
    a worker dies over nothing      what was sent to it is sent again; no row loses an attempt

A transition is pure: rows that were lost can run again, anywhere and in any cut, and give the same bits.
So the other workers never stop, and a death is a line in the log and a count in `Stats`.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence

import gymnasium

from planvec.backends.processes.child.host import Call
from planvec.backends.processes.deaths import Death, Supervisor
from planvec.backends.processes.jobs import CallJob, Job
from planvec.backends.processes.link import Link
from planvec.backends.processes.row_jobs import RowJob
from planvec.backends.stats import Stats
from planvec.errors import PlanvecError, WorkerCrashedError, WorkerStartError, WorkerTimeoutError

__all__ = ["PoolSupervisor"]

_log = logging.getLogger("planvec")
_KILLED_PER_DEATH = 10
"""How many workers that somebody has killed count as much as one that died by itself."""
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
"""Seconds before a worker is started again that died twice in a row without finishing anything."""


class PoolSupervisor(Supervisor):
    """Replaces workers, and has their rows done by others.

    Args:
        processes: The workers.
        max_restarts: How often a row is tried again after a worker died over it.
        stats: Counts.

    Attributes:
        lock: Held while anything of the workers changes.
        action_space: Of one action, to name the one that a worker died over; None until all have started.
        base_state: The call that gives a new worker the base state that all were given, or None.
    """

    def __init__(
        self,
        processes: Sequence[Link],
        max_restarts: int,
        stats: Stats,
    ) -> None:
        self._processes = processes
        self._max_restarts = max_restarts
        self._most_in_vain = max(1, max_restarts) * len(processes)
        self.action_space: gymnasium.Space[object] | None = None
        self._stats = stats
        self._backlog: deque[Job] = deque()
        self._unreported: list[Link] = []
        self.base_state: Call | None = None
        self.lock = threading.RLock()  # one for all: a death in one worker gives work to another
        for process in processes:
            process.share(self, self.lock, self._backlog)

    def submit(self, process: Link, job: Job) -> None:
        """Ask a worker for a job; if it is just being replaced, whoever is free first does it."""
        if process.is_ready or not isinstance(job, RowJob):
            process.submit(job)
            return
        process.check()
        with self.lock:
            if process.is_closed or process.failure is not None:
                process.submit(job)  # which fails it
            else:
                self._backlog.append(job)
                self._serve()

    # -- the workers --------------------------------------------------------------------------

    def revive(self) -> None:
        """Before a batch: start again what could not be started the last time.

        Raises:
            PlanvecError: Why that was, once.
        """
        with self.lock:
            for process in self._processes:
                if process.failure is None or process.is_closed:
                    continue
                if process in self._unreported:
                    self._unreported.remove(process)
                    raise process.failure
                self._start_again(process, 0.0)

    def died(self, link: Link, death: Death, jobs: list[Job]) -> None:
        self._stats.restarts += 1
        setattr(self._stats, death.kind, getattr(self._stats, death.kind) + 1)
        # Those that somebody else has killed say little about the environment, but cannot go on for ever.
        share = 1 / _KILLED_PER_DEATH if death.was_killed else 1
        if death.was_starting:
            self.num_failed_starts += share
        elif death.job is None:
            self.num_idle_deaths += share
        if max(self.num_failed_starts, self.num_idle_deaths) > self._most_in_vain:
            self._lose(link, death, jobs)
            return
        _log.warning("%s; it is replaced%s", death.what, self._and_then(death))
        pause = 0.0 if link.num_deaths < 2 else min(_FIRST_PAUSE * 2 ** (link.num_deaths - 2), _LONGEST_PAUSE)
        self._start_again(link, pause)
        if link.failure is not None:  # not even that
            for job in jobs:
                job.fail_batch(link.failure)
            return
        for job in reversed(jobs):
            if isinstance(job, RowJob) and job.parts:  # this was interrupted before, when it had been parted
                self._backlog.extendleft(reversed(job.parts))
            elif job is not death.job:
                self._do_elsewhere(job, WorkerCrashedError(death.what))
            elif job.is_wanted:
                self._judge(link, job, death)
        self._serve()

    def _lose(self, link: Link, death: Death, jobs: list[Job]) -> None:
        """Workers die faster than they can be started: give up what was asked for."""
        error = WorkerStartError(
            f"{death.what}; so did {self._most_in_vain} or more before it, with nothing done in between"
        )
        _log.error("%s; what was asked for is given up", error)
        link.failure = error
        self.num_failed_starts = self.num_idle_deaths = 0
        self._give_up(jobs, error)

    def _and_then(self, death: Death) -> str:
        if death.job is None or death.row < 0 or death.job.num_rows < 2:
            return ""
        return f" (it had come to row {death.job.first_row + death.row})"

    def cannot_start(self, link: Link, error: PlanvecError, jobs: list[Job]) -> None:
        """Others do its rows, if there are others; the next call says why, and the one after tries again."""
        link.failure = error
        if self.action_space is None:
            return  # whoever opens the pool is told
        has_others = any(other.failure is None and not other.is_closed for other in self._processes)
        _log.error("%s; %s", error, "the others do its rows" if has_others else "no worker is left")
        if has_others:
            self._unreported.append(link)
            for job in reversed(jobs):
                self._do_elsewhere(job, error)
            self._serve()
        else:
            self._give_up(jobs, error)
            self._unreported.clear()

    def _give_up(self, jobs: list[Job], error: PlanvecError) -> None:
        """Fail jobs, and all that wait for whoever is free."""
        for job in [*jobs, *self._backlog]:
            job.fail_batch(error)
        self._backlog.clear()

    def _start_again(self, link: Link, pause: float) -> None:
        """Start a process anew, and give it the base state that all were given."""
        link.start_again(pause)
        if self.base_state is not None and link.failure is None:
            link.submit(CallJob(self.base_state))

    def _serve(self) -> None:
        """Give the backlog to whoever has room."""
        for process in self._processes:
            process.send_waiting()

    # -- the rows -----------------------------------------------------------------------------

    def _do_elsewhere(self, job: Job, error: PlanvecError) -> None:
        """Have a job done that its worker will not do; if it cannot be done twice, fail it."""
        if job.is_pure:
            self._backlog.appendleft(job)
        else:
            job.fail(error)

    def _judge(self, link: Link, job: Job, death: Death) -> None:
        """Find out whether the job at work was the cause, and what to do about it."""
        job.num_deaths += 1
        if not isinstance(job, RowJob):
            if death.was_late or not job.is_pure or job.num_deaths > self._max_restarts:
                job.fail(self._error(job, death))
            else:
                self._stats.retries += 1
                self._backlog.appendleft(job)
        elif job.is_written_off:
            self._try_whole(job, death)
        elif death.was_late and not job.mask_errors:
            job.fail_batch(self._error(job, death))
        elif job.num_rows == 1:
            self._try_alone(link, job, death)
        elif 0 <= death.row < job.num_rows:
            for part in reversed(job.split(death.row, death.row + 1)):
                if part.first_row == job.first_row + death.row:
                    part.num_deaths = 0 if death.was_late else job.num_deaths
                    self._try_alone(link, part, death._replace(row=0))
                else:
                    self._backlog.appendleft(part)
        else:
            self._try_whole(job, death)

    def _try_alone(self, link: Link, job: RowJob, death: Death) -> None:
        """One row, which a worker has died over: try it again, or find it guilty."""
        if job.num_deaths <= (0 if death.was_late else self._max_restarts):
            self._stats.retries += 1
            if job.num_deaths < 2:
                self._backlog.appendleft(job)
            else:  # it may kill whoever does it: no other worker shall
                link.submit(job)
            return
        error = self._error(job, death)
        if job.mask_errors:
            _log.warning("%s; the row is flagged", error)
            job.write_off(error)
            self._backlog.appendleft(job)
        else:
            job.fail(error)

    def _try_whole(self, job: RowJob, death: Death) -> None:
        """Rows, of which nobody knows which one it was: try again, then halve until it is known."""
        if job.num_deaths > self._max_restarts and job.is_written_off:
            job.fail_batch(self._error(job, death))  # not even that can be done about it
            return
        self._stats.retries += 1
        if job.num_deaths <= self._max_restarts:
            self._backlog.appendleft(job)
            return
        for half in reversed(job.split(job.num_rows // 2)):
            half.num_deaths = self._max_restarts
            self._backlog.appendleft(half)

    def _error(self, job: Job, death: Death) -> PlanvecError:
        make = WorkerTimeoutError if death.was_late else WorkerCrashedError
        what, row, action = death.what, None, None
        if isinstance(job, RowJob) and 0 <= death.row < job.num_rows:
            assert self.action_space is not None
            row = job.first_row + death.row
            action = job.action(death.row, death.step, self.action_space)
        elif job.num_rows == 1:
            row = job.first_row
        if job.num_deaths > 1:
            what += f"; {job.num_deaths} workers died over it, one after another"
        elif make is WorkerCrashedError and not self._max_restarts:
            what += "; max_restarts=n tries again, in case it was not the row's fault"
        return make(what, row=row, action=action)
