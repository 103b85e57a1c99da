"""Prints messages for people."""

from __future__ import annotations

import sys

__all__ = ["warn"]


def warn(text: str) -> None:
    """Print a line to the standard error stream, if it is open."""
    if sys.stderr is not None:
        print(text, file=sys.stderr)
