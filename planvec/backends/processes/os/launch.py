"""Starting a child process, and making sure that it ends."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import signal
import socket
import sys
import threading
import weakref
from collections.abc import Iterator
from multiprocessing import forkserver, resource_tracker
from multiprocessing.reduction import DupFd
from typing import Any

from planvec.backends.processes.child import main as child_main
from planvec.backends.processes.os import procfs
from planvec.backends.processes.os.signals import is_from_handler, undisturbed
from planvec.backends.processes.wire.channel import Channel, close_parent_channels
from planvec.backends.processes.wire.slab import open_memory
from planvec.errors import WorkerStartError

__all__ = ["GRACE_SECONDS", "Child"]

GRACE_SECONDS = 1.0
"""How long a child may take to end by itself."""
_STALL_SECONDS = 10.0
_starting = threading.Lock()


class _InheritedMemory:
    """A file descriptor that is handed to a child under any start method."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def detach(self) -> int:
        return self._fd

    def __reduce__(self) -> Any:
        return _identity, (DupFd(self._fd),)


def _identity(handle: Any) -> Any:
    return handle


def _forget_the_parent() -> None:
    """In a forked child: what the parent holds is not the child's.

    A child that kept the parent's ends of the channels would keep workers from noticing that the
    parent has died, and the kernel from killing them; one that used them would mix up the answers. The
    lock may have been held.
    """
    global _starting
    _starting = threading.Lock()
    close_parent_channels()
    for child in list(_children):
        child.is_foreign = True
        child.lifeline.close()
        end = getattr(child, "end", None)  # the one that is just being forked, and needs its memory, has none
        if end is not None and end.alive:
            os.close(child.memory)


_children: weakref.WeakSet[Child] = weakref.WeakSet()
_hooks: list[str] = []


@contextlib.contextmanager
def _hidden_main() -> Iterator[None]:
    """Hide the user's script from multiprocessing while a process is started.

    The child would run it again otherwise, which is why scripts need a `__main__` guard elsewhere.
    What the factory needs of it is sent by value.
    """
    module = sys.modules["__main__"]
    names = ("__file__", "__spec__")
    with _starting:
        kept = {name: module.__dict__[name] for name in names if name in module.__dict__}
        try:
            module.__dict__.pop("__file__", None)
            module.__dict__["__spec__"] = None
            yield
        finally:
            module.__dict__.update(kept)
            if "__spec__" not in kept:
                module.__dict__.pop("__spec__", None)


def _start_helpers(start_method: str) -> None:
    """Start multiprocessing's own helpers, which others use too, before any signal is blocked.

    The fork server imports once what every worker needs: a restart then takes 25 ms, not 190. Unless it
    runs already, or the user has told it what to import.
    """
    if not _hooks and hasattr(os, "register_at_fork"):
        _hooks.append("fork")
        os.register_at_fork(after_in_child=_forget_the_parent)
    if start_method == "fork":
        return
    with _hidden_main():
        resource_tracker.ensure_running()
        if start_method == "forkserver":
            server: Any = getattr(forkserver, "_forkserver", None)
            if getattr(server, "_preload_modules", None) == ["__main__"]:
                multiprocessing.set_forkserver_preload(["__main__", child_main.__name__])
            forkserver.ensure_running()


