"""Defines the argument and the result of every start method: a worker to start, and a started process."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Protocol

from planvec.backends.processes.wire.spec import WorkerSpec


class StartLostError(OSError):
    """Raised when the process that forks workers ends before it answers. Retry with new sockets."""


@dataclass(frozen=True, slots=True)
class NewWorker:
    """Holds the arguments of a worker to start; see `child.main.main`."""

    spec: WorkerSpec  # what it is started with
    channel: socket.socket  # the worker's end of the channel
    lifeline: socket.socket  # the worker's end of the lifeline
    memory: int  # file descriptor of the slab
    # File descriptor of the parent's end of the lifeline. It becomes readable when the worker and all
    # processes that inherited the other end have ended.
    sentinel: int


class Process(Protocol):
    """Represents a started process."""

    pid: int  # the process id
    handle: int  # file descriptor that becomes readable when the process ends; open until `close`

    def exit_code(self, seconds: float) -> int | None:
        """Wait for the process, and return its exit code."""
        # `seconds`: Seconds to wait.
        # Returns the exit code, or -N for signal N, as `subprocess.Popen.returncode`. None if the process has
        # not ended, or if its exit code is unknown.

    def forget(self) -> None:
        """Free the inherited resources in a fork of the parent. The process keeps running."""

    def close(self) -> None:
        """Free the resources of the process, which has ended."""
