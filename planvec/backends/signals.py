"""Delays signals while code must not be interrupted: their handlers may raise anywhere."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import contextlib
import signal
import sys
import threading
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
HANDLED = frozenset(int(one) for one in signal.Signals if one.name not in _IMMEDIATE | _JOB_CONTROL)


def is_running(frame: FrameType | None) -> bool:
    """Return whether this thread is inside the call of a frame. Then a signal handler has called again."""
    # A flag would not suffice: a signal handler may raise just before it is reset.
    caller = None if frame is None else sys._getframe()
    while caller is not None:
        if caller is frame:
            return True
        caller = caller.f_back
    return False


class DelayedSignals:
    """Delays signals during a `with` block, and runs the user's handlers at its end."""

    # Python runs handlers in the main thread only; in other threads this does nothing. Blocking the signals
    # would not be enough, since other threads may receive them.
    # `are_blocked`: Whether a child process that is started meanwhile shall inherit them as blocked.
    #
    # It is used three times in a step of a vector environment with two workers. The functions of `signal`,
    # which make an enum of each number, would take 35 us; those that they call take 2.

    def __init__(self, are_blocked: bool = False) -> None:
        self._are_blocked = are_blocked
        self._received: list[int] = []
        self._handlers: dict[int, Any] = {}
        self._mask: set[int] | None = None

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        try:  # each of the following calls may run a handler, which raises here
            for number in HANDLED:
                handler = _signal.getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    _signal.signal(number, self._note)
            if self._are_blocked:
                self._mask = _signal.pthread_sigmask(signal.SIG_BLOCK, ())
                _signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *exc_info: object) -> None:
        try:
            self._restore()
        finally:
            if self._received:
                with contextlib.ExitStack() as handling:  # runs every handler, even if one raises
                    for late in dict.fromkeys(self._received):
                        handling.callback(signal.raise_signal, late)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._received.append(number)

    def _restore(self) -> None:
        try:
            if self._mask is not None:
                _signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
                self._mask = None
            while self._handlers:
                number, handler = next(iter(self._handlers.items()))
                _signal.signal(number, handler)
                del self._handlers[number]
        finally:
            if self._handlers:  # a handler that is back was called by a new signal, and raised
                self._restore()


def is_from_handler(error: BaseException) -> bool:
    """Return whether a signal handler of the user raised an error, and not the code that it interrupted."""
    handlers = [_signal.getsignal(number) for number in HANDLED]
    codes = {_code_of(handler) for handler in handlers if callable(handler)} - {None}
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code in codes:
            return True
        frame = frame.tb_next
    return False


def _code_of(handler: object) -> Any:
    """Return the code object of a function, a method, a `partial` or a callable object; None if unknown."""
    for _ in range(4):
        if hasattr(handler, "__code__"):
            return handler.__code__
        handler = getattr(handler, "func", None) or vars(type(handler)).get("__call__")
    return None
