"""Makes the kernel kill a process and its process group when its parent ends."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket


def die_with_parent(lifeline: socket.socket) -> None:
    """Make the kernel kill this process and its process group, a new one, when the parent ends."""
    # The kernel sends SIGKILL to the process group when the other end of the lifeline closes, which happens
    # however the parent ends. A thread or a signal handler would not run while the environment hangs in C and
    # holds the interpreter lock. PR_SET_PDEATHSIG is not suitable: it acts when the *thread* that started the
    # process ends.
    os.setpgid(0, 0)
    fd = lifeline.fileno()
    fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpgrp())
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([fd], [], [], 0)[0]:  # the parent has already ended
        os.killpg(0, signal.SIGKILL)
