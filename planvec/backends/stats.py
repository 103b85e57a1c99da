"""Counts of what a backend has done, and of what went wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

__all__ = ["ExitReason", "Stats"]


class ExitReason(Enum):
    """Why a worker is gone."""

    CRASH = "crash"
    TIMEOUT = "timeout"
    STOPPED = "stopped"
    OUTGROWN = "outgrown"


@dataclass(slots=True)
class Stats:
    """Counts since the environment was opened.

    Attributes:
        num_rows: Rows that were asked for in steps and rollouts.
        num_chunks: Requests that these rows were sent in.
        retries: Requests sent again after a worker was lost.
        masked_rows: Rows that came back flagged, with `on_error="mask"`.
        exits: Workers replaced, by the reason.
    """

    num_rows: int = 0
    num_chunks: int = 0
    retries: int = 0
    masked_rows: int = 0
    exits: dict[ExitReason, int] = field(default_factory=lambda: dict.fromkeys(ExitReason, 0))

    @property
    def restarts(self) -> int:
        """Workers replaced, for whatever reason."""
        return sum(self.exits.values())

    @property
    def crashes(self) -> int:
        """Workers that died: by a signal, or by an exit."""
        return self.exits[ExitReason.CRASH]

    @property
    def timeouts(self) -> int:
        """Workers killed because a chunk took longer than `timeout`."""
        return self.exits[ExitReason.TIMEOUT]

    @property
    def stopped(self) -> int:
        """Workers killed because somebody had stopped them (SIGSTOP), or because a signal handler of the
        caller's had interrupted a message to them, or a call that they worked for."""
        return self.exits[ExitReason.STOPPED]

    @property
    def outgrown(self) -> int:
        """Workers replaced because they took more memory than `max_worker_rss`."""
        return self.exits[ExitReason.OUTGROWN]
