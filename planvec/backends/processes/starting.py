"""Starts a child process with a channel to its parent, and guarantees that it ends."""

from __future__ import annotations

import contextlib
import errno
import gc
import multiprocessing
import multiprocessing.spawn
import os
import select
import signal
import socket
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import util
from typing import Any

from planvec.backends.messages import track_main_classes
from planvec.backends.processes import child as spawned
from planvec.backends.processes import system
from planvec.backends.processes import template as template_process
from planvec.backends.processes.channel import Channel
from planvec.backends.processes.child import main
from planvec.backends.processes.slab import WorkerSpec, open_memory
from planvec.backends.processes.template import STREAMS, receive_number
from planvec.backends.signals import DelayedSignals, is_from_handler
from planvec.errors import WorkerStartError

# -- Defines the result of every start method, a started process ---------------------------------------------


# the worker's ends of the channel and of the lifeline, and the file descriptor of the slab; see `child.main`
WorkerEnds = tuple[socket.socket, socket.socket, int]


class StartLostError(OSError):
    """Raised when the process that forks workers ends before it answers. Retry with new sockets."""


@dataclass(frozen=True, slots=True)
class Process:
    """Holds a started process, and what depends on its start method."""

    pid: int  # the process id
    handle: int  # file descriptor that becomes readable when the process ends; open until `close`
    # Waits at most so many seconds for the process, and returns its exit code, or -N for signal N, as
    # `subprocess.Popen.returncode`. None if the process has not ended, or if its exit code is unknown.
    exit_code: Callable[[float], int | None]
    forget: Callable[[], object]  # frees the inherited resources in a fork of the parent
    free: Callable[[], object]  # frees the resources of the process, which has ended

    def kill(self) -> None:
        """Kill the process and all processes below it, also those in other process groups."""
        if not is_readable(self.handle, 0.0):
            for pid in [*system.descendants(self.pid), self.pid]:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)


def _open_handle(pid: int, sentinel: int) -> int:
    # `sentinel`: the parent's end of the lifeline. It becomes readable when the worker and all processes that
    # inherited the other end have ended.
    return os.pidfd_open(pid) if hasattr(os, "pidfd_open") else os.dup(sentinel)


# -- Ends a child process: waits for it, kills it and its child processes, and frees its resources -----------

GRACE_SECONDS = 1.0  # longest time for a child process to end by itself


