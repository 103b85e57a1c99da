"""Ends a child process: waits for it, kills it and what it has started, and frees what belonged to it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket

from planvec.backends.processes.os import procfs
from planvec.backends.processes.starting.process import Process
from planvec.backends.processes.wire.channel import Channel

__all__ = ["GRACE_SECONDS", "end", "has_ended", "kill"]

GRACE_SECONDS = 1.0
"""How long a child may take to end by itself."""


def has_ended(handle: int, seconds: float) -> bool:
    """Wait for a process, and return whether it has ended.

    Args:
        handle: See `Process`. multiprocessing's own `join` would believe a dead fork server.
        seconds: How long to wait.
    """
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def kill(process: Process) -> None:
    """Kill a process and all below it, those in groups of their own, too."""
    if has_ended(process.handle, 0.0):
        return
    for pid in [*procfs.descendants(process.pid), process.pid]:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _kill_group(process: Process) -> None:
    """Kill what is left of the group that a process led which has ended.

    Its number cannot have gone to another process while it was not waited for, or while members of its
    group are left. If neither holds, a process of that number is a stranger.
    """
    try:
        signal.pidfd_send_signal(process.handle, 0)
    except (OSError, AttributeError):  # it was waited for
        if procfs.exists(process.pid):
            return
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)


def end(process: Process, channel: Channel, lifeline: socket.socket, memory: int, owner: int) -> None:
    """End a process and free all that belonged to it.

    Args:
        process: To end; it has `GRACE_SECONDS` to do so by itself once its channel is closed.
        channel: To it.
        lifeline: The parent's end; see `die_with_parent`.
        memory: File descriptor of its slab.
        owner: The process id of the parent. In a forked copy of the parent, nothing is done.
    """
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
