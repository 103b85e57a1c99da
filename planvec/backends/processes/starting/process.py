"""Defines the argument and the result of every start method: a worker to start, and a started process."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Protocol

from planvec.backends.processes.wire.spec import WorkerSpec

__all__ = ["NewWorker", "Process", "StartLostError"]


class StartLostError(OSError):
    """Raised when the process that forks workers ends before it answers. Retry with new sockets."""


@dataclass(frozen=True, slots=True)
class NewWorker:
    """Holds the arguments of a worker to start; see `child.main.main`.

    Attributes:
        spec: What it is started with.
        channel: The worker's end of the channel.
        lifeline: The worker's end of the lifeline.
        memory: File descriptor of the slab.
        sentinel: File descriptor of the parent's end of the lifeline. It becomes readable when the worker and
            all processes that inherited the other end have ended.
    """

    spec: WorkerSpec
    channel: socket.socket
    lifeline: socket.socket
    memory: int
    sentinel: int


class Process(Protocol):
    """Represents a started process.

    Attributes:
        pid: The process id.
        handle: File descriptor that becomes readable when the process ends; open until `close`.
    """

    pid: int
    handle: int

    def exit_code(self, seconds: float) -> int | None:
        """Wait for the process, and return its exit code.

        Args:
            seconds: Seconds to wait.

        Returns:
            The exit code, or -N for signal N, as `subprocess.Popen.returncode`. None if the process has not
            ended, or if its exit code is unknown.
        """

    def forget(self) -> None:
        """Free the inherited resources in a fork of the parent. The process keeps running."""

    def close(self) -> None:
        """Free the resources of the process, which has ended."""
