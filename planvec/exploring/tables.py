"""Arrays that grow at their end. Letters: N rows, K rows of some indices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BLOCK = 4096
_FIRST = 256


class Table:
    """Columns of equal length, which grow at their end."""

    # `columns`: Name of a column -> its dtype and the shape of one entry.

    def __init__(self, columns: Mapping[str, tuple[Any, tuple[int, ...]]]) -> None:
        self._size = 0
        self._columns = {name: np.zeros((_FIRST, *shape), dtype) for name, (dtype, shape) in columns.items()}

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return a column `[N, ...]` as a view, which the next `add` may replace."""
        return self._columns[name][: self._size]

    def add(self, **values: Any) -> int:
        """Append one row; columns without a value get zeros. Return its index."""
        row = self._size
        self._grow(row + 1)
        for name, value in values.items():
            self._columns[name][row] = value
        return row

    def extend(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Append rows, `[K, ...]` of every column."""
        start, size = self._size, len(next(iter(columns.values())))
        self._grow(start + size)
        for name, column in self._columns.items():
            column[start : self._size] = columns[name]

    def check(self, columns: Mapping[str, NDArray[Any]], num_rows: int) -> None:
        """Check that columns, which may come from a file, have the types and the shapes of the table."""
        for name, column in columns.items():
            expected = self._columns[name]
            shape = (num_rows, *expected.shape[1:])
            if column.dtype != expected.dtype or column.shape != shape:
                raise ValueError(f"{name}: expected {expected.dtype} of shape {shape}")

    def _grow(self, size: int) -> None:
        """Make room for as many rows, and count them."""
        for name, column in self._columns.items():
            if size > len(column):
                larger = np.zeros((max(size, len(column) * 3 // 2), *column.shape[1:]), column.dtype)
                larger[: self._size] = column[: self._size]
                self._columns[name] = larger
        self._size = size


class Blocks:
    """An array of states that grows block by block, so that large ones are never copied."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._blocks: list[NDArray[Any]] = []

    def put(self, row: int, state: Any) -> None:
        """Write the state of a row; a new row is the next one."""
        block = row // _BLOCK
        if block == len(self._blocks):
            self._blocks.append(np.empty(_BLOCK, self._dtype))
        self._blocks[block][row % _BLOCK] = state

    def take(self, rows: NDArray[np.integer[Any]]) -> NDArray[Any]:
        """Return a copy of some rows, `[K]`."""
        states = np.empty(len(rows), self._dtype)
        for index, row in enumerate(rows.tolist()):
            states[index] = self._blocks[row // _BLOCK][row % _BLOCK]
        return states
