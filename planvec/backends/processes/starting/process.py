"""Types that every start method takes and returns: a worker to start, and a process that was started."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Protocol

__all__ = ["NewWorker", "Process", "StartLostError"]


class StartLostError(OSError):
    """The process that was to fork a worker was lost before it answered: try again, with new sockets."""


@dataclass(frozen=True, slots=True)
class NewWorker:
    """Holds what a worker needs to start; see `child.main.main`.

    Attributes:
        name: For process listings.
        factory: The cloudpickled factory of the hosted object.
        channel: The worker's end of the channel.
        lifeline: The worker's end of the lifeline.
        memory: File descriptor of the slab.
        sentinel: File descriptor of the parent's end of the lifeline, which becomes readable when the
            worker ends, and all that has inherited its end.
    """

    name: str
    factory: bytes
    channel: socket.socket
    lifeline: socket.socket
    memory: int
    sentinel: int


class Process(Protocol):
    """A process that was started.

    Attributes:
        pid: Its process id.
        handle: File descriptor that becomes readable when it ends; open until `close`.
    """

    pid: int
    handle: int

    def exit_code(self, seconds: float) -> int | None:
        """Wait for the process, and return its exit code.

        Args:
            seconds: How long to wait.

        Returns:
            As `subprocess.Popen.returncode`: -N for signal N. None where it has not ended, or where nobody
            can tell any more.
        """

    def forget(self) -> None:
        """Free what a forked copy of the parent has inherited; the process is not its child."""

    def close(self) -> None:
        """Free what belongs to the process, which has ended."""
