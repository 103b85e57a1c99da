"""Starts fresh Python interpreters: the template process, and the workers of the start method "spawn"."""

from __future__ import annotations

import contextlib
import multiprocessing.spawn
import os
import subprocess
from multiprocessing import util
from typing import Any

from planvec.backends.processes.starting import spawned
from planvec.backends.processes.starting.process import NewWorker
from planvec.backends.processes.wire.spec import WorkerSpec

_COMMAND = "import sys; sys.path[:] = {path!r}; from {module} import run as _run; _run{arguments!r}"


def start_interpreter(
    spec: WorkerSpec, module: str, fds: tuple[int, ...], *names: str
) -> subprocess.Popen[bytes]:
    """Start a fresh interpreter in a process group of its own, since the parent handles Ctrl-C."""
    flags: Any = util
    code = _COMMAND.format(path=spec.path, module=module, arguments=(*fds, *names))
    return subprocess.Popen(
        [multiprocessing.spawn.get_executable(), *flags._args_from_interpreter_flags(), "-c", code],
        stdin=subprocess.DEVNULL,
        env=spec.interpreter_environ(),
        pass_fds=fds,
        process_group=0,
    )


class SpawnedWorker:
    """Represents a worker in a fresh interpreter. Implements `Process`."""

    def __init__(self, process: subprocess.Popen[bytes], sentinel: int) -> None:
        self._process = process
        self.pid = process.pid
        self.handle = os.pidfd_open(self.pid) if hasattr(os, "pidfd_open") else os.dup(sentinel)

    def exit_code(self, seconds: float) -> int | None:
        """Wait for the exit code and return it. See `Process.exit_code`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    def forget(self) -> None:
        """Let `Popen` not wait for the process in a fork of the parent."""
        self._process.returncode = 0

    def close(self) -> None:
        """Close the handle. A process that waits for a device has not ended: `Popen` reaps it later."""
        self._process.poll()
        os.close(self.handle)


def spawn(worker: NewWorker) -> SpawnedWorker:
    """Start a worker in a fresh interpreter."""
    memory = worker.spec.write()
    try:
        fds = (memory, worker.channel.fileno(), worker.lifeline.fileno(), worker.memory)
        process = start_interpreter(worker.spec, spawned.__name__, fds)
    finally:
        os.close(memory)
    return SpawnedWorker(process, worker.sentinel)
