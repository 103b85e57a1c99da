"""What is raised for an exception of the user's environment."""

from __future__ import annotations

import signal
from typing import Any

from planvec.errors import EnvError, UnsupportedEnvError

__all__ = ["as_env_error"]


def as_env_error(
    error: BaseException, row: int | None = None, action: Any = None, where: str = ""
) -> BaseException:
    """Return what to raise for an exception that came out of an environment.

    Args:
        error: The exception.
        row: The row at work, or None.
        action: Its action, or None.
        where: Begins the message.

    Returns:
        An `EnvError`; the exception itself if it is the user's Ctrl-C or an `UnsupportedEnvError`.
    """
    if isinstance(error, KeyboardInterrupt) and not _ignores_interrupts():
        return error
    if isinstance(error, UnsupportedEnvError):
        return error
    detail = f"{type(error).__name__}: {_text_of(error)}"
    if isinstance(error, EnvError):
        detail, row = error.detail, row if error.row is None else error.row
    return EnvError(where + detail, row=row, action=action)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as another:
        return f"(its text cannot be had: {type(another).__name__})"


def _ignores_interrupts() -> bool:
    """Return whether Ctrl-C cannot reach this process, as in workers: then the environment raised it."""
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN
