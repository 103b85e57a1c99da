"""Runs a worker process, under every start method."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from typing import Any

from planvec.backends.processes.child.host import open_host
from planvec.backends.processes.os.lifeline import die_with_parent
from planvec.backends.processes.os.signals import HANDLED
from planvec.backends.processes.wire.channel import Channel, ChannelError

__all__ = ["main"]


def main(
    sock: socket.socket, lifeline: socket.socket, memory: Any, factory: bytes, environ: dict[str, str]
) -> None:
    """Run a worker, and end the process.

    Args:
        sock: The worker's end of the pair.
        lifeline: The worker's end of another pair; see `die_with_parent`.
        memory: Holds the file descriptor of the slab (`.detach()`).
        factory: The cloudpickled factory of the hosted object.
        environ: The parent's environment variables: a process that forks workers has those that it was
            started with.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    for number in HANDLED:
        if callable(signal.getsignal(number)):  # a forked process has the parent's handlers
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
    die_with_parent(lifeline)
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
        pass  # the parent is gone: nobody is left to tell
    finally:
        with contextlib.suppress(BaseException):
            if hosted is not None:
                hosted.close()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        # Not sys.exit: threads that the environment left behind must not keep the process alive.
        os._exit(0)
