"""Encodes infos of numbers and arrays as bytes, which costs less than pickling them."""

from __future__ import annotations

import itertools
import json
import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from planvec.rows.infos import Column, Columns

_PYTHON_TYPES = {"bool": bool, "int": int, "float": float}
# The values of a column start at a multiple of this number of bytes, like arrays that NumPy allocates. The
# flags of the rows that have the key follow after the values of all columns.
_ALIGNMENT = 16


class _Layout(NamedTuple):
    """Describes the bytes of one column."""

    name: str  # the info key
    kind: Any  # `Column.kind`
    dtype: np.dtype[Any]  # of the values
    shape: tuple[int, ...]  # of the values, `[B, ...]`
    start: int  # first byte of the values
    present: int  # first byte of the flags of the rows that have the key


def encode_columns(columns: Columns) -> bytes | None:
    """Return the columns as bytes without pickling; None if one holds anything but numbers and arrays."""
    header = _header(columns)
    if header is None:
        return None
    text = json.dumps(header).encode()
    parts = [len(text).to_bytes(4, "little"), text]
    for column in columns.values():
        data = column.values.tobytes()
        padding = -len(data) % _ALIGNMENT
        parts.append(data + b"\0" * padding if padding else data)
    parts.extend(column.present.tobytes() for column in columns.values())
    return b"".join(parts)


def _header(columns: Columns) -> list[Any] | None:
    """Return the name, type, dtype and shape of each column; None if one cannot be encoded."""
    header = []
    for name, column in columns.items():
        if not isinstance(name, str) or not isinstance(column.values, np.ndarray):
            return None
        if column.values.dtype.names is not None:  # `dtype.str` does not tell the fields
            return None
        kind = column.kind.__name__ if column.kind in _PYTHON_TYPES.values() else ""
        is_array = isinstance(column.kind, tuple)
        header.append([name, kind, is_array, column.values.dtype.str, column.values.shape])
    return header


def decode_columns(data: bytes) -> Columns:
    """Return the columns that `encode_columns` encoded."""
    start = 4 + int.from_bytes(data[:4], "little")
    content = bytearray(data[start:])  # the arrays are writable views of one copy
    return {
        layout.name: Column(
            layout.kind,
            np.ndarray(layout.shape, layout.dtype, content, layout.start),
            np.ndarray(layout.shape[:1], np.bool_, content, layout.present),
        )
        for layout in _layouts(data[4:start])
    }


@lru_cache(maxsize=256)
def _layouts(text: bytes) -> list[_Layout]:
    """Return the layout that a header describes. The chunks of a batch often have the same one."""
    header = [
        (name, kind, is_array, np.dtype(code), tuple(shape))
        for name, kind, is_array, code, shape in json.loads(text)
    ]
    sizes = [dtype.itemsize * math.prod(shape) for *_, dtype, shape in header]
    starts = [0, *itertools.accumulate(size + -size % _ALIGNMENT for size in sizes)]
    present = starts[-1]
    layouts = []
    for (name, kind, is_array, dtype, shape), start in zip(header, starts, strict=False):
        scalar: Any = _PYTHON_TYPES.get(kind, dtype.type)
        layouts.append(
            _Layout(name, (dtype, shape[1:]) if is_array else scalar, dtype, shape, start, present)
        )
        present += shape[0]
    return layouts
