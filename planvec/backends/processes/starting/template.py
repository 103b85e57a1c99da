"""Starts template processes, which fork workers. `template_process` is their side.

    user's process --(a fresh interpreter)--> template --(fork)--> worker, worker, ...

The user's process is never forked, since threads, BLAS and numba do not survive a fork. A template is started
with the first worker and runs until the user's process ends. If it is killed, the next worker is forked by a
new template. The existing workers continue, but their exit codes will be unknown.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import subprocess
import threading
import time
import weakref

from planvec.backends.processes.os import procfs
from planvec.backends.processes.starting import template_process
from planvec.backends.processes.starting.interpreter import start_interpreter
from planvec.backends.processes.starting.messages import (
    STREAMS,
    pack_request,
    receive_number,
    send_with_fds,
)
from planvec.backends.processes.starting.process import NewWorker, StartLostError
from planvec.backends.processes.wire.spec import WorkerSpec

_ANSWER_SECONDS = 60.0  # longest time for a template to import its modules and to fork a worker
# interval at which the template is checked meanwhile: a signal may have stopped it
_STATE_CHECK_SECONDS = 1.0
_END_SECONDS = 1.0
# prefixes of the environment variables that are read when an interpreter starts or numpy is imported
_READ_AT_IMPORT = ("BLIS_", "KMP_", "LD_", "MKL_", "NPY_", "OMP_", "OPENBLAS_", "PYTHON", "VECLIB_")


class ForkedWorker:
    """Represents a process that a template has forked. Implements `Process`."""

    def __init__(
        self, pid: int, handle: int, report: socket.socket, template: subprocess.Popen[bytes]
    ) -> None:
        self.pid = pid
        self.handle = handle
        self._report = report
        self._template = template
        self._exit_code: int | None = None

    def exit_code(self, seconds: float) -> int | None:
        """Wait for the exit code and return it. See `Process.exit_code`."""
        if self._exit_code is None and _is_readable(self._report, seconds):
            self._exit_code, _ = receive_number(self._report)
            if self._exit_code is None:
                self._template.poll()  # the template has ended: reap it
        return self._exit_code

    def forget(self) -> None:
        """Close the report in a fork of the parent. The process keeps running."""
        self._report.close()

    def close(self) -> None:
        """Close the report and the handle."""
        self._report.close()
        os.close(self.handle)


class _Template:
    """Starts a template process, and sends requests to it."""

    def __init__(self, spec: WorkerSpec) -> None:
        with contextlib.ExitStack() as undo:
            self._requests, requests = socket.socketpair()
            undo.callback(self._requests.close)
            with requests:
                self._lifeline, lifeline = socket.socketpair()
                undo.callback(self._lifeline.close)
                with lifeline:
                    fds = requests.fileno(), lifeline.fileno()
                    self._process = start_interpreter(spec, template_process.__name__, fds, *spec.preload)
            undo.pop_all()
        arguments = (self._process, self._requests, self._lifeline, os.getpid())
        self._end = weakref.finalize(self, _end, *arguments)

    def is_alive(self) -> bool:
        """Return whether the template runs. If it has ended, reap it."""
        return self._process.poll() is None

    def forget(self) -> None:
        """Free the inherited resources in a fork of the parent. The template keeps running."""
        self._end.detach()
        self._requests.close()
        self._lifeline.close()
        self._process.returncode = 0  # otherwise `Popen` would wait for it

    def fork(self, worker: NewWorker, spec: int) -> ForkedWorker:
        """Fork a worker."""
        report, theirs = socket.socketpair()
        streams = tuple(filter(_is_open, STREAMS))
        with contextlib.ExitStack() as undo:
            undo.callback(report.close)
            with theirs:
                ends = (worker.channel.fileno(), worker.lifeline.fileno(), worker.memory)
                fds = (theirs.fileno(), spec, *ends, *streams)
                try:
                    send_with_fds(self._requests, pack_request(len(fds), streams), fds)
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
        """Wait until the template answers. Kill it if it is stopped or exceeds the time limit."""
        deadline = time.monotonic() + _ANSWER_SECONDS
        while not _is_readable(report, _STATE_CHECK_SECONDS):
            if procfs.state(self._process.pid) == "T":
                self._process.kill()
            if not self.is_alive():  # without this check: a fork of this process may keep the report open
                raise self._start_error()
            if time.monotonic() > deadline:
                self._process.kill()
                raise OSError(
                    errno.ETIMEDOUT, f"the template process did not answer in {_ANSWER_SECONDS:g} s"
                )

    def _start_error(self) -> OSError:
        """Return the error for a template that does not answer."""
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return OSError(errno.EMFILE, "the template process cannot open another file")
        if code > 0:
            return OSError(errno.ECHILD, f"the template process has exited with code {code}")
        return StartLostError(errno.ECHILD, "the template process was killed")


def _end(
    process: subprocess.Popen[bytes], requests: socket.socket, lifeline: socket.socket, owner: int
) -> None:
    """End a template. In a fork of the parent, do nothing."""
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
# environment variables that were read when the template was started, and its modules -> the template
_templates: dict[tuple[frozenset[tuple[str, str]], tuple[str, ...]], _Template] = {}


def _template_of(spec: WorkerSpec) -> _Template:
    """Return a running template with the same modules and the same environment variables for its imports."""
    environ = spec.environ.items()
    variables = frozenset((name, value) for name, value in environ if name.startswith(_READ_AT_IMPORT))
    key = variables, spec.preload
    with _lock:
        template = _templates.get(key)
        if template is None or not template.is_alive():
            template = _templates[key] = _Template(spec)
        return template


def fork_by_template(worker: NewWorker) -> ForkedWorker:
    """Start a worker by a fork of a template process. Start a template first if none runs."""
    # The worker inherits resource limits, umask and CPU affinity from the template, as they were in this
    # process when the template was started.
    template = _template_of(worker.spec)
    memory = worker.spec.write()
    try:
        return template.fork(worker, memory)
    finally:
        os.close(memory)


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def forget_templates() -> None:
    """Drop all templates in a forked child, which starts templates of its own."""
    global _lock
    _lock = threading.Lock()
    for template in _templates.values():
        template.forget()
    _templates.clear()
