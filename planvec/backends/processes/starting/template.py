"""Starts template processes, and has them fork workers; see `template_process` for their side.

    user's process --(a fresh interpreter)--> template --(fork)--> worker, worker, ...

The user's process is never forked: threads, BLAS and numba do not survive that. A template runs from the
first worker on until the user's process ends. If somebody kills it, the next worker is forked by another one;
the workers that it had forked go on, but nobody is left to tell their exit codes.
"""

from __future__ import annotations

import contextlib
import errno
import multiprocessing.spawn
import os
import select
import socket
import subprocess
import threading
import time
import weakref
from multiprocessing import util
from typing import Any

from planvec.backends.processes.os import procfs
from planvec.backends.processes.starting import template_process
from planvec.backends.processes.starting.hidden_main import hidden_main
from planvec.backends.processes.starting.messages import WorkerSpec, receive_number, send_with_fds
from planvec.backends.processes.starting.process import NewWorker, StartLostError

__all__ = ["ForkedWorker", "forget_templates", "fork_by_template"]

_ANSWER_SECONDS = 60.0
"""How long a template may take to import what it needs, and to fork."""
_STATE_CHECK_SECONDS = 1.0
"""How often it is asked meanwhile whether somebody has stopped it."""
_END_SECONDS = 1.0
_READ_AT_IMPORT = ("BLIS_", "KMP_", "LD_", "MKL_", "NPY_", "OMP_", "OPENBLAS_", "PYTHON", "VECLIB_")
"""How the environment variables begin that count when an interpreter starts or numpy is imported."""
_COMMAND = "import sys; sys.path[:] = {path!r}; from {module} import run as _run; _run{fds!r}"


class ForkedWorker:
    """A process that a template has forked; see `Process`.

    Args:
        pid: Its process id.
        handle: Becomes readable when it ends.
        report: Over which the template tells its exit code.
        template: The process that has forked it.
    """

    def __init__(
        self, pid: int, handle: int, report: socket.socket, template: subprocess.Popen[bytes]
    ) -> None:
        self.pid = pid
        self.handle = handle
        self._report = report
        self._template = template
        self._exit_code: int | None = None

    def exit_code(self, seconds: float) -> int | None:
        """Wait for the exit code; see `Process`."""
        if self._exit_code is None and _is_readable(self._report, seconds):
            self._exit_code, _ = receive_number(self._report)
            if self._exit_code is None:
                self._template.poll()  # it has ended: leave no zombie
        return self._exit_code

    def forget(self) -> None:
        """Close a forked copy's end of the report."""
        self._report.close()

    def close(self) -> None:
        """Close the report and the handle."""
        self._report.close()
        os.close(self.handle)


