"""Starts a child process with a channel to its parent, and guarantees that it ends."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import weakref

from planvec.backends.processes.os import procfs
from planvec.backends.processes.starting.ending import GRACE_SECONDS, end, has_ended, kill
from planvec.backends.processes.starting.hidden_main import forget_hidden_main
from planvec.backends.processes.starting.process import NewWorker, StartLostError
from planvec.backends.processes.starting.start_methods import START_METHODS
from planvec.backends.processes.starting.template import forget_templates
from planvec.backends.processes.wire.channel import Channel, close_parent_channels
from planvec.backends.processes.wire.slab import open_memory
from planvec.backends.processes.wire.spec import WorkerSpec
from planvec.backends.signals import delayed_signals, is_from_handler
from planvec.errors import WorkerStartError

_STALL_SECONDS = 10.0
# Largest number of starts of a worker that are lost with a killed template. The next needs no template.
_MAX_LOST = 3

_children: weakref.WeakSet[Child] = weakref.WeakSet()
_hooks: list[str] = []


def _release_inherited() -> None:
    """Free the resources of the parent in a forked child."""
    # If the child kept the parent's ends of the channels open, workers could not detect the exit of the
    # parent, and the kernel would not kill them. If the child used them, answers would be mixed up. Locks are
    # replaced, since another thread may have held them.
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
    """Starts a process that runs `child.main.main`, and holds the channel and the memory shared with it."""

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
        _register_hook()
        try:
            with delayed_signals():  # the child inherits the blocked signals until it ignores Ctrl-C
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
                    sentinel = self.lifeline.fileno()
                    worker = NewWorker(spec, theirs, child_lifeline, self.memory, sentinel)
                    self._process = START_METHODS[start_method](worker)
            undo.pop_all()
        self.pid = self._process.pid
        self.handle = self._process.handle
        # Called once: by `end`, at garbage collection, or when the interpreter exits.
        resources = (self._process, self.channel, self.lifeline, self.memory, os.getpid())
        self.end = weakref.finalize(self, end, *resources)

    def forget(self) -> None:
        """Free the inherited resources in a fork of the parent. The child keeps running."""
        self.is_foreign = True
        self.lifeline.close()
        finalizer = getattr(self, "end", None)
        if finalizer is not None and finalizer.alive:  # else this fork becomes the child and needs them
            os.close(self.memory)
            self._process.forget()

    def is_alive(self) -> bool:
        """Return whether the process runs."""
        return not self._is_over and not has_ended(self.handle, 0.0)

    @property
    def _is_over(self) -> bool:
        """Whether the process is ended or foreign. Then `handle` may belong to another file."""
        return self.is_foreign or not self.end.alive

    def is_stopped(self) -> bool:
        """Return whether a signal has stopped the process (SIGSTOP); False if the system does not show it."""
        return procfs.state(self.pid) == "T"

    def memory_used(self) -> int:
        """Return the bytes of memory that the process uses; 0 if the system does not show it."""
        return procfs.bytes_used(self.pid)

    def kill(self) -> None:
        """Kill the process and all of its child processes."""
        if not self._is_over:
            kill(self._process)

    def join(self, seconds: float) -> None:
        """Wait at most `seconds` for the process to end."""
        if not self._is_over:
            has_ended(self.handle, seconds)

    def how_it_ended(self) -> str:
        """Return how the process ended, for messages. Kill it if it does not end within `GRACE_SECONDS`."""
        if not has_ended(self.handle, GRACE_SECONDS):
            self.kill()
        code = self._process.exit_code(GRACE_SECONDS)
        self.was_killed = code in (-signal.SIGKILL, -signal.SIGTERM)
        if code is None:
            # The template was killed, and so does not tell: by the same hand, as a rule.
            self.was_killed = has_ended(self.handle, 0.0)
            return "ended with an unknown exit code" if self.was_killed else "stopped answering"
        if code >= 0:
            return f"exited with code {code}"
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"
