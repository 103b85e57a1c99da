"""Maps the name of each start method to the function that starts a worker."""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Callable
from functools import partial

from planvec.backends.processes.starting.by_multiprocessing import start_by_multiprocessing
from planvec.backends.processes.starting.interpreter import spawn
from planvec.backends.processes.starting.process import NewWorker, Process
from planvec.backends.processes.starting.template import fork_by_template


def _start_methods() -> dict[str, Callable[[NewWorker], Process]]:
    methods: dict[str, Callable[[NewWorker], Process]] = {}
    if hasattr(os, "fork") and hasattr(socket, "send_fds"):
        methods["template"] = fork_by_template
    methods["spawn"] = spawn
    for name in ("forkserver", "fork"):
        if name in multiprocessing.get_all_start_methods():
            methods[name] = partial(start_by_multiprocessing, name)
    return methods


# name -> function that starts a worker, for the start methods that this system supports
START_METHODS = _start_methods()

# the first of them: "template", or "spawn" on a system that cannot fork processes
DEFAULT_START_METHOD = next(iter(START_METHODS))
