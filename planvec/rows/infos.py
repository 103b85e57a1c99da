"""Stacks infos in Gymnasium's vector form, and merges the infos of the parts of a batch.

`Column`s are stacked in the process that stepped the rows, and merged in the process that asked for the
batch. Merging the columns of the parts gives the same arrays as stacking all rows at once, so the result
cannot depend on how a batch was cut. If all values of a key have one type, the arrays equal those of
`gymnasium.vector.VectorEnv._add_info`. If the types differ, the arrays have the common dtype. (Gymnasium
takes the dtype of the first value and truncates the others.) Letters: B rows.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planvec.errors import EnvError, InvalidBatchError

Columns = dict[str, "Column"]

_NUMBERS = {bool, int, float}


@dataclass(slots=True)
class Column:
    """Holds the values of one info key over B rows."""

    # the Python type of every value; `(dtype, shape)` for arrays; `dict` for nested infos; None if the values
    # have several types
    kind: Any
    # an array `[B, ...]` for numbers and arrays, with zeros for rows without the key; `Columns` for nested
    # infos; otherwise a list of B values, with None for rows without the key
    values: Any
    present: NDArray[np.bool_]  # `[B]` bool, True for the rows that have the key


def check_info_keys(keys: Sequence[str] | None) -> None:
    """Check the argument `info_keys`."""
    if isinstance(keys, str) or not (keys is None or all(isinstance(key, str) for key in keys)):
        raise InvalidBatchError(
            f"info_keys: expected a sequence of strings such as ('lives',), or None for all, got {keys!r}"
        )


def _kind(value: object) -> Any:
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return value.dtype, value.shape
    if isinstance(value, dict):
        return dict
    return type(value)


def _is_number(kind: object) -> bool:
    return kind in _NUMBERS or (isinstance(kind, type) and issubclass(kind, np.number))


def stack_columns(infos: Sequence[Mapping[str, object] | None], keys: Sequence[str] | None = None) -> Columns:
    """Stack one info per row into columns."""
    if not any(infos) or keys == ():
        return {}
    names: dict[str, None] = dict.fromkeys(keys or ())
    if keys is None:
        for info in infos:
            if info:
                names.update(dict.fromkeys(info))
    columns = {}
    for name in names:
        is_present = [info is not None and name in info for info in infos]
        if any(is_present):
            values = [info[name] if info and name in info else None for info in infos]
            columns[name] = _column(values, np.array(is_present, np.bool_))
    return columns


def _column(values: list[Any], present: NDArray[np.bool_]) -> Column:
    kinds: set[Any] = set(map(type, values))
    if not kinds <= _NUMBERS:
        kinds = {_kind(value) for value, has in zip(values, present.tolist(), strict=True) if has}
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is dict:
        return Column(dict, stack_columns(values), present)
    if _is_number(kind) or isinstance(kind, tuple):
        dtype, shape = kind if isinstance(kind, tuple) else (kind, ())
        try:
            stacked: np.ndarray = np.zeros((len(values), *shape), dtype)
            stacked[present] = [v for v, has in zip(values, present.tolist(), strict=True) if has]
        except OverflowError:  # an int beyond 64 bits
            return Column(None, values, present)
        return Column(kind, stacked, present)
    return Column(kind, values, present)


def merge_columns(parts: Sequence[tuple[Columns, int]]) -> Columns:
    """Merge the columns of the parts of a batch into the columns of the batch."""
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
    columns = [column for column, _ in parts if column is not None]
    kind = columns[0].kind
    if any(column.kind != kind for column in columns):
        kind = None
    elif kind is dict:
        nested = [({} if column is None else column.values, size) for column, size in parts]
        return Column(dict, merge_columns(nested), present)
    elif isinstance(columns[0].values, np.ndarray):
        like = columns[0].values
        arrays = [
            np.zeros((size, *like.shape[1:]), like.dtype) if column is None else column.values
            for column, size in parts
        ]
        return Column(kind, np.concatenate(arrays), present)
    rows = [value for column, size in parts for value in row_values(column, size)]
    return Column(kind, rows, present)


def row_values(column: Column | None, size: int) -> list[Any]:
    """Return the values of a column as they were before they were stacked."""
    if column is None:
        return [None] * size
    if column.kind is dict:
        return [
            {key: row_values(child, size)[row] for key, child in column.values.items() if child.present[row]}
            if column.present[row]
            else None
            for row in range(size)
        ]
    if isinstance(column.values, np.ndarray):
        rows = column.values.tolist() if column.kind in (bool, int, float) else column.values
        return [value if has else None for value, has in zip(rows, column.present, strict=True)]
    return list(column.values)


def clear_row(columns: Columns, row: int) -> None:
    """Remove the infos of a row from its columns."""
    for name, column in list(columns.items()):
        column.present[row] = False
        if not column.present.any():
            del columns[name]
        elif column.kind is dict:
            clear_row(column.values, row)
        elif isinstance(column.values, list):
            column.kind, column.values[row] = None, None  # its type cannot always be pickled either
        else:
            column.values[row] = 0


def vector_infos(columns: Columns) -> dict[str, Any]:
    """Return infos in Gymnasium's vector form: per key an array `[B, ...]`, and its mask under `_key`."""
    infos: dict[str, Any] = {}
    for name, column in columns.items():
        values = column.values
        if column.kind is dict:
            values = vector_infos(values)
        elif isinstance(values, list):
            values = _array_of(values, column.present)
        infos[name], infos[f"_{name}"] = values, column.present
    return infos


