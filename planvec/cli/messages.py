"""Prints messages for people, and errors in one line."""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path


def warn(text: str) -> None:
    """Print a line to the standard error stream, if it is open and there is one."""
    if text and sys.stderr is not None:
        print(text, file=sys.stderr)


def print_error(text: str, *, as_json: bool) -> None:
    """Print an error: one line on the standard error stream, or a JSON object on the standard output."""
    if as_json:
        print(json.dumps({"error": text}))
    else:
        warn(f"planvec: error: {text}")


def one_line(error: BaseException) -> str:
    """Return an error in one line: its type unless planvec wrote the message, and where it was raised."""
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
