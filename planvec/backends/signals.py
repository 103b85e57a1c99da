"""Delays signals while code must not be interrupted: their handlers may raise anywhere."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

# the message for a call from a signal handler that has interrupted another one
REENTERED = (
    "a signal handler called this environment during another call; let the handler set a flag, and call the "
    "environment after the interrupted call"
)

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
# Signals to delay: all but those that cannot or must not wait, and those of job control
HANDLED = {number for number in signal.Signals if number.name not in _IMMEDIATE | _JOB_CONTROL}


def is_running(frame: FrameType | None) -> bool:
    """Return whether this thread is inside the call of a frame. Then a signal handler has called again."""
    # A flag would not suffice: a signal handler may raise just before it is reset.
    caller = None if frame is None else sys._getframe()
    while caller is not None:
        if caller is frame:
            return True
        caller = caller.f_back
    return False


@contextlib.contextmanager
def delayed_signals() -> Iterator[None]:
    """Delay signals, and run the user's handlers at the end."""
    # Python runs handlers in the main thread only; in other threads this does nothing. Blocking the signals
    # alone would not be enough, since other threads may receive them. They are blocked, too, because a child
    # process that is started meanwhile inherits the mask.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: dict[int, None] = {}
    handlers: dict[signal.Signals, Any] = {}
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:  # each of the following calls may run a handler, which raises here
        for number in HANDLED:
            if callable(handler := signal.getsignal(number)):
                handlers[number] = handler
                signal.signal(number, lambda number, _: received.setdefault(number))
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        with contextlib.ExitStack() as handling:  # runs every handler, even if one raises
            for late in received:
                handling.callback(signal.raise_signal, late)


def is_from_handler(error: BaseException) -> bool:
    """Return whether a signal handler of the user raised an error, and not the code that it interrupted."""
    handlers = [signal.getsignal(number) for number in HANDLED]
    codes = {_code_of(handler) for handler in handlers if callable(handler)} - {None}
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code in codes:
            return True
        frame = frame.tb_next
    return False


def _code_of(handler: Any) -> Any:
    """Return the code object of a function, a method, a `partial` or a callable object; None if unknown."""
    for _ in range(4):
        if hasattr(handler, "__code__"):
            return handler.__code__
        handler = getattr(handler, "func", None) or vars(type(handler)).get("__call__")
    return None
