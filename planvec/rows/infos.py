"""Infos in Gymnasium's vector form, stacked in parts so that the parts do not show.

`Column`s are stacked where the rows were stepped and merged where the batch came from. Merging
the columns of the parts gives what stacking all rows at once gives: the result cannot depend on
how a batch was cut. Where all values of a key are of one type, the arrays are those of
`gymnasium.vector.VectorEnv._add_info`; where they differ, the dtype is the common one (Gymnasium
takes the first value's and truncates the others).
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.errors import EnvError, InvalidBatchError

__all__ = [
    "Column",
    "Columns",
    "check_info_keys",
    "forget_row",
    "merge_columns",
    "stack_columns",
    "unpicklable_rows",
    "vector_infos",
]

Columns = dict[str, "Column"]


@dataclass(slots=True)
class Column:
    """The values of one info key over B rows.

    Attributes:
        kind: The Python type of every value, or `(dtype, shape)` for arrays; `dict` for nested
            infos; None where the values are of several kinds.
        values: An array `[B, ...]` (zeros where absent) for numbers and arrays, `Columns` for
            nested infos, else a list of B values (None where absent).
        present: `[B]` bool, which rows have the key.
    """

    kind: Any
    values: Any
    present: NDArray[np.bool_]


def check_info_keys(keys: Sequence[str] | None) -> None:
    """Check which infos are asked for.

    Raises:
        InvalidBatchError: Not a sequence of strings.
    """
    if isinstance(keys, str) or not (keys is None or all(isinstance(key, str) for key in keys)):
        raise InvalidBatchError(
            f"info_keys: expected a sequence of strings such as ('lives',), or None for all, got {keys!r}"
        )


def _kind(value: Any) -> Any:
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return value.dtype, value.shape
    if isinstance(value, dict):
        return dict
    return type(value)


def _is_number(kind: Any) -> bool:
    return kind in (bool, int, float) or (isinstance(kind, type) and issubclass(kind, np.number))


def stack_columns(infos: Sequence[Mapping[str, Any] | None], keys: Sequence[str] | None = None) -> Columns:
    """Columns from one info per row.

    Args:
        infos: B infos; None or empty where a row has none.
        keys: The keys to keep; None keeps all.
    """
    if not any(infos) or keys == ():
        return {}
    names: dict[str, None] = dict.fromkeys(keys or ())
    if keys is None:
        for info in infos:
            if info:
                names.update(dict.fromkeys(info))
    columns = {}
    for name in names:
        present = np.array([info is not None and name in info for info in infos], np.bool_)
        if present.any():
            values = [info[name] if has and info else None for info, has in zip(infos, present, strict=True)]
            columns[name] = _column(values, present)
    return columns


def _column(values: list[Any], present: NDArray[np.bool_]) -> Column:
    kinds = {_kind(value) for value, has in zip(values, present, strict=True) if has}
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is dict:
        return Column(dict, stack_columns(values), present)
    if _is_number(kind) or isinstance(kind, tuple):
        dtype, shape = kind if isinstance(kind, tuple) else (kind, ())
        try:
            stacked = np.zeros((len(values), *shape), dtype)
            stacked[present] = [v for v, has in zip(values, present, strict=True) if has]
        except OverflowError:  # an int beyond 64 bits
            return Column(None, values, present)
        return Column(kind, stacked, present)
    return Column(kind, values, present)


def merge_columns(parts: Sequence[tuple[Columns, int]]) -> Columns:
    """The columns of a batch from those of its parts.

    Args:
        parts: Each part's columns and number of rows, in order.
    """
    if len(parts) == 1:
        return parts[0][0]
    names: dict[str, None] = {}
    for columns, _ in parts:
        names.update(dict.fromkeys(columns))
    return {name: _merge([(part.get(name), size) for part, size in parts]) for name in names}


def _merge(parts: list[tuple[Column | None, int]]) -> Column:
    present = np.concatenate(
        [np.zeros(size, bool) if column is None else column.present for column, size in parts]
    )
    found = [column for column, _ in parts if column is not None]
    kind = found[0].kind
    if any(column.kind != kind for column in found):
        rows = [value for column, size in parts for value in _row_values(column, size)]
        return Column(None, rows, present)
    if kind is dict:
        nested = [({} if column is None else column.values, size) for column, size in parts]
        return Column(dict, merge_columns(nested), present)
    if isinstance(found[0].values, np.ndarray):
        blank = found[0].values
        arrays = [
            np.zeros((size, *blank.shape[1:]), blank.dtype) if column is None else column.values
            for column, size in parts
        ]
        return Column(kind, np.concatenate(arrays), present)
    rows = [value for column, size in parts for value in _row_values(column, size)]
    return Column(kind, rows, present)


def _row_values(column: Column | None, size: int) -> list[Any]:
    """The values of a column as they were before they were stacked."""
    if column is None:
        return [None] * size
    if column.kind is dict:
        return [
            {key: _row_values(child, size)[row] for key, child in column.values.items() if child.present[row]}
            if column.present[row]
            else None
            for row in range(size)
        ]
    if isinstance(column.values, np.ndarray):
        rows = column.values.tolist() if column.kind in (bool, int, float) else column.values
        return [value if has else None for value, has in zip(rows, column.present, strict=True)]
    return list(column.values)


def forget_row(columns: Columns, row: int) -> None:
    """Take the infos of a row away."""
    for name, column in list(columns.items()):
        column.present[row] = False
        if not column.present.any():
            del columns[name]
        elif column.kind is dict:
            forget_row(column.values, row)
        elif isinstance(column.values, list):
            column.kind, column.values[row] = None, None  # nor is its type to be sent
        else:
            column.values[row] = 0


def vector_infos(columns: Columns) -> dict[str, Any]:
    """Gymnasium's vector form: for each key an array `[B, ...]`, and its mask under `_key`."""
    infos: dict[str, Any] = {}
    for name, column in columns.items():
        values = column.values
        if column.kind is dict:
            values = vector_infos(values)
        elif isinstance(values, list):
            values = _array_of(values, column.present)
        infos[name], infos[f"_{name}"] = values, column.present
    return infos


def _array_of(values: list[Any], present: NDArray[np.bool_]) -> NDArray[Any]:
    """One array of values of several kinds: of the common dtype where all are numbers."""
    found = [value for value, has in zip(values, present, strict=True) if has]
    kinds = [_kind(value) for value in found]
    if all(_is_number(kind) for kind in kinds):
        array = np.zeros(len(values), np.result_type(*(np.asarray(value) for value in found)))
        array[present] = found
        return array
    objects = np.empty(len(values), object)
    for row, value in enumerate(values):
        objects[row] = value
    return objects


def unpicklable_rows(columns: Columns, path: str = "") -> dict[int, EnvError]:
    """The rows with a value that cannot be sent to another process, and errors that name its key."""
    found: dict[int, EnvError] = {}
    for name, column in columns.items():
        if column.kind is dict:
            found = {**unpicklable_rows(column.values, f"{path}[{name!r}]"), **found}
        elif isinstance(column.values, list):
            for row, value in enumerate(column.values):
                try:
                    pickle.dumps(value)
                except Exception as error:
                    text = f"info{path}[{name!r}]: {type(value).__name__} cannot be pickled ({error})"
                    named = EnvError(f"{text}; leave it out with info_keys=", row=row)
                    named.__cause__ = error
                    found.setdefault(row, named)
    return dict(sorted(found.items()))
