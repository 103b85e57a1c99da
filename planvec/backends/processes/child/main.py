"""Runs a worker process of any start method."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys

from planvec.backends.processes.child.host import open_host
from planvec.backends.processes.os.lifeline import die_with_parent
from planvec.backends.processes.wire.channel import Channel, ChannelError
from planvec.backends.processes.wire.spec import WorkerSpec
from planvec.backends.signals import HANDLED


def main(spec: WorkerSpec, sock: socket.socket, lifeline: socket.socket, memory: int) -> None:
    """Run a worker, and end the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    for number in HANDLED:
        if callable(signal.getsignal(number)):  # a forked process inherits the parent's handlers
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
    die_with_parent(lifeline)
    spec.apply()
    channel = Channel(sock)
    hosted = None
    try:
        hosted = open_host(channel, memory, spec.factory)
        if hosted is not None:
            hosted.serve()
    except ChannelError:
        pass  # the parent has closed the channel or has ended
    finally:
        # The parent has gone or has closed the channel: nobody is left to tell of an error, and the process
        # must end in any case.
        with contextlib.suppress(BaseException):
            if hosted is not None:
                hosted.close()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        # Not sys.exit, which would wait for threads that the environment has started.
        os._exit(0)