class _Template:
    """A template process.

    Args:
        path: `sys.path` for its imports.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(self, path: list[str]) -> None:
        with contextlib.ExitStack() as undo:
            self._requests, requests = socket.socketpair()
            undo.callback(self._requests.close)
            with requests:
                self._lifeline, lifeline = socket.socketpair()
                undo.callback(self._lifeline.close)
                with lifeline:
                    self._process = _start_interpreter(path, requests.fileno(), lifeline.fileno())
            undo.pop_all()
        arguments = (self._process, self._requests, self._lifeline, os.getpid())
        self._end = weakref.finalize(self, _end, *arguments)

    def is_alive(self) -> bool:
        """Return whether it still runs; if not, leave no zombie."""
        return self._process.poll() is None

    def forget(self) -> None:
        """Drop it in a forked copy of the parent, whose child it is not."""
        self._end.detach()
        self._requests.close()
        self._lifeline.close()
        self._process.returncode = 0  # or it would be waited for

    def fork(self, worker: NewWorker, spec: int, streams: tuple[int, ...]) -> ForkedWorker:
        """Fork a worker.

        Args:
            worker: To start.
            spec: File descriptor of its `WorkerSpec`.
            streams: The standard streams that the spec names.

        Raises:
            StartLostError: The template was killed or stopped before it answered.
            OSError: There is no process or no file left to be had.
        """
        report, theirs = socket.socketpair()
        with contextlib.ExitStack() as undo:
            undo.callback(report.close)
            with theirs:
                ends = (worker.channel.fileno(), worker.lifeline.fileno(), worker.memory)
                fds = (theirs.fileno(), spec, *ends, *streams)
                try:
                    send_with_fds(self._requests, bytes([len(fds)]), fds)
                except ConnectionError:
                    raise self._start_error() from None
            self._wait_for(report)
            pid, handles = receive_number(report)
            if pid is None:
                raise self._start_error()
            if pid < 0:
                raise OSError(-pid, os.strerror(-pid))
            handle = handles[0] if handles else os.dup(worker.sentinel)
            undo.pop_all()
        return ForkedWorker(pid, handle, report, self._process)

    def _wait_for(self, report: socket.socket) -> None:
        """Wait until it answers; kill it if it does not."""
        deadline = time.monotonic() + _ANSWER_SECONDS
        while not _is_readable(report, _STATE_CHECK_SECONDS):
            if procfs.state(self._process.pid) == "T":
                self._process.kill()
            if not self.is_alive():  # a fork of this process may hold the other end of the report open
                raise self._start_error()
            if time.monotonic() > deadline:
                self._process.kill()
                raise OSError(
                    errno.ETIMEDOUT, f"the template process did not answer in {_ANSWER_SECONDS:g} s"
                )

    def _start_error(self) -> OSError:
        """Return the error that says why it does not answer."""
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return OSError(errno.EMFILE, "the template process has no file left")
        if code > 0:
            return OSError(errno.ECHILD, f"the template process has exited with code {code}")
        return StartLostError(errno.ECHILD, "the template process was killed")


def _start_interpreter(path: list[str], requests: int, lifeline: int) -> subprocess.Popen[bytes]:
    """Start a fresh interpreter that runs `template_process.run`, in a process group of its own."""
    flags: Any = util
    module = template_process.__name__
    code = _COMMAND.format(path=path, module=module, fds=(requests, lifeline))
    return subprocess.Popen(
        [multiprocessing.spawn.get_executable(), *flags._args_from_interpreter_flags(), "-c", code],
        stdin=subprocess.DEVNULL,
        pass_fds=(requests, lifeline),
        process_group=0,  # Ctrl-C at the terminal is the parent's business
    )


def _end(
    process: subprocess.Popen[bytes], requests: socket.socket, lifeline: socket.socket, owner: int
) -> None:
    """End a template; in a forked copy of the parent, do nothing."""
    if os.getpid() != owner:
        return
    requests.close()
    process.kill()  # it has nothing to finish
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_END_SECONDS)
    lifeline.close()


def _is_readable(sock: socket.socket, seconds: float) -> bool:
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


_lock = threading.Lock()
_templates: dict[frozenset[tuple[str, str]], _Template] = {}
"""By the environment variables that counted when it was started."""


def _template_of(environ: dict[str, str], path: list[str]) -> _Template:
    """Return a template that runs, and that was started with the same variables for its imports."""
    key = frozenset((name, value) for name, value in environ.items() if name.startswith(_READ_AT_IMPORT))
    with _lock:
        template = _templates.get(key)
        if template is None or not template.is_alive():
            template = _templates[key] = _Template(path)
        return template


def fork_by_template(worker: NewWorker) -> ForkedWorker:
    """Have a template process fork a worker; start one first, if none runs.

    What a process inherits otherwise (limits, umask, CPU affinity) the worker has from the template, and so
    from the time when that was started.

    Raises:
        StartLostError: The template was killed or stopped before it answered.
        OSError: There is no process, no memory or no file left to be had.
    """
    with hidden_main():
        preparation = multiprocessing.spawn.get_preparation_data(worker.name)
    # Its class refuses to be pickled, lest it be stored; this goes into memory of the worker's.
    preparation["authkey"] = bytes(preparation["authkey"])
    environ = dict(os.environ)
    streams = tuple(filter(_is_open, (1, 2)))
    template = _template_of(environ, preparation["sys_path"])
    spec = WorkerSpec(worker.factory, environ, preparation, streams).write()
    try:
        return template.fork(worker, spec, streams)
    finally:
        os.close(spec)


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def forget_templates() -> None:
    """Drop all templates in a forked child, which starts its own."""
    global _lock
    _lock = threading.Lock()
    for template in _templates.values():
        template.forget()
    _templates.clear()
