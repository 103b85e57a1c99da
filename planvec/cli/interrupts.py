"""Signals end a command so that it leaves what there is."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from planvec.cli.parser import INTERRUPTED

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SECONDS_BETWEEN_LOOKS = 0.1


class Interrupt(KeyboardInterrupt):
    """Raised by a signal that asks the process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = _status_of(number)  # the exit status
        self.text = "interrupted" if number == signal.SIGINT else f"ended by {self}"  # what ended the command
        _latest[:] = [number, weakref.ref(self)]


_latest: list[Any] = []  # the number of the signal, and a weak reference to the exception


def exit_status(error: KeyboardInterrupt) -> int:
    """Return the exit status after an interrupt that has arrived, so that it is not raised again."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    return int(getattr(error, "status", INTERRUPTED))


@contextlib.contextmanager
def interrupts() -> Iterator[None]:
    """Raise `Interrupt` in the main thread upon Ctrl-C, SIGTERM and SIGHUP."""
    # Compiled code may drop an exception: NumPy ignores errors of attributes that it looks up, and an `Enum`
    # is looked up in Python, where a signal is handled. So the exception is raised again until it arrives
    # here or at `exit_status`. Where numba would turn it into a `SystemError`, it is raised later.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[signal.Signals, Any] = {}
    try:
        before[signal.SIGALRM] = signal.signal(signal.SIGALRM, _look)
        for number in _ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
                before[number] = signal.signal(number, _interrupt)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def late_interrupts(hint: bytes) -> Iterator[Callable[[], int | None]]:
    """Note only the first signal, so that all ends where nothing is lost; the second one interrupts."""
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)
        for other in held:
            signal.signal(other, _interrupt)
        with contextlib.suppress(OSError):
            os.write(2, hint)  # a stream may be in use when a signal arrives

    held = [number for number in _ENDING if signal.getsignal(number) is _interrupt]
    for number in held:
        signal.signal(number, note)
    try:
        yield lambda: _status_of(noted[0]) if noted else None
    finally:
        for number in held:
            signal.signal(number, _interrupt)


def _status_of(number: int) -> int:
    """Return the exit status after a signal."""
    return INTERRUPTED if number == signal.SIGINT else 128 + number


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Handle a signal that ends the command."""
    signal.setitimer(signal.ITIMER_REAL, _SECONDS_BETWEEN_LOOKS, _SECONDS_BETWEEN_LOOKS)
    _latest[:] = [number, lambda: None]
    _look(number, frame)


def _look(number: int, frame: FrameType | None) -> None:
    """Raise the exception, unless there is one that was not dropped."""
    first, latest = _latest
    # Numba makes the array that a compiled function returns with the help of this Python function, and does
    # not look at exceptions of it.
    is_heard = frame is None or frame.f_code.co_name != "_numba_unpickle"
    if is_heard and latest() is None:
        raise Interrupt(first)  # without a name here, which would keep it
