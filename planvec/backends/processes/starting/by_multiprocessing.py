"""Starts workers with two start methods of `multiprocessing`: forkserver and fork."""

from __future__ import annotations

import contextlib
import errno
import gc
import multiprocessing
import os
import socket
from multiprocessing import forkserver, resource_tracker
from multiprocessing.reduction import DupFd
from typing import Any

from planvec.backends.messages.main_classes import track_main_classes
from planvec.backends.processes.child import main as child_main
from planvec.backends.processes.child.main import main
from planvec.backends.processes.starting.hidden_main import hidden_main
from planvec.backends.processes.starting.process import NewWorker, StartLostError
from planvec.backends.processes.wire.spec import WorkerSpec
from planvec.backends.signals import original_signal_mask
from planvec.errors import WorkerStartError

_SERVER_LOST = 255  # the exit code that multiprocessing reports if the fork server was killed


class _InheritedMemory:
    """Sends a file descriptor to a child process with any start method."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def detach(self) -> int:
        return self._fd

    def __reduce__(self) -> Any:
        return _identity, (DupFd(self._fd),)


def _identity(handle: Any) -> Any:
    return handle


class MultiprocessingWorker:
    """Wraps a process that multiprocessing has started. Implements `Process`."""

    def __init__(self, process: Any) -> None:
        self._process = process
        self.pid = int(process.pid)
        self.handle = _open_handle(process)

    def exit_code(self, seconds: float) -> int | None:
        """Wait for the exit code and return it. See `Process.exit_code`."""
        self._process.join(seconds)
        code: int | None = self._process.exitcode
        return None if code == _SERVER_LOST else code

    def forget(self) -> None:
        """Do nothing: multiprocessing frees its resources in a fork."""

    def close(self) -> None:
        """Free the resources of the process, which has ended."""
        with contextlib.suppress(ValueError):  # it waits for a device, so that SIGKILL has not ended it
            self._process.close()
        os.close(self.handle)


def _open_handle(process: Any) -> int:
    """Return a file descriptor that becomes readable when the process ends."""
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(ProcessLookupError):  # it has ended, and a fork server has reaped it
            return os.pidfd_open(process.pid)
    return os.dup(process.sentinel)


def _run(spec: WorkerSpec, channel: socket.socket, lifeline: socket.socket, memory: _InheritedMemory) -> None:
    """Run a worker in the new process; see `child.main.main`."""
    gc.freeze()  # a collection would otherwise write to all objects of the parent, and so copy their memory
    main(spec, channel, lifeline, memory.detach())


def start_by_multiprocessing(method: str, worker: NewWorker) -> MultiprocessingWorker:
    """Start a worker."""
    if multiprocessing.current_process().daemon:  # such as a child of `multiprocessing.Pool`
        raise WorkerStartError(
            f"start_method: daemonic processes cannot start others with {method!r}; use "
            'start_method="template" or "spawn"'
        )
    spec = worker.spec
    if method == "forkserver":
        _start_fork_server(spec)
    else:
        track_main_classes()
    context: Any = multiprocessing.get_context(method)
    arguments = (spec, worker.channel, worker.lifeline, _InheritedMemory(worker.memory))
    process = context.Process(target=_run, name=spec.name, args=arguments)
    try:
        with hidden_main():
            process.start()
    except (EOFError, ConnectionError) as error:
        raise StartLostError(errno.ECHILD, "the fork server was killed") from error
    return MultiprocessingWorker(process)


def _start_fork_server(spec: WorkerSpec) -> None:
    """Start the fork server of multiprocessing with the user's signal mask: other code uses it, too."""
    # It imports the modules of a worker once, so that a restart takes 25 ms instead of 190. This has no
    # effect if it already runs, or if the user has set its list of modules.
    with hidden_main(), original_signal_mask(), spec.hash_seed():
        resource_tracker.ensure_running()
        server: Any = getattr(forkserver, "_forkserver", None)
        if getattr(server, "_preload_modules", None) == ["__main__"]:
            multiprocessing.set_forkserver_preload(["__main__", child_main.__name__])
        forkserver.ensure_running()
