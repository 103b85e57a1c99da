"""Starts a child process with what connects it to its parent, and makes sure that it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import weakref

from planvec.backends.processes.os import procfs
from planvec.backends.processes.os.signals import delayed_signals, is_from_handler
from planvec.backends.processes.starting.ending import GRACE_SECONDS, end, has_ended, kill
from planvec.backends.processes.starting.hidden_main import forget_hidden_main
from planvec.backends.processes.starting.process import NewWorker, StartLostError
from planvec.backends.processes.starting.start_methods import START_METHODS
from planvec.backends.processes.starting.template import forget_templates
from planvec.backends.processes.wire.channel import Channel, close_parent_channels
from planvec.backends.processes.wire.slab import open_memory
from planvec.errors import WorkerStartError

__all__ = ["Child"]

_STALL_SECONDS = 10.0
_MAX_ATTEMPTS = 4
"""How often a start is tried before somebody who kills the process that forks workers has won."""

_children: weakref.WeakSet[Child] = weakref.WeakSet()
_hooks: list[str] = []


def _release_inherited() -> None:
    """In a forked child, free what the parent holds: it is not the child's.

    A child that kept the parent's ends of the channels would keep workers from noticing that the
    parent has died, and the kernel from killing them; one that used them would mix up the answers. Locks
    may have been held.
    """
    forget_hidden_main()
    forget_templates()
    close_parent_channels()
    for child in list(_children):
        child.forget()


def _register_hook() -> None:
    if not _hooks and hasattr(os, "register_at_fork"):
        _hooks.append("fork")
        os.register_at_fork(after_in_child=_release_inherited)


class Child:
    """A process that runs `child.main.main`, with the channel to it and the memory shared with it.

    It leads a process group of its own, so that whatever it starts can be killed with it.

    Args:
        factory: The cloudpickled factory of the hosted object.
        start_method: One of `START_METHODS`.
        name: For process listings.

    Attributes:
        pid: Its process id.
        channel: To the child.
        lifeline: Open as long as the child may live; see `die_with_parent`.
        memory: File descriptor of the slab.
        handle: File descriptor that becomes readable when the child dies.
        is_foreign: Whether this is a forked copy of the process that it belongs to.
        was_killed: Whether somebody else ended it (SIGKILL, SIGTERM), once `how_it_ended` was asked.
        end: Ends the child and frees all that belonged to it; may be called again.

    Raises:
        WorkerStartError: There is no process, no memory or no file left to be had.
    """

    def __init__(self, factory: bytes, start_method: str, name: str) -> None:
        self.is_foreign = self.was_killed = False
        _register_hook()
        try:
            with delayed_signals():  # nor is the child, which inherits that, until it ignores Ctrl-C
                for _ in range(_MAX_ATTEMPTS - 1):
                    with contextlib.suppress(StartLostError):
                        self._start(factory, start_method, name)
                        return
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
                self.lifeline, child_lifeline = socket.socketpair()
                undo.callback(self.lifeline.close)
                with child_lifeline:
                    self.channel = Channel(ours, _STALL_SECONDS)
                    undo.callback(self.channel.close)
                    _children.add(self)
                    sentinel = self.lifeline.fileno()
                    worker = NewWorker(name, factory, theirs, child_lifeline, self.memory, sentinel)
                    self._process = START_METHODS[start_method](worker)
            undo.pop_all()
        self.pid = self._process.pid
        self.handle = self._process.handle
        # Called once: by `end`, at garbage collection, or when the interpreter exits.
        resources = (self._process, self.channel, self.lifeline, self.memory, os.getpid())
        self.end = weakref.finalize(self, end, *resources)

    def forget(self) -> None:
        """Free what a forked copy of the parent has inherited; the child is not its own."""
        self.is_foreign = True
        self.lifeline.close()
        finalizer = getattr(self, "end", None)
        if finalizer is not None and finalizer.alive:  # not of the one being forked: it needs its memory
            os.close(self.memory)
            self._process.forget()

    def is_alive(self) -> bool:
        """Return whether the process still runs."""
        return not self._is_over and not has_ended(self.handle, 0.0)

    @property
    def _is_over(self) -> bool:
        """Whether it is not ours to look after: `handle` may be the number of another file by now."""
        return self.is_foreign or not self.end.alive

    def is_stopped(self) -> bool:
        """Return whether somebody has stopped the process (SIGSTOP); False where that cannot be told."""
        return procfs.state(self.pid) == "T"

    def memory_used(self) -> int:
        """Return the bytes that the process has in memory; 0 where that cannot be told."""
        return procfs.bytes_used(self.pid)

    def kill(self) -> None:
        """Kill the process at once, and what it has started."""
        if not self._is_over:
            kill(self._process)

    def join(self, seconds: float) -> None:
        """Wait for the process to end."""
        if not self._is_over:
            has_ended(self.handle, seconds)

    def how_it_ended(self) -> str:
        """Wait for the exit code, kill what has stopped answering, and say how the process ended."""
        if not has_ended(self.handle, GRACE_SECONDS):
            self.kill()
        code = self._process.exit_code(GRACE_SECONDS)
        self.was_killed = code in (-signal.SIGKILL, -signal.SIGTERM)
        if code is None:
            is_over = has_ended(self.handle, 0.0)
            return "ended, and nobody can tell its exit code" if is_over else "stopped answering"
        if code >= 0:
            return f"exited with code {code}"
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"
