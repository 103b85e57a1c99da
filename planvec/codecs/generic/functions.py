"""Reads what functions use: the variables in their closures, and the names in their code."""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any


def cell_contents(cells: Iterable[types.CellType]) -> list[Any]:
    """Return the values of cells, without the variables that have no value yet."""
    contents = []
    for cell in cells:
        try:
            contents.append(cell.cell_contents)
        except ValueError:
            continue
    return contents


def names_in_code(code: types.CodeType) -> set[str]:
    """Return the names of attributes and of globals in the code of a function and of functions inside it."""
    inner = (names_in_code(part) for part in code.co_consts if isinstance(part, types.CodeType))
    return set(code.co_names).union(*inner)
