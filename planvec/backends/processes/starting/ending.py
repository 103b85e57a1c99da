"""Ends a child process: waits for it, kills it and its child processes, and frees its resources."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket

from planvec.backends.processes.os import procfs
from planvec.backends.processes.starting.process import Process
from planvec.backends.processes.wire.channel import Channel

GRACE_SECONDS = 1.0  # longest time for a child process to end by itself


def has_ended(handle: int, seconds: float) -> bool:
    """Wait for a process, and return whether it has ended."""
    # `seconds`: Seconds to wait.
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def kill(process: Process) -> None:
    """Kill a process and all processes below it, also those in other process groups."""
    if has_ended(process.handle, 0.0):
        return
    for pid in [*procfs.descendants(process.pid), process.pid]:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _kill_group(process: Process) -> None:
    """Kill the remaining members of the process group of a process that has ended."""
    # Another process can have the same process id only if the process was reaped and no member of its group
    # is left. In this case nothing is killed.
    try:
        signal.pidfd_send_signal(process.handle, 0)
    except (OSError, AttributeError):  # it was reaped
        if procfs.exists(process.pid):
            return
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)


def end(process: Process, channel: Channel, lifeline: socket.socket, memory: int, owner: int) -> None:
    """End a process and free its resources."""
    if os.getpid() != owner:
        return
    channel.close()
    if not has_ended(process.handle, GRACE_SECONDS):
        kill(process)
        has_ended(process.handle, GRACE_SECONDS)
    _kill_group(process)
    process.exit_code(GRACE_SECONDS)
    process.close()
    lifeline.close()
    os.close(memory)
