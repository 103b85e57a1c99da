"""Reads the variables that functions hold in their closures."""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any

__all__ = ["cell_contents"]


def cell_contents(cells: Iterable[types.CellType]) -> list[Any]:
    """Return the values of cells, without the variables that have no value yet."""
    contents = []
    for cell in cells:
        try:
            contents.append(cell.cell_contents)
        except ValueError:
            continue
    return contents
