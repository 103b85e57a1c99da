"""Converts the infos of rows between the forms of the interfaces.

    VECTOR   Gymnasium's: per key an array `[B, ...]` and its mask under `_key`. The worker stacks them.
    ROWS     one dict per row that has an info, as stable-baselines3 and DI-engine want them

Letters: B rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.rows import (
    Column,
    Columns,
    decode_columns,
    encode_columns,
    merge_columns,
    own_copy,
    row_values,
    stack_columns,
    vector_infos,
)
from planvec.vector.env_row import Ending

# the info of one row, and the end of its episode if the row was reset within the same step
RowInfo = tuple[dict[str, Any], Ending | None]


class InfoForm(Enum):
    """Names the form in which infos are returned."""

    VECTOR = "vector"
    ROWS = "rows"


def pack_infos(
    infos: Sequence[dict[str, Any]], endings: Mapping[int, Ending], form: InfoForm, as_bytes: bool
) -> Any:
    """Return the infos of rows in a compact form."""
    # `as_bytes`: Whether they go to another process. Then columns are encoded as bytes if possible.
    if not endings and not any(infos):
        return None
    if not as_bytes:  # the environment may change them later
        infos = [kept(info) for info in infos]
        endings = {row: (kept(observation), kept(info)) for row, (observation, info) in endings.items()}
    if form is InfoForm.ROWS:
        return {row: (info, endings.get(row)) for row, info in enumerate(infos) if info or row in endings}
    if endings:
        infos = list(infos)
        for row, (observation, reset_info) in endings.items():
            infos[row] = {"final_info": infos[row], "final_obs": observation, **reset_info}
    columns = stack_columns(infos)
    encoded = encode_columns(columns) if as_bytes else None
    return columns if encoded is None else encoded


def kept(value: Any) -> Any:
    """Return a copy that nobody else changes; the value itself, or parts of it, where it cannot be copied."""
    try:
        return own_copy(value)
    except Exception:  # a lock, a generator: another process would not get it at all
        return {key: kept(item) for key, item in value.items()} if type(value) is dict else value


def unpack_infos(packed: Any) -> Any:
    """Return what `pack_infos` returned, decoded."""
    return decode_columns(packed) if isinstance(packed, bytes) else packed


def join_infos(parts: Sequence[tuple[Any, int]], form: InfoForm, order: NDArray[np.intp] | None) -> Any:
    """Join the infos of the parts of a batch."""
    # Returns vECTOR: the infos in Gymnasium's form. ROWS: row -> `RowInfo`, without the rows that have none.
    if all(part is None for part, _ in parts):
        return {}
    if form is InfoForm.ROWS:
        return _join_rows(parts, order)
    columns = merge_columns([(part or {}, size) for part, size in parts])
    if order is not None:
        columns = _reordered(columns, order)
    infos = vector_infos(columns)
    if "final_obs" in columns:
        infos["final_obs"] = _objects(columns["final_obs"])
    return infos


def _join_rows(parts: Sequence[tuple[Any, int]], order: NDArray[np.intp] | None) -> dict[int, RowInfo]:
    rows: dict[int, RowInfo] = {}
    start = 0
    for part, size in parts:
        rows |= {start + row: info for row, info in (part or {}).items()}
        start += size
    if order is None:
        return rows
    return {position: rows[row] for position, row in enumerate(order.tolist()) if row in rows}


def _objects(column: Column) -> NDArray[Any]:
    """Return the values of a column as an array of objects, which Gymnasium's `final_obs` is."""
    num_rows = len(column.present)
    objects = np.empty(num_rows, object)
    for row, value in enumerate(row_values(column, num_rows)):
        objects[row] = value
    return objects


def _reordered(columns: Columns, order: NDArray[np.intp]) -> Columns:
    def reorder(values: Any) -> Any:
        if isinstance(values, dict):
            return _reordered(values, order)
        return [values[row] for row in order] if isinstance(values, list) else values[order]

    return {
        name: Column(column.kind, reorder(column.values), column.present[order])
        for name, column in columns.items()
    }
