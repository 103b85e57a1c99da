"""Has the kernel kill a process, and all that it has started, when its parent dies."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket

__all__ = ["die_with_parent"]


def die_with_parent(lifeline: socket.socket) -> None:
    """Have this process, and all that it starts, killed when the parent dies.

    The kernel does it: it sends a signal to the whole process group when the other end of the lifeline
    closes, as it does however the parent dies. No thread and no signal handler would run while the
    environment hangs in C with Python's lock held. PR_SET_PDEATHSIG would not do: it fires when the *thread*
    ends that has started the process.

    Args:
        lifeline: This process's end of a socket pair on which nothing is ever sent. It must stay open.
    """
    os.setpgid(0, 0)
    fd = lifeline.fileno()
    fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpgrp())
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([fd], [], [], 0)[0]:  # it died before
        os.killpg(0, signal.SIGKILL)
