"""The cells of an archive, as a growing table. Letters: N cells, F columns of a cell, K some of the cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planvec.exploring.tables import Blocks, Table


class Arrival(NamedTuple):
    """A step that reaches a cell."""

    key: NDArray[Any]  # `[F]`
    state: Any
    score: float  # sum of the rewards since the start
    num_steps: int  # actions since the start
    ended: bool  # whether the episode has ended
    lives: float  # lives that are left; NaN if unknown


class CellStore:
    """Holds the best known state of each cell."""

    # Columns: `keys` `[N, F]`, `scores`, `num_steps`, `num_visits`, `num_choices`, `first_visits`, `ended`,
    # `nodes` (in the tree of steps) and `lives`, `[N]` each.

    def __init__(self, start: Arrival) -> None:
        self._table = Table(
            {
                "keys": (start.key.dtype, start.key.shape),
                "scores": (np.float64, ()),
                "num_steps": (np.int64, ()),
                "num_visits": (np.int64, ()),
                "num_choices": (np.int64, ()),
                "first_visits": (np.int64, ()),
                "ended": (np.bool_, ()),
                "nodes": (np.int64, ()),
                "lives": (np.float64, ()),
            }
        )
        is_record = isinstance(start.state, np.void)
        self._states = Blocks(start.state.dtype if is_record else np.dtype(object))
        self._index: dict[bytes, int] = {}
        self.changed: set[int] = set()  # cells whose best state has changed since the archive was saved
        self.put(start, 0, 0)

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return a column as a view, which the next `put` may replace."""
        return self._table[name]

    def states(self, cells: NDArray[np.integer[Any]]) -> NDArray[Any]:
        """Return a copy of the states of some cells, `[K]`."""
        return self._states.take(cells)

    # -- adding ---------------------------------------------------------------------------------------

    def visit(self, arrival: Arrival) -> bool:
        """Count a visit, and return whether the cell is new, or was reached better than before."""
        index = self._index.get(_name(arrival.key, arrival.ended))
        if index is None:
            return True
        table = self._table
        table["num_visits"][index] += 1
        score = table["scores"][index]
        return bool(
            arrival.score > score
            or (arrival.score == score and arrival.num_steps < table["num_steps"][index])
        )

    def put(self, arrival: Arrival, node: int, num_env_steps: int) -> int:
        """Make a state the best one of its cell."""
        # Returns the cell.
        name = _name(arrival.key, arrival.ended)
        index = self._index.get(name)
        if index is None:
            index = self._index[name] = self._table.add(
                keys=arrival.key, ended=arrival.ended, num_visits=1, first_visits=num_env_steps
            )
        self._table["scores"][index] = arrival.score
        self._table["num_steps"][index] = arrival.num_steps
        self._table["nodes"][index] = node
        self._table["lives"][index] = arrival.lives
        self._states.put(index, arrival.state)
        self.changed.add(index)
        return index

    def choose(self, cells: NDArray[np.int64]) -> None:
        """Count that exploration begins at some cells, `[K]`."""
        np.add.at(self._table["num_choices"], cells, 1)

    # -- the content of files -----------------------------------------------------------------------

    def columns(self, names: Sequence[str], cells: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Return columns of the table of cells, `[K, ...]` each."""
        return {name: self._table[name][cells] for name in names}

    def set_columns(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Replace columns of counts, `[N]` each."""
        self._table.check(columns, len(self))
        for name, column in columns.items():
            if (column < 0).any():
                raise ValueError(f"{name}: expected numbers of at least 0")
            self._table[name][:] = column

    def restore(
        self, cells: NDArray[np.int64], columns: Mapping[str, NDArray[Any]], states: NDArray[Any]
    ) -> None:
        """Write rows of the table of cells; new ones follow the last one."""
        if cells.dtype != np.int64 or cells.ndim != 1 or states.shape != cells.shape:
            raise ValueError("cells: expected integers [K], and as many states")
        self._table.check(columns, len(cells))
        if not np.isfinite(columns["scores"]).all():
            raise ValueError("scores: expected finite numbers")
        new = np.flatnonzero(cells >= len(self))
        if (cells < 0).any() or (cells[new] != np.arange(len(new)) + len(self)).any():
            raise ValueError("cells are missing")
        zeros = np.zeros(len(new), np.int64)
        counts = {"num_visits": zeros, "num_choices": zeros}
        self._table.extend({**{name: column[new] for name, column in columns.items()}, **counts})
        for name, column in columns.items():
            self._table[name][cells] = column
        for row, cell in enumerate(cells.tolist()):
            self._index[_name(self._table["keys"][cell], bool(self._table["ended"][cell]))] = cell
            self._states.put(cell, states[row])

    def replace_states(self, states: NDArray[Any]) -> None:
        """Replace the states of all cells, `[N]`."""
        self._states = Blocks(states.dtype)
        for cell in range(len(self)):
            self._states.put(cell, states[cell])
        self.changed.update(range(len(self)))


def _name(key: NDArray[Any], ended: bool) -> bytes:
    """Return what identifies a cell."""
    return key.tobytes() + bytes([ended])
