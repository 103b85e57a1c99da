"""How a process came to its end, and who decides what becomes of that."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from planvec.backends.processes.jobs import Job
from planvec.errors import PlanvecError, WorkerCrashedError, WorkerStartError

if TYPE_CHECKING:
    from planvec.backends.processes.link import Link

__all__ = ["Death", "Supervisor"]


class Death(NamedTuple):
    """How a process came to its end.

    Attributes:
        kind: The field of `Stats` that counts it: "crashes", "timeouts", "stopped", "outgrown".
        what: Which process, how it ended, and over what, for messages.
        job: What was at work and may have been the cause, or None.
        row: The row of that job that it had come to, or -1 where that is not known.
        step: The step of that row's rollout.
        was_starting: Whether it was not ready yet.
        was_killed: Whether somebody else ended it (SIGKILL, SIGTERM), and not it itself.
    """

    kind: str
    what: str
    job: Job | None = None
    row: int = -1
    step: int = 0
    was_starting: bool = False
    was_killed: bool = False

    @property
    def was_late(self) -> bool:
        """Whether its time was up: a pure row would take as long again."""
        return self.kind == "timeouts"


class Supervisor:
    """Decides what becomes of a process that is gone, and of its jobs. This one gives all up."""

    num_idle_deaths: float = 0
    """Deaths over nothing since any job was last finished."""
    num_failed_starts: float = 0
    """Deaths before it was ready since any process last became ready."""

    def died(self, link: Link, death: Death, jobs: list[Job]) -> None:
        """A process is gone.

        Args:
            link: To it.
            death: How that came.
            jobs: All that it was to do and has not done.
        """
        make = WorkerStartError if death.was_starting else WorkerCrashedError
        self.cannot_start(link, make(death.what), jobs)

    def cannot_start(self, link: Link, error: PlanvecError, jobs: list[Job]) -> None:
        """A process cannot make its object. Args: as `died`; error: Why."""
        link.failure = error
        for job in jobs:
            job.fail(error)
