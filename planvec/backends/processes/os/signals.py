"""Delays signals, whose handlers may raise anywhere, while something must not be left half done."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

__all__ = ["HANDLED", "delayed_signals", "is_from_handler", "original_signal_mask"]

_IMMEDIATE = {
    "SIGKILL",
    "SIGSTOP",
    "SIGSEGV",
    "SIGBUS",
    "SIGFPE",
    "SIGILL",
    "SIGABRT",
    "SIGTRAP",
    "SIGCONT",
}
_JOB_CONTROL = {"SIGCHLD", "SIGTSTP", "SIGTTIN", "SIGTTOU"}
HANDLED = {number for number in signal.Signals if number.name not in _IMMEDIATE | _JOB_CONTROL}
"""Signals that wait: all but those that cannot, and those of job control. (A fork server that is started
meanwhile needs SIGCHLD.)"""


_masks: list[set[int]] = []
"""Which signals the main thread blocked before each `delayed_signals` that it is in, the outermost first."""


@contextlib.contextmanager
def delayed_signals() -> Iterator[None]:
    """Delay signals, and run the user's handlers at the end.

    Python runs handlers in the main thread alone, so nothing need be done elsewhere. To block the signals
    there is not enough, since other threads may take them; it keeps a child, which inherits that, quiet.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    depth = len(_masks)
    received: dict[int, None] = {}
    handlers: dict[signal.Signals, Any] = {}
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:  # from here on: each of these calls may itself run a handler, which then raises here
        for number in HANDLED:
            if callable(handler := signal.getsignal(number)):
                handlers[number] = handler
                signal.signal(number, lambda number, _: received.setdefault(number))
        _masks.append(previous)
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        yield
    finally:
        del _masks[depth:]
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        with contextlib.ExitStack() as tell:
            for late in received:
                tell.callback(signal.raise_signal, late)


@contextlib.contextmanager
def original_signal_mask() -> Iterator[None]:
    """Inside `delayed_signals`, block only what the user blocks, while a process is started that others use.

    A process keeps the signals blocked that it was started with, and so does all that it starts. Handlers
    wait all the same.
    """
    if not _masks or threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.pthread_sigmask(signal.SIG_SETMASK, _masks[0])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def is_from_handler(error: BaseException) -> bool:
    """Return whether a handler of the user's raised an error, rather than the code that it interrupted."""
    handlers = [signal.getsignal(number) for number in HANDLED]
    codes = {_code_of(handler) for handler in handlers if callable(handler)} - {None}
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code in codes:
            return True
        frame = frame.tb_next
    return False


def _code_of(handler: Any) -> Any:
    """Return the code of a function, a method, a `partial` or an object that can be called."""
    for _ in range(4):
        if hasattr(handler, "__code__"):
            return handler.__code__
        handler = getattr(handler, "func", None) or vars(type(handler)).get("__call__")
    return None
