"""Runs the template process: an interpreter that has imported the modules of a worker, and forks workers.

It has one thread, listens on no address, and never unpickles data. Requests arrive over a socket pair from
the process that started it. They are described below; `starting` is the parent's side.
"""

from __future__ import annotations

import array
import contextlib
import errno
import gc
import importlib
import os
import select
import signal
import socket
import struct
import traceback
from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from planvec.backends.processes.child import main
from planvec.backends.processes.slab import WorkerSpec
from planvec.backends.processes.system import die_with_parent
from planvec.backends.signals import HANDLED

# -- Sends messages between a template process and its parent, over socket pairs.
#
#     parent                                      template
#       | -- request + file descriptors -----------> |  "requests", one pair for all workers: fork a worker
#       |                                            |
#       | <- process id (or -errno) + pidfd -------- |  "report", one pair for each worker
#       | <- exit code, once it has ended ---------- |
#
# The `WorkerSpec` lies in memory without a name. The template passes its file descriptor to the worker and
# does not read it, so that it never unpickles data of the user.

NUM_FDS = 7  # file descriptors of a request: report, spec, channel, lifeline, slab, and these two streams
STREAMS = (1, 2)  # file descriptors of the standard streams that a worker receives
_NUMBER = struct.Struct("<q")


def receive_with_fds(sock: socket.socket, size: int) -> tuple[bytes, list[int]]:
    """Receive up to `size` bytes and the file descriptors sent with them, which are not inheritable."""
    # With `socket.recv_fds`, a process that another thread starts meanwhile could inherit them.
    fds = array.array("i")
    flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
    data, ancillary, _, _ = sock.recvmsg(size, socket.CMSG_SPACE(NUM_FDS * fds.itemsize), flags)
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    for fd in fds:
        os.set_inheritable(fd, False)
    return data, list(fds)


def send_number(report: socket.socket, number: int, fds: Sequence[int] = ()) -> None:
    """Send a number and file descriptors. Do nothing if the other side has closed the socket."""
    with contextlib.suppress(OSError):
        socket.send_fds(report, [_NUMBER.pack(number)], list(fds))


def receive_number(report: socket.socket) -> tuple[int | None, list[int]]:
    """Receive a number and its file descriptors. The number is None if the other side has closed."""
    try:
        data, fds = receive_with_fds(report, _NUMBER.size)
    except ConnectionError:
        return None, []
    return (_NUMBER.unpack(data)[0] if data else None), fds


# Modules that workers import for Gymnasium's own environments: no simulators and no modules of the user.
# Listed by name, since this module must not import modules of higher levels; a worker finds them by name,
# too, when it unpickles the factory.
_PRELOADED = (
    "planvec.envs",
    "planvec.vector.worker_rows",
    "planvec.codecs.gymnasium",
    "gymnasium.envs.classic_control",
    "gymnasium.envs.toy_text",
    "gymnasium.wrappers",
)


class _Template:
    """Forks workers on request, and reports their exit codes."""

    def __init__(self, requests: socket.socket, lifeline: socket.socket) -> None:
        self._requests = requests
        self._lifeline = lifeline
        self._reports: dict[int, socket.socket] = {}
        self._wakeup, self._waker = socket.socketpair()
        self._wakeup.setblocking(False)
        self._waker.setblocking(False)
        # Saved before any change: a worker restores them.
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._on_child = signal.getsignal(signal.SIGCHLD)

    def serve(self) -> None:
        """Fork workers until the parent closes the socket."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED | {signal.SIGCHLD})
        poll = select.poll()
        poll.register(self._requests, select.POLLIN)
        poll.register(self._wakeup, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if self._wakeup.fileno() in ready:
                self._reap()
            if self._requests.fileno() in ready:
                data, fds = receive_with_fds(self._requests, 1)
                if not data:
                    return
                if len(fds) == NUM_FDS:
                    self._fork(fds)
                else:  # this process cannot open all of the files; the parent sees that the report is closed
                    _close(fds)

    def _reap(self) -> None:
        """Report the exit code of every worker that has ended."""
        with contextlib.suppress(BlockingIOError):
            while self._wakeup.recv(4096):
                continue
        while self._reports:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            with self._reports.pop(pid) as report:
                send_number(report, os.waitstatus_to_exitcode(status))

    def _fork(self, fds: list[int]) -> None:
        """Fork a worker, and close its file descriptors here: only the worker may keep them open."""
        report = socket.socket(fileno=fds[0])
        try:
            pid = os.fork()
        except OSError as error:
            send_number(report, -(error.errno or errno.EAGAIN))
            report.close()
        else:
            if pid == 0:
                self._become_worker(report, fds[1:])
            # Before the parent may think that it lives: the end of this process kills all of its group.
            with contextlib.suppress(OSError):  # it has ended
                os.setpgid(pid, pid)
            self._reports[pid] = report
            handle = _open_handle(pid)
            send_number(report, pid, handle)
            _close(handle)
        finally:
            _close(fds[1:])

    def _become_worker(self, report: socket.socket, fds: list[int]) -> NoReturn:
        """Run a worker in the fork, after freeing the resources of the template."""
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, self._on_child)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            for sock in (self._requests, self._lifeline, self._wakeup, self._waker, report):
                sock.close()
            for sock in self._reports.values():
                sock.close()
            spec, channel, lifeline, slab, *streams = fds
            for number, fd in zip(STREAMS, streams, strict=True):
                os.dup2(fd, number)
                os.close(fd)
            importlib.invalidate_caches()
            # A seed from the operating system, as in a fresh interpreter. `random` reseeds itself after a
            # fork.
            np.random.seed()  # noqa: NPY002
            ends = socket.socket(fileno=channel), socket.socket(fileno=lifeline)
            main(WorkerSpec.read(spec), *ends, slab)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


def _open_handle(pid: int) -> list[int]:
    """Return a pidfd of a child that is not reaped, or an empty list if the system has none."""
    with contextlib.suppress(AttributeError, OSError):
        return [os.pidfd_open(pid)]
    return []


def run(requests: int, lifeline: int, *preload: str) -> None:
    """Run a template process, and end it."""
    # A module of `preload` that cannot be imported is reported by a worker.
    lifeline_socket = socket.socket(fileno=lifeline)
    die_with_parent(lifeline_socket)
    for name in _PRELOADED:
        importlib.import_module(name)
    for name in preload:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    gc.freeze()  # a collection in a worker would otherwise write to, and so copy, the shared memory pages
    try:
        template = _Template(socket.socket(fileno=requests), lifeline_socket)
        template.serve()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
