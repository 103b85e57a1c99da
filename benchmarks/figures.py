"""Print what a benchmark measures: text for people, or lines `name value` for `paired.py`."""

from __future__ import annotations

import argparse

__all__ = ["Figures", "add_plain"]


def add_plain(parser: argparse.ArgumentParser) -> None:
    """Add the option `--plain` to the command line of a benchmark."""
    parser.add_argument("--plain", action="store_true", help="print lines `name value`, for paired.py")


class Figures:
    """Prints either text or figures. A benchmark gives both, as soon as they are known.

    Args:
        plain: Whether to print figures.
    """

    def __init__(self, plain: bool) -> None:
        self._plain = plain

    def text(self, line: str) -> None:
        """Print a line for people."""
        if not self._plain:
            print(line, flush=True)

    def figure(self, name: str, value: float) -> None:
        """Print a figure.

        Args:
            name: Parts with slashes in between. The last one is the unit, perhaps after a word: "us",
                "of_limit_share", "per_s". Blanks become underscores.
            value: The number.
        """
        if self._plain:
            print(name.replace(", ", "_").replace(" ", "_"), repr(float(value)), flush=True)