def is_readable(fd: int, seconds: float) -> bool:
    """Wait for a file descriptor; for the handle of a process, return whether the process has ended."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def end(process: Process, channel: Channel, lifeline: socket.socket, memory: int, owner: int) -> None:
    """End a process and free its resources."""
    # After its channel is closed, the process has GRACE_SECONDS to end by itself. `owner`: pid of the parent;
    # in a fork of it this does nothing.
    if os.getpid() != owner:
        return
    channel.close()
    if not is_readable(process.handle, GRACE_SECONDS):
        process.kill()
        is_readable(process.handle, GRACE_SECONDS)
    # Kill the remaining members of its process group. Another process can have the same process id only if
    # the process was reaped and no member of its group is left. In this case nothing is killed.
    try:
        signal.pidfd_send_signal(process.handle, 0)
        may_have_members = True
    except (OSError, AttributeError):  # it was reaped
        may_have_members = not system.exists(process.pid)
    if may_have_members:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    process.exit_code(GRACE_SECONDS)
    process.free()
    os.close(process.handle)
    lifeline.close()
    os.close(memory)


# -- Starts workers by fork, with multiprocessing, which knows what a fork of an interpreter needs -----------


def _run(spec: WorkerSpec, channel: socket.socket, lifeline: socket.socket, memory: int) -> None:
    """Run a worker in the new process; see `child.main`."""
    gc.freeze()  # a collection would otherwise write to all objects of the parent, and so copy their memory
    main(spec, channel, lifeline, memory)


def fork(spec: WorkerSpec, ends: WorkerEnds, sentinel: int) -> Process:
    """Start a worker."""
    if multiprocessing.current_process().daemon:  # such as a child of `multiprocessing.Pool`
        raise WorkerStartError(
            'start_method: daemonic processes cannot start others with "fork"; use '
            'start_method="template" or "spawn"'
        )
    track_main_classes()
    context: Any = multiprocessing.get_context("fork")
    process = context.Process(target=_run, name=spec.name, args=(spec, *ends))
    process.start()

    def exit_code(seconds: float) -> int | None:
        process.join(seconds)
        code: int | None = process.exitcode
        return code

    def free() -> None:
        with contextlib.suppress(ValueError):  # it waits for a device, so that SIGKILL has not ended it
            process.close()

    # multiprocessing frees its resources in a fork
    return Process(process.pid, _open_handle(process.pid, process.sentinel), exit_code, lambda: None, free)


# -- Starts fresh Python interpreters: the template process, and the workers of the start method "spawn" -----

_COMMAND = "import sys; sys.path[:] = {path!r}; from {module} import run as _run; _run{arguments!r}"


def start_interpreter(
    spec: WorkerSpec, module: str, fds: tuple[int, ...], *names: str
) -> subprocess.Popen[bytes]:
    """Start a fresh interpreter in a process group of its own, since the parent handles Ctrl-C."""
    flags: Any = util
    code = _COMMAND.format(path=spec.preparation["sys_path"], module=module, arguments=(*fds, *names))
    return subprocess.Popen(
        [multiprocessing.spawn.get_executable(), *flags._args_from_interpreter_flags(), "-c", code],
        stdin=subprocess.DEVNULL,
        # Strings have the same hashes in all workers, so that sets of strings have the same order.
        env={"PYTHONHASHSEED": "0", **spec.environ},
        pass_fds=fds,
        process_group=0,
    )


def spawn(spec: WorkerSpec, ends: WorkerEnds, sentinel: int) -> Process:
    """Start a worker in a fresh interpreter."""
    channel, lifeline, memory = ends
    written = spec.write()
    try:
        fds = (written, channel.fileno(), lifeline.fileno(), memory)
        process = start_interpreter(spec, spawned.__name__, fds)
    finally:
        os.close(written)

    def exit_code(seconds: float) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(seconds)
        return None

    # A process that waits for a device has not ended: `Popen` reaps it later.
    handle = _open_handle(process.pid, sentinel)
    return Process(process.pid, handle, exit_code, partial(_disown, process), process.poll)


def _disown(process: subprocess.Popen[bytes]) -> None:
    """Let `Popen` not wait for a process in a fork of the parent."""
    process.returncode = 0


# -- Starts template processes, which fork workers. `template` is their side.
#
#     user's process --(a fresh interpreter)--> template --(fork)--> worker, worker, ...
#
# The user's process is never forked, since threads, BLAS and numba do not survive a fork. A template is
# started with the first worker and runs until the user's process ends. If it is killed, the next worker is
# forked by a new template. The existing workers continue, but their exit codes will be unknown.

_ANSWER_SECONDS = 60.0  # longest time for a template to import its modules and to fork a worker
# interval at which the template is checked meanwhile: a signal may have stopped it
_STATE_CHECK_SECONDS = 1.0
_END_SECONDS = 1.0
# prefixes of the environment variables that are read when an interpreter starts or numpy is imported
_READ_AT_IMPORT = ("BLIS_", "KMP_", "LD_", "MKL_", "NPY_", "OMP_", "OPENBLAS_", "PYTHON", "VECLIB_")


class _TemplateProcess:
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
        _disown(self._process)

    def fork(self, spec: int, ends: WorkerEnds, sentinel: int) -> Process:
        """Fork a worker, whose spec lies in the memory `spec`."""
        channel, lifeline, memory = ends
        report, theirs = socket.socketpair()
        with contextlib.ExitStack() as undo:
            undo.callback(report.close)
            with theirs, open(os.devnull, "wb") as null:
                fds = (theirs.fileno(), spec, channel.fileno(), lifeline.fileno(), memory)
                streams = (number if _is_open(number) else null.fileno() for number in STREAMS)
                try:
                    socket.send_fds(self._requests, [b"f"], [*fds, *streams])
                except ConnectionError:
                    raise self._start_error() from None
            self._wait_for(report)
            pid, handles = receive_number(report)
            if pid is None:
                raise self._start_error()
            if pid < 0:
                raise OSError(-pid, os.strerror(-pid))
            handle = handles[0] if handles else os.dup(sentinel)
            undo.pop_all()
        known: int | None = None
        template = self._process  # not `self`, whose sockets would stay open as long as the worker

        def exit_code(seconds: float) -> int | None:
            nonlocal known
            if known is None and is_readable(report.fileno(), seconds):
                known, _ = receive_number(report)
                if known is None:
                    template.poll()  # it has ended: reap it
            return known

        return Process(pid, handle, exit_code, report.close, report.close)

    def _wait_for(self, report: socket.socket) -> None:
        """Wait until the template answers. Kill it if it is stopped or exceeds the time limit."""
        deadline = time.monotonic() + _ANSWER_SECONDS
        while not is_readable(report.fileno(), _STATE_CHECK_SECONDS):
            if system.state(self._process.pid) == "T":
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


_lock = threading.Lock()
# environment variables that were read when the template was started, and its modules -> the template
_templates: dict[tuple[frozenset[tuple[str, str]], tuple[str, ...]], _TemplateProcess] = {}


def fork_by_template(spec: WorkerSpec, ends: WorkerEnds, sentinel: int) -> Process:
    """Start a worker by a fork of a template process. Start a template first if none runs."""
    # Raises StartLostError if the template was killed or stopped before it answered (`Child` tries again),
    # OSError if the system lacks processes, memory or files.
    # The worker inherits resource limits, umask and CPU affinity from the template, as they were in this
    # process when the template was started.
    environ = spec.environ.items()
    variables = frozenset((name, value) for name, value in environ if name.startswith(_READ_AT_IMPORT))
    key = variables, spec.preload
    with _lock:
        template = _templates.get(key)
        if template is None or not template.is_alive():
            template = _templates[key] = _TemplateProcess(spec)
    memory = spec.write()
    try:
        return template.fork(memory, ends, sentinel)
    finally:
        os.close(memory)


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


# name -> function that starts a worker, for the start methods that this system supports
START_METHODS: dict[str, Callable[[WorkerSpec, WorkerEnds, int], Process]] = {}
if hasattr(os, "fork") and hasattr(socket, "send_fds"):
    START_METHODS["template"] = fork_by_template
START_METHODS["spawn"] = spawn
if "fork" in multiprocessing.get_all_start_methods():
    START_METHODS["fork"] = fork

# the first of them: "template", or "spawn" on a system that cannot fork processes
DEFAULT_START_METHOD = next(iter(START_METHODS))


_STALL_SECONDS = 10.0
# Largest number of starts of a worker that are lost with a killed template. The next needs no template.
_MAX_LOST = 3

_children: weakref.WeakSet[Child] = weakref.WeakSet()
_hooks: list[str] = []


def _release_inherited() -> None:
    """Free the resources of the parent in a forked child."""
    # If the child kept the parent's ends of the channels open, workers could not detect the exit of the
    # parent, and the kernel would not kill them. If the child used them, answers would be mixed up. Locks are
    # replaced, since another thread may have held them. It starts templates of its own.
    global _lock
    _lock = threading.Lock()
    for template in _templates.values():
        template.forget()
    _templates.clear()
    for child in list(_children):
        child.forget()


class Child:
    """Starts a process that runs `child.main`, and holds the channel and the memory shared with it."""

    # The child leads a process group of its own, so that all of its child processes can be killed with it.
    # `pid`: The process id of the child.
    # `lifeline`: The parent's end of the lifeline, open while the child runs; see `die_with_parent`.
    # `memory`: File descriptor of the slab.
    # `handle`: File descriptor that becomes readable when the child ends.
    # `end`: Ends the child and frees its resources; may be called again.

    def __init__(self, spec: WorkerSpec, start_method: str) -> None:
        # `is_foreign`: whether this is a copy in a fork of the parent. `was_killed`: Whether the child was
        # killed from outside (SIGKILL, SIGTERM). Valid after `how_it_ended`.
        self.is_foreign = self.was_killed = False
        if not _hooks and hasattr(os, "register_at_fork"):
            _hooks.append("fork")
            os.register_at_fork(after_in_child=_release_inherited)
        try:
            with DelayedSignals(are_blocked=True):  # they are, in the child, until it ignores Ctrl-C
                for _ in range(_MAX_LOST):
                    with contextlib.suppress(StartLostError):
                        self._start(spec, start_method)
                        return
                # Such a worker may be killed as well, but is then replaced like others.
                self._start(spec, "spawn")
        except OSError as error:
            if is_from_handler(error):  # the handler ran after the start
                raise
            hint = ""
            if error.errno in (errno.EMFILE, errno.ENFILE):
                hint = "; a worker needs about five files: open fewer workers, or allow more (ulimit -n)"
            raise WorkerStartError(f"{spec.name} could not be started: {error}{hint}") from error

    def _start(self, spec: WorkerSpec, start_method: str) -> None:
        with contextlib.ExitStack() as undo:
            self.memory = open_memory()
            undo.callback(os.close, self.memory)
            ours, theirs = socket.socketpair()
            undo.callback(ours.close)
            with theirs:
                self.lifeline, child_lifeline = socket.socketpair()
                undo.callback(self.lifeline.close)
                with child_lifeline:
                    self.channel = Channel(ours, _STALL_SECONDS)
                    undo.callback(self.channel.close)
                    _children.add(self)
                    ends = (theirs, child_lifeline, self.memory)
                    self._process = START_METHODS[start_method](spec, ends, self.lifeline.fileno())
            undo.pop_all()
        self.pid = self._process.pid
        self.handle = self._process.handle
        # Called once: by `end`, at garbage collection, or when the interpreter exits.
        resources = (self._process, self.channel, self.lifeline, self.memory, os.getpid())
        self.end = weakref.finalize(self, end, *resources)

    def forget(self) -> None:
        """Free the inherited resources in a fork of the parent. The child keeps running."""
        self.is_foreign = True
        self.channel.close()
        self.lifeline.close()
        finalizer = getattr(self, "end", None)
        if finalizer is not None and finalizer.alive:  # else this fork becomes the child and needs them
            os.close(self.memory)
            self._process.forget()

    def is_alive(self) -> bool:
        """Return whether the process runs."""
        return not self._is_over and not is_readable(self.handle, 0.0)

    @property
    def _is_over(self) -> bool:
        """Whether the process is ended or foreign. Then `handle` may belong to another file."""
        return self.is_foreign or not self.end.alive

    def is_stopped(self) -> bool:
        """Return whether a signal has stopped the process (SIGSTOP); False if the system does not show it."""
        return system.state(self.pid) == "T"

    def kill(self) -> None:
        """Kill the process and all of its child processes."""
        if not self._is_over:
            self._process.kill()

    def join(self, seconds: float) -> None:
        """Wait at most `seconds` for the process to end."""
        if not self._is_over:
            is_readable(self.handle, seconds)

    def how_it_ended(self) -> str:
        """Return how the process ended, for messages. Kill it if it does not end within `GRACE_SECONDS`."""
        if not is_readable(self.handle, GRACE_SECONDS):
            self.kill()
        code = self._process.exit_code(GRACE_SECONDS)
        self.was_killed = code in (-signal.SIGKILL, -signal.SIGTERM)
        if code is None:
            # The template was killed, and so does not tell: by the same hand, as a rule.
            self.was_killed = is_readable(self.handle, 0.0)
            return "ended with an unknown exit code" if self.was_killed else "stopped answering"
        if code >= 0:
            return f"exited with code {code}"
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"


def capture_spec(factory: bytes | Callable[[], Any], name: str, preload: Sequence[str]) -> WorkerSpec:
    """Return a spec with the present settings of this process."""
    preparation = multiprocessing.spawn.get_preparation_data(name)
    # Otherwise the child would run the script again, which is why other libraries require a `__main__` guard.
    # The functions and classes of the script that the factory needs are sent by value.
    for key in ("init_main_from_name", "init_main_from_path"):
        preparation.pop(key, None)
    # Plain bytes: `AuthenticationString` refuses to be pickled. The key only goes into the worker's memory.
    preparation["authkey"] = bytes(preparation["authkey"])
    return WorkerSpec(name, factory, dict(os.environ), preparation, tuple(preload))