class Child:
    """A process that runs `child.main.main`, with the channel to it and the memory shared with it.

    It leads a process group of its own, so that whatever it starts can be killed with it.

    Args:
        factory: The cloudpickled factory of the hosted object.
        start_method: "spawn", "forkserver" or "fork".
        name: For process listings.

    Attributes:
        pid: Its process id.
        channel: To the child.
        lifeline: Open as long as the child may live; see `lifeline.die_with_parent`.
        memory: File descriptor of the slab.
        handle: File descriptor that becomes readable when the child dies.
        is_foreign: Whether this is a forked copy of the process that it belongs to.
        was_killed: Whether somebody else ended it (SIGKILL, SIGTERM), once `how_it_ended` was asked.
        end: Ends the child and lets go of all that belonged to it; may be called again.

    Raises:
        WorkerStartError: There is no process, no memory or no file left to be had.
    """

    def __init__(self, factory: bytes, start_method: str, name: str) -> None:
        self.is_foreign = self.was_killed = False
        try:
            _start_helpers(start_method)
            with undisturbed():  # nor is the child, which inherits that, until it ignores Ctrl-C
                self._start(factory, start_method, name)
        except OSError as error:
            if is_from_handler(error):  # it waited until the process was there
                raise
            raise WorkerStartError(f"{name} could not be started: {error}") from error

    def _start(self, factory: bytes, start_method: str, name: str) -> None:
        with contextlib.ExitStack() as undo:
            self.memory = open_memory()
            undo.callback(os.close, self.memory)
            ours, theirs = socket.socketpair()
            undo.callback(ours.close)
            with theirs:
                self.lifeline, tied = socket.socketpair()
                undo.callback(self.lifeline.close)
                with tied:
                    self.channel = Channel(ours, _STALL_SECONDS)
                    undo.callback(self.channel.close)
                    _children.add(self)
                    context: Any = multiprocessing.get_context(start_method)
                    arguments = (theirs, tied, _InheritedMemory(self.memory), factory, dict(os.environ))
                    self._process = context.Process(target=child_main.main, name=name, args=arguments)
                    with _hidden_main():
                        self._process.start()
            self.pid = int(self._process.pid)
            self.handle = _process_handle(self._process)
            undo.pop_all()
        # Called once: by `end`, at garbage collection, or when the interpreter exits.
        self.end = weakref.finalize(
            self,
            _end,
            self._process,
            self.channel,
            self.lifeline,
            self.memory,
            self.handle,
            os.getpid(),
        )

    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return not self._is_over and not _has_ended(self.handle, 0.0)

    @property
    def _is_over(self) -> bool:
        """Whether it is not ours to look after: `handle` may be the number of another file by now."""
        return self.is_foreign or not self.end.alive

    def is_stopped(self) -> bool:
        """Whether somebody has stopped the process (SIGSTOP); False where that cannot be told."""
        return procfs.state(self.pid) == "T"

    def memory_used(self) -> int:
        """Bytes that the process has in memory; 0 where that cannot be told."""
        return procfs.bytes_used(self.pid)

    def kill(self) -> None:
        """Kill the process at once, and what it has started."""
        if not self._is_over:
            _kill(self._process, self.handle)

    def join(self, seconds: float) -> None:
        """Wait for the process to end."""
        if not self._is_over:
            _has_ended(self.handle, seconds)

    def how_it_ended(self) -> str:
        """For messages: waits for the exit code, and kills what has stopped answering."""
        if not _has_ended(self.handle, GRACE_SECONDS):
            self.kill()
        self._process.join(GRACE_SECONDS)
        code = self._process.exitcode
        self.was_killed = code in (-signal.SIGKILL, -signal.SIGTERM)
        if code is None:
            return "stopped answering"
        if code >= 0:
            return f"exited with code {code}"
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"


def _process_handle(process: Any) -> int:
    """A file descriptor that becomes readable when the process dies."""
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(ProcessLookupError):  # a fork server has noted its end already
            return os.pidfd_open(process.pid)
    return os.dup(process.sentinel)


def _has_ended(handle: int, seconds: float) -> bool:
    """Whether the process ends in time. multiprocessing's own `join` would believe a dead fork server."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _kill(process: Any, handle: int) -> None:
    """Kill a process and all below it, those in groups of their own, too."""
    if _has_ended(handle, 0.0):
        return
    for pid in [*procfs.descendants(process.pid), process.pid]:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _kill_group(pid: int, handle: int) -> None:
    """Kill what is left of the group that a process led which has ended.

    Its number cannot have gone to another process while it was not waited for, or while members of its
    group are left. If neither holds, a process of that number is a stranger.
    """
    try:
        signal.pidfd_send_signal(handle, 0)
    except (OSError, AttributeError):  # it was waited for
        if procfs.exists(pid):
            return
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


def _end(
    process: Any, channel: Channel, lifeline: socket.socket, memory: int, handle: int, owner: int
) -> None:
    """End a process and let go of all that belonged to it."""
    if os.getpid() != owner:
        return  # a forked copy of the parent owns nothing
    channel.close()
    if not _has_ended(handle, GRACE_SECONDS):
        _kill(process, handle)
        _has_ended(handle, GRACE_SECONDS)
    _kill_group(process.pid, handle)
    process.join(GRACE_SECONDS)
    with contextlib.suppress(ValueError):  # not even SIGKILL has ended it: it waits for a device
        process.close()
    lifeline.close()
    os.close(memory)
    os.close(handle)
