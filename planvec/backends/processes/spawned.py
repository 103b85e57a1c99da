"""Runs a worker in a fresh interpreter."""

from __future__ import annotations

import os
import socket
import traceback

from planvec.backends.processes.child import main
from planvec.backends.processes.slab import WorkerSpec


def run(spec: int, channel: int, lifeline: int, slab: int) -> None:
    """Run a worker, and end the process."""
    try:
        for fd in (channel, lifeline, slab):
            os.set_inheritable(fd, False)
        main(WorkerSpec.read(spec), socket.socket(fileno=channel), socket.socket(fileno=lifeline), slab)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)
