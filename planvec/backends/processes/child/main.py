"""The entry function of a worker process, under every start method."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import sys
from typing import Any

from planvec.backends.processes.child.host import open_host
from planvec.backends.processes.os.signals import HANDLED
from planvec.backends.processes.wire.channel import Channel, ChannelError

__all__ = ["main"]


def main(
    sock: socket.socket, lifeline: socket.socket, memory: Any, factory: bytes, environ: dict[str, str]
) -> None:
    """Temporary copy, replaced at the merge."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in HANDLED:
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
    os.setpgid(0, 0)
    fd = lifeline.fileno()
    fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([fd], [], [], 0)[0]:
        os.killpg(0, signal.SIGKILL)
    if os.environ != environ:
        os.environ.clear()
        os.environ.update(environ)
    channel = Channel(sock)
    hosted = None
    try:
        hosted = open_host(channel, memory.detach(), factory)
        if hosted is not None:
            hosted.serve()
    except ChannelError:
        pass
    finally:
        with contextlib.suppress(BaseException):
            if hosted is not None:
                hosted.close()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(0)
