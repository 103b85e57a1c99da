"""Defines the counts of a backend: rows, chunks, retries and worker exits."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class ExitReason(Enum):
    """Names the reason for the exit of a worker."""

    CRASH = "crash"
    TIMEOUT = "timeout"
    STOPPED = "stopped"
    OUTGROWN = "outgrown"


@dataclass(slots=True)
class Stats:
    """Counts rows, chunks, retries and worker exits since the environment was opened.

    Attributes:
        num_rows: Rows of all steps and rollouts.
        num_chunks: Chunks in which these rows were submitted to workers.
        retries: Chunks that were retried after the exit of a worker.
        masked_rows: Rows that were flagged as failed, with `on_error="mask"`.
        audited_rows: Rows that were stepped a second time and compared; they count in no other number.
        exits: Reason -> number of workers that were replaced for it.
    """

    num_rows: int = 0
    num_chunks: int = 0
    retries: int = 0
    masked_rows: int = 0
    audited_rows: int = 0
    exits: dict[ExitReason, int] = field(default_factory=lambda: dict.fromkeys(ExitReason, 0))

    @property
    def restarts(self) -> int:
        """Workers that were replaced, for any reason."""
        return sum(self.exits.values())

    @property
    def crashes(self) -> int:
        """Workers that crashed, by a signal or an exit."""
        return self.exits[ExitReason.CRASH]

    @property
    def timeouts(self) -> int:
        """Workers that were killed because a chunk took longer than `timeout`."""
        return self.exits[ExitReason.TIMEOUT]

    @property
    def stopped(self) -> int:
        """Workers that were killed because a signal had stopped them (SIGSTOP), or because a signal handler
        of the caller interrupted a message to them or the call that they worked on."""
        return self.exits[ExitReason.STOPPED]

    @property
    def outgrown(self) -> int:
        """Workers that were replaced because they used more memory than `max_worker_rss`."""
        return self.exits[ExitReason.OUTGROWN]
