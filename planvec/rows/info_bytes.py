"""Encodes infos of numbers and arrays as bytes, which costs less than pickling them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from planvec.rows.infos import Column, Columns

__all__ = ["decode_columns", "encode_columns"]

_PYTHON_TYPES = {"bool": bool, "int": int, "float": float}


def encode_columns(columns: Columns) -> bytes | None:
    """Return the columns as bytes without pickling; None if one holds anything but numbers and arrays."""
    header = _header(columns)
    if header is None:
        return None
    text = json.dumps(header).encode()
    arrays = [array for column in columns.values() for array in (column.values, column.present)]
    parts = [len(text).to_bytes(4, "little"), text, *(array.tobytes() for array in arrays)]
    return b"".join(parts)


def _header(columns: Columns) -> list[Any] | None:
    """Return the name, type, dtype and shape of each column; None if one cannot be encoded."""
    header = []
    for name, column in columns.items():
        if not isinstance(name, str) or not isinstance(column.values, np.ndarray):
            return None
        kind = column.kind.__name__ if column.kind in _PYTHON_TYPES.values() else ""
        is_array = isinstance(column.kind, tuple)
        header.append([name, kind, is_array, column.values.dtype.str, column.values.shape])
    return header


def decode_columns(data: bytes) -> Columns:
    """Return the columns that `encode_columns` encoded."""
    start = 4 + int.from_bytes(data[:4], "little")
    columns = {}
    for name, kind, is_array, code, shape in json.loads(data[4:start]):
        dtype = np.dtype(code)
        size = int(np.prod(shape)) * dtype.itemsize
        values = np.frombuffer(data[start : start + size], dtype).reshape(shape).copy()
        start += size
        present = np.frombuffer(data[start : start + shape[0]], np.bool_).copy()
        start += shape[0]
        scalar: Any = _PYTHON_TYPES.get(kind, dtype.type)
        columns[name] = Column((dtype, tuple(shape[1:])) if is_array else scalar, values, present)
    return columns
