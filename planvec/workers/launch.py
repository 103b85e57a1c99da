"""Starting a child process, and making sure that it ends."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import threading
import weakref
from collections.abc import Iterator
from multiprocessing.reduction import DupFd
from typing import Any

from planvec.workers import host
from planvec.workers.messages import Channel, close_parent_channels
from planvec.workers.slab import open_memory

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
    parent has died; one that used them would mix up the answers. The lock may have been held.
    """
    global _starting
    _starting = threading.Lock()
    close_parent_channels()
    for child in list(_children):
        child.is_foreign = True


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
        # Ctrl-C is blocked in the child from its first moment, until it ignores it.
        previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        kept = {name: module.__dict__[name] for name in names if name in module.__dict__}
        try:
            module.__dict__.pop("__file__", None)
            module.__dict__["__spec__"] = None
            yield
        finally:
            module.__dict__.update(kept)
            if "__spec__" not in kept:
                module.__dict__.pop("__spec__", None)
            signal.pthread_sigmask(signal.SIG_SETMASK, previous)


class Child:
    """A process that runs `host.main`, with the channel to it and the memory shared with it.

    Args:
        factory: The cloudpickled factory of the hosted object.
        start_method: "spawn", "forkserver" or "fork".
        name: For process listings.

    Attributes:
        channel: To the child.
        memory: File descriptor of the slab.
        handle: File descriptor that becomes readable when the child dies.
        is_foreign: Whether this is a forked copy of the process that it belongs to.
        end: Ends the child and lets go of all that belonged to it; may be called again.
    """

    def __init__(self, factory: bytes, start_method: str, name: str) -> None:
        self.memory = open_memory()
        ours, theirs = socket.socketpair()
        self.is_foreign = False
        _children.add(self)
        if not _hooks and hasattr(os, "register_at_fork"):
            _hooks.append("fork")
            os.register_at_fork(after_in_child=_forget_the_parent)
        self.channel = Channel(ours, _STALL_SECONDS)
        context: Any = multiprocessing.get_context(start_method)
        arguments = (theirs, _InheritedMemory(self.memory), factory)
        self._process = context.Process(target=host.main, name=name, args=arguments)
        try:
            with _hidden_main():
                self._process.start()
        except BaseException:
            self.channel.close()
            os.close(self.memory)
            raise
        finally:
            theirs.close()
        self.handle = _process_handle(self._process)
        # Called once: by `end`, at garbage collection, or when the interpreter exits.
        self.end = weakref.finalize(
            self, _end, self._process, self.channel, self.memory, self.handle, os.getpid()
        )

    @property
    def pid(self) -> int:
        """The process id."""
        return int(self._process.pid)

    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return not self.is_foreign and bool(self._process.is_alive())

    def kill(self) -> None:
        """Kill the process at once."""
        if not self.is_foreign:
            self._process.kill()

    def join(self, seconds: float) -> None:
        """Wait for the process to end."""
        if not self.is_foreign:
            self._process.join(seconds)

    def how_it_ended(self) -> str:
        """For messages: waits for the exit code, and kills what has stopped answering."""
        self._process.join(GRACE_SECONDS)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join(GRACE_SECONDS)
        code = self._process.exitcode
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
        return os.pidfd_open(process.pid)
    return os.dup(process.sentinel)


def _end(process: Any, channel: Channel, memory: int, handle: int, owner: int) -> None:
    """End a process and let go of all that belonged to it."""
    if os.getpid() != owner:
        return  # a forked copy of the parent owns nothing
    channel.close()
    process.join(GRACE_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()
    os.close(memory)
    os.close(handle)
