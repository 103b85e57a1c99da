"""What an archive consists of. Letters: N cells, F columns of a cell, K some of the cells, R rounds."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

# -- Arrays that grow at their end. Letters: N rows, K rows of some indices ----------------------------------

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


# -- The steps that lead to the cells of an archive, as a tree. Letters: M nodes, T steps of a path ----------


class StepTree:
    """Holds steps; each one follows its parent. Node 0 is the start of the episode."""

    def __init__(self, action_space: Space[Any], has_seeds: bool) -> None:
        self._columns: dict[str, tuple[Any, tuple[int, ...]]] = {
            "parents": (np.int64, ()),
            "depths": (np.int64, ()),
            "actions": (action_space.dtype, action_space.shape or ()),
        }
        if has_seeds:
            self._columns["seeds"] = (np.uint64, ())
        self.has_seeds = has_seeds
        self._table = Table(self._columns)
        self._table.add(parents=-1)

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return a column `[M, ...]`: "parents", "depths" (steps from the start), "actions" or "seeds"."""
        return self._table[name]

    def add(self, parent: int, action: Any, seed: int | None) -> int:
        """Append a step after another one and return its node."""
        values = {"actions": action, "depths": int(self._table["depths"][parent]) + 1, "parents": parent}
        if seed is not None:
            values["seeds"] = seed
        return self._table.add(**values)

    def path(self, node: int) -> NDArray[np.int64]:
        """Return the nodes from the first step to a node, `[T]`."""
        parents, nodes = self._table["parents"], []
        while node > 0:
            nodes.append(node)
            node = int(parents[node])
        return np.array(nodes[::-1], np.int64)

    def levels(self) -> Iterator[NDArray[np.int64]]:
        """Yield the nodes of each depth, from depth 1 on."""
        depths = self._table["depths"]
        order = np.argsort(depths, kind="stable")
        starts = np.searchsorted(depths[order], np.arange(1, int(depths.max()) + 2))
        for start, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            yield order[start:stop]

    def ancestors_of(self, nodes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which nodes lead to some nodes, these and the start included, `[M]`."""
        parents, leads = self._table["parents"], np.zeros(len(self), np.bool_)
        leads[0] = True
        rest = nodes
        while len(rest):
            rest = np.unique(rest[~leads[rest]])
            leads[rest] = True
            rest = parents[rest]
        return leads

    def keep(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Forget all steps but those that lead to some nodes; return the new numbers of these nodes."""
        is_kept = self.ancestors_of(nodes)
        kept = np.flatnonzero(is_kept)  # parents stay before their children
        numbers = np.cumsum(is_kept) - 1
        columns = {name: self._table[name][kept] for name in self._columns}
        columns["parents"] = np.where(columns["parents"] < 0, -1, numbers[columns["parents"]])
        self._table = Table(self._columns)
        self._table.extend(columns)
        renumbered: NDArray[np.int64] = numbers[nodes]
        return renumbered

    def to_arrays(self, first: int) -> dict[str, NDArray[Any]]:
        """Return the columns from a node on."""
        return {name: self._table[name][first:] for name in self._columns if name != "depths"}

    def extend(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Append steps that `to_arrays` returned."""
        start, parents = len(self), arrays["parents"]
        given = {name: arrays[name] for name in self._columns if name != "depths"}
        self._table.check(given, len(parents))
        numbers = np.arange(start, start + len(parents))
        if ((parents < 0) | (parents >= numbers)).any():
            raise ValueError("steps without the step before them")
        depths = np.zeros(len(parents), np.int64)
        known = self._table["depths"]
        for row, parent in enumerate(parents.tolist()):
            depths[row] = 1 + (known[parent] if parent < start else depths[parent - start])
        self._table.extend({**given, "depths": depths})


# -- The cells of an archive, as a growing table. Letters: N cells, F columns of a cell, K some of the cells


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


class Origin(NamedTuple):
    """What an archive begins with."""

    seed: int  # seed of the reset, after which all trajectories begin
    dt: int  # environment steps for which each action is repeated
    action_space: Space[Any]
    is_stochastic: bool  # whether steps have seeds
    fingerprint: str  # that of the environment; "" if it has none
    settings: dict[str, str]  # those of the exploration, as text


class Contents:
    """Holds the cells of an archive, the steps that lead to them, and where the exploration stands.

    Args:
        origin: What it begins with.
        start: The first cell.

    Attributes:
        origin: Where all trajectories begin, and the environment.
        num_env_steps: Environment steps that were simulated.
        generator: The source of every random choice of the exploration.
        steps: The steps that lead to the cells.
        store: The cells.
        was_replayed: Whether the states were computed again when the archive was loaded.
        identity: Of the archive, in any form.
        saved_as: The form in which it was saved last.
    """

    def __init__(self, origin: Origin, start: Arrival) -> None:
        self.origin = origin
        self.num_env_steps = 0
        self.generator = np.random.default_rng(origin.seed)
        self.store = CellStore(start)
        self._history: list[tuple[int, int, float]] = []
        self.steps = StepTree(origin.action_space, origin.is_stochastic)
        self.was_replayed = False
        self.identity = secrets.token_hex(8)
        self.saved_as = ""

    @property
    def num_cells(self) -> int:
        """N."""
        return len(self.store)

    @property
    def best(self) -> int:
        """The cell with the highest score; of those the one with the fewest steps.

        Where rewards are costs, the start has the highest score; then it is the best end of an episode.
        """
        scores, num_steps, ended = self.store["scores"], self.store["num_steps"], self.store["ended"]
        candidates = ended if scores.max() <= 0 and ended.any() else np.ones(len(scores), np.bool_)
        highest = np.flatnonzero(candidates & (scores == scores[candidates].max()))
        return int(highest[num_steps[highest].argmin()])

    @property
    def history(self) -> NDArray[np.float64]:
        """`[R, 3]`: environment steps, number of cells and score of the best cell after each round."""
        return np.array(self._history, np.float64).reshape(-1, 3)

    def states(self, cells: Any) -> NDArray[Any]:
        """Return the best states of some cells.

        Args:
            cells: `[K]` integers.

        Returns:
            `[K]` states.

        Raises:
            IndexError: There is no such cell.
        """
        rows = np.atleast_1d(np.asarray(cells))
        if rows.dtype.kind not in "iu" or ((rows < 0) | (rows >= self.num_cells)).any():
            raise IndexError(f"cells: expected integers from 0 to {self.num_cells - 1}, got {cells!r}")
        return self.store.states(rows)

    def end_round(self) -> None:
        """Add a row to the history."""
        self._history.append((self.num_env_steps, self.num_cells, float(self.store["scores"][self.best])))

    def set_history(self, history: NDArray[np.float64]) -> None:
        """Replace the history, `[R, 3]`.

        Raises:
            ValueError: It has another form.
        """
        if history.ndim != 2 or history.shape[1] != 3 or history.dtype != np.float64:
            raise ValueError("history: expected [R, 3]")
        self._history = [(int(steps), int(cells), float(score)) for steps, cells, score in history.tolist()]

    def check_nodes(self, num_nodes: int) -> None:
        """Check that the steps of files lead to the cells.

        Args:
            num_nodes: The number of nodes that there should be.

        Raises:
            ValueError: They do not.
        """
        nodes = self.store["nodes"]
        if len(self.steps) != num_nodes or ((nodes < 0) | (nodes >= num_nodes)).any():
            raise ValueError("steps are missing")
        if (self.steps["depths"][nodes] != self.store["num_steps"]).any():
            raise ValueError("steps lead elsewhere")

    def forget_steps(self) -> None:
        """Forget the steps that lead to no cell any more."""
        self.store["nodes"][:] = self.steps.keep(self.store["nodes"])
