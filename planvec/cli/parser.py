"""Defines the parser, messages and interrupts of the command line: an error is one line with the fix."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import math
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

FAILED = 1
USAGE_ERROR = 2  # exit statuses; after a signal, it is 128 plus its number


class UsageError(Exception):
    """Raised when arguments are wrong. The message is one line."""


class Parser(argparse.ArgumentParser):
    """Raises `UsageError` instead of printing the usage and exiting."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*args, **kwargs)
        self._negative_number_matcher = re.compile(r"-\.?\d[^=]*$")  # "-1,1" is a value, and no option

    def error(self, message: str) -> NoReturn:
        """Raise the error."""
        raise UsageError(f"{message}; see {self.prog} --help")


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the word that resembles another one most; "" if none does."""
    by_key = {known.lower(): known for known in words}
    close = difflib.get_close_matches(word.lower(), list(by_key), n=1)
    return f"; did you mean {by_key[close[0]]!r}?" if close else ""


def one_of(words: Iterable[str]) -> Callable[[str], str]:
    """Return an argparse type that accepts some words, and suggests one of them for others."""
    known = list(words)

    def word(text: str) -> str:
        if text not in known:
            raise argparse.ArgumentTypeError(
                f"expected one of {', '.join(known)}, got {text!r}{did_you_mean(text, known)}"
            )
        return text

    return word


def integer(lowest: int, highest: float = math.inf) -> Callable[[str], int]:
    """Return an argparse type that accepts the integers of a range."""

    def integer(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = lowest - 1
        if not lowest <= value <= highest:
            bounds = f"from {lowest} to {highest}" if highest < math.inf else f"of at least {lowest}"
            raise argparse.ArgumentTypeError(f"expected an integer {bounds}, got {text!r}")
        return value

    return integer


COUNT, SEED = integer(1), integer(0, 2**64 - 1)


def add_option(
    parser: argparse._ActionsContainer,
    name: str,
    metavar: str,
    kind: Callable[[str], Any],
    text: str,
    default: object = None,
    *,
    nargs: str | None = None,
) -> None:
    """Add an option with a value, or several. The help shows its default, a number or numbers."""
    if default is not None:
        numbers = default if isinstance(default, list) else [default]
        text += f" (default: {' '.join(f'{number:g}' for number in numbers)})"
    parser.add_argument(name, metavar=metavar, type=kind, default=default, nargs=nargs, help=text)


def add_flag(parser: argparse._ActionsContainer, name: str, text: str) -> None:
    """Add an option without a value."""
    parser.add_argument(name, action="store_true", help=text)


def add_json(parser: argparse._ActionsContainer) -> None:
    """Add `--json`."""
    add_flag(parser, "--json", "print the result, or an error, as one JSON object")


# -- Prints messages for people, and errors in one line ------------------------------------------------------


def warn(text: str) -> None:
    """Print a line to the standard error stream, if it is open and there is one."""
    if text and sys.stderr is not None:
        print(text, file=sys.stderr)


def one_line(error: BaseException) -> str:
    """Return an error in one line: its type unless planvec wrote the message, and where it was raised."""
    if isinstance(error, UsageError):
        return str(error)
    from gymnasium.error import Error as GymnasiumError

    from planvec.errors import PlanvecError

    text = " ".join(str(error).split())
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    if isinstance(error, (PlanvecError, GymnasiumError, OSError, ModuleNotFoundError)):
        return text or type(error).__name__
    name = type(error).__name__
    where = _where(error)
    is_check = isinstance(error, ValueError) or (isinstance(error, TypeError) and ": expected" in text)
    if is_check and not where:  # a check of planvec's, whose message says all
        return text.replace("env_kwargs:", "--make:") or name
    return f"{name}: {text}{where}" if text else f"{name}{where}"


def _where(error: BaseException) -> str:
    """Return the line of the user's code at which an error was raised; "" if it was raised in planvec."""
    own = str(Path(__file__).resolve().parent.parent)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.startswith(own):
            return ""
        if "site-packages" not in frame.filename and not frame.filename.startswith("<"):
            return f" ({frame.filename}, line {frame.lineno}; --traceback shows more)"
    return ""


# -- Signals end a command so that it leaves what there is ---------------------------------------------------

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupt(KeyboardInterrupt):
    """Raised by a signal that asks the process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number  # the exit status
        self.text = "interrupted" if number == signal.SIGINT else f"ended by {self}"  # what ended the command


def exit_status(error: KeyboardInterrupt) -> int:
    """Return the exit status after an interrupt."""
    return int(getattr(error, "status", 128 + signal.SIGINT))


@contextlib.contextmanager
def interrupts() -> Iterator[None]:
    """Raise `Interrupt` in the main thread upon Ctrl-C, SIGTERM and SIGHUP."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    wanted = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]  # as nohup does
    before = {number: signal.signal(number, _interrupt) for number in wanted}
    try:
        yield
    finally:
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
        yield lambda: 128 + noted[0] if noted else None
    finally:
        for number in held:
            signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Handle a signal that ends the command."""
    raise Interrupt(number)