def _shape_of_numbers(value: object) -> tuple[int, ...] | None:
    """Return the shape of a number, `()`, or of an array of numbers; None for anything else."""
    if isinstance(value, np.ndarray):
        return value.shape if value.dtype.kind in "biufc" else None
    return () if _is_number(_kind(value)) else None


def _array_of(values: list[Any], present: NDArray[np.bool_]) -> np.ndarray:
    """Return one array of values of several types."""
    # It has their common dtype if all are numbers, or arrays of numbers of one shape; else it is of objects.
    given = [value for value, has in zip(values, present, strict=True) if has]
    shapes = {_shape_of_numbers(value) for value in given}
    shape = shapes.pop() if len(shapes) == 1 else None
    if shape is not None:
        array = np.zeros((len(values), *shape), np.result_type(*map(np.asarray, given)))
        array[present] = given
        return array
    objects = np.empty(len(values), object)
    for row, value in enumerate(values):
        objects[row] = value
    return objects


def unpicklable_rows(columns: Columns, path: str = "") -> dict[int, EnvError]:
    """Return the rows whose infos cannot be sent to another process."""
    # Returns row -> an error that names the key, in ascending order. `path`: keys on the way to nested
    # columns.
    errors: dict[int, EnvError] = {}
    for name, column in columns.items():
        if column.kind is dict:
            errors = {**unpicklable_rows(column.values, f"{path}[{name!r}]"), **errors}
        elif isinstance(column.values, list):
            for row, value in enumerate(column.values):
                try:
                    pickle.dumps(value)
                except Exception as error:
                    text = f"info{path}[{name!r}]: {type(value).__name__} cannot be pickled ({error})"
                    named = EnvError(f"{text}; leave it out of the info, with a wrapper", row=row)
                    named.__cause__ = error
                    errors.setdefault(row, named)
    return dict(sorted(errors.items()))


# -- Encodes infos of numbers and arrays as bytes.
#
# Pickling `Column`s with their arrays takes 3 times as long for the lives of a game, and 9 times for the nine
# infos of MuJoCo's Ant (240 us a chunk, instead of 25).

_PYTHON_TYPES = {"bool": bool, "int": int, "float": float}


def encode_columns(columns: Columns) -> bytes | None:
    """Return the columns as bytes; None if one holds anything but numbers and arrays."""
    parts = []
    for name, column in columns.items():
        values, kind = column.values, column.kind
        if not isinstance(name, str) or not isinstance(values, np.ndarray):
            return None
        if values.dtype.names is not None:  # `dtype.str` does not tell the fields
            return None
        kind_name = kind.__name__ if kind in _PYTHON_TYPES.values() else ""
        # Of a bytearray, decoded arrays are writable views.
        data, present = bytearray(values.tobytes()), bytearray(column.present.tobytes())
        parts.append(
            (name, kind_name, isinstance(kind, tuple), values.dtype.str, values.shape, data, present)
        )
    return pickle.dumps(parts, pickle.HIGHEST_PROTOCOL)


def decode_columns(data: bytes) -> Columns:
    """Return the columns that `encode_columns` encoded."""
    columns = {}
    for name, kind, is_array, code, shape, values, present in pickle.loads(data):
        array = np.ndarray(shape, code, values)
        scalar: Any = _PYTHON_TYPES.get(kind, array.dtype.type)
        columns[name] = Column(
            (array.dtype, shape[1:]) if is_array else scalar, array, np.ndarray(shape[:1], np.bool_, present)
        )
    return columns


# -- Reads from infos how many lives of a game are left. Letters: B rows -------------------------------------


class LivesUse(NamedTuple):
    """What needs to know the lives, for errors."""

    setting: str
    without: str  # how to do without lives
    # what to do besides opening the environment with lives in its infos
    first: str = "pass the info of the reset or the step, plan(..., info=start.info), and "


def read_lives(info: Mapping[str, object] | None, use: LivesUse) -> float:
    """Return the lives that are left by the info of a reset or a step."""
    if info is not None and "lives" in info:
        lives = np.asarray(info["lives"])
        if lives.ndim or lives.dtype.kind not in "iuf":
            raise InvalidBatchError(
                f"info: expected a number of 'lives' together with {use.setting}, got {info['lives']!r}"
            )
        return float(lives)
    got = "no info" if info is None else f"an info with {', '.join(info) or 'nothing'}"
    raise InvalidBatchError(
        f"info: expected one with 'lives' together with {use.setting}, got {got}. Where a game has no lives, "
        f"take {use.without}; otherwise {use.first}open the environment by planvec.make(..., "
        "info_keys=('lives',))"
    )


def stacked_lives(infos: Mapping[str, object], rows: NDArray[np.bool_], use: LivesUse) -> NDArray[np.float64]:
    """Return the lives that are left `[B]` by the infos of steps."""
    # `rows`: `[B]`, which rows have to say; those of others may be anything.
    lives = np.asarray(infos.get("lives", np.zeros(len(rows))))
    present = np.asarray(infos.get("_lives", np.full(len(rows), "lives" in infos)))
    missing = np.flatnonzero(rows & ~present)
    if len(missing):
        raise InvalidBatchError(
            f"{use.setting}: expected infos with 'lives', got none in row {missing[0]}. Open the environment "
            f"by planvec.make(..., info_keys=('lives',)); where not every step tells them, take {use.without}"
        )
    if lives.ndim != 1 or lives.dtype.kind not in "iuf":
        raise InvalidBatchError(
            f"{use.setting}: expected numbers of 'lives' in infos, got {lives[:1].tolist()}"
        )
    return lives.astype(np.float64)
