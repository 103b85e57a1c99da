"""Defines the parser of the command line: errors are one line with the cause and the fix."""

from __future__ import annotations

import argparse
import difflib
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

FAILED = 1
USAGE_ERROR = 2
INTERRUPTED = 130  # exit statuses


class UsageError(Exception):
    """Raised when arguments are wrong. The message is one line."""


class Parser(argparse.ArgumentParser):
    """Raises `UsageError` instead of printing the usage and exiting."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*args, **kwargs)

    def error(self, message: str) -> NoReturn:
        """Raise the error."""
        raise UsageError(f"{message}; see {self.prog} --help")


def add_json(parser: argparse._ActionsContainer) -> None:
    """Add `--json`."""
    text = "print the result, or an error, as one JSON object"
    parser.add_argument("--json", action="store_true", help=text)


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the word that resembles another one most; "" if none does."""
    by_key = {known.lower(): known for known in words}
    close = difflib.get_close_matches(word.lower(), list(by_key), n=1)
    return f"; did you mean {by_key[close[0]]!r}?" if close else ""


def listed(words: Sequence[str]) -> str:
    """Return words as "a, b and c"."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


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
