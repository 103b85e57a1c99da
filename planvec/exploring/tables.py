"""The tables of an archive, which grow at their end: its cells, and the steps that lead to them.

Letters: N rows or cells, K some of them, F columns of a cell, M nodes of a tree of steps, T steps of a path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

_FIRST = 256
BLOCK = 4096  # states that are allocated, written and stepped again at once


class Table:
    """Columns of equal length, which grow at their end."""

    # `columns`: Name of a column -> its dtype and the shape of one entry.

    def __init__(self, columns: Mapping[str, tuple[Any, tuple[int, ...]]]) -> None:
        self._size = 0
        self._columns = {name: np.zeros((_FIRST, *shape), dtype) for name, (dtype, shape) in columns.items()}

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return a column `[N, ...]` as a view, which the next `append` may replace."""
        return self._columns[name][: self._size]

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return all columns, as views."""
        return {name: self[name] for name in self._columns}

    def append(self, **values: Any) -> int:
        """Append one row; columns without a value get zeros. Return its index."""
        row = self._size
        for name, column in self._columns.items():
            if row == len(column):
                larger = np.zeros((len(column) * 3 // 2 + 1, *column.shape[1:]), column.dtype)
                larger[:row] = column
                self._columns[name] = larger
        self._size += 1
        for name, value in values.items():
            self._columns[name][row] = value
        return row

    def replace(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Replace all rows, after a check of the types and the shapes: they may come from a file."""
        num_rows = len(columns[next(iter(self._columns))])
        for name, column in self._columns.items():
            shape = (num_rows, *column.shape[1:])
            if columns[name].dtype != column.dtype or columns[name].shape != shape:
                raise ValueError(f"{name}: expected {column.dtype} of shape {shape}")
        self._columns = {name: np.array(columns[name]) for name in self._columns}
        self._size = num_rows


class StepTree(Table):
    """Steps, each of which follows its parent. Node 0 is the start of the episode.

    Columns, `[M, ...]`: "parents", "depths" (steps from the start), "actions", and "seeds" where steps are
    random.
    """

    def __init__(self, action_space: Space[Any], has_seeds: bool) -> None:
        actions = {"actions": (action_space.dtype, action_space.shape or ())}
        seeds: dict[str, tuple[Any, tuple[int, ...]]] = {"seeds": (np.uint64, ())} if has_seeds else {}
        super().__init__({"parents": (np.int64, ()), "depths": (np.int64, ()), **actions, **seeds})
        self.append(parents=-1)

    def add(self, parent: int, action: Any, seed: int | None) -> int:
        """Append a step after another one and return its node."""
        seeds = {} if seed is None else {"seeds": seed}
        return self.append(parents=parent, depths=self["depths"][parent] + 1, actions=action, **seeds)

    def arguments(self, nodes: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.uint64] | None]:
        """Return the actions of nodes, `[K, ...]`, and their seeds."""
        return self["actions"][nodes], self["seeds"][nodes] if "seeds" in self._columns else None

    def path(self, node: int) -> NDArray[np.int64]:
        """Return the nodes from the first step to a node, `[T]`."""
        parents, nodes = self["parents"], []
        while node > 0:
            nodes.append(node)
            node = int(parents[node])
        return np.array(nodes[::-1], np.int64)

    def ancestors_of(self, nodes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which nodes lead to some nodes, these and the start included, `[M]`."""
        parents, leads = self["parents"], np.zeros(len(self), np.bool_)
        leads[0] = True
        rest = nodes
        while len(rest):
            rest = np.unique(rest[~leads[rest]])
            leads[rest] = True
            rest = parents[rest]
        return leads

    def levels_to(self, nodes: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """Yield the nodes of each depth that lead to some nodes, from depth 1 on."""
        needed = np.flatnonzero(self.ancestors_of(nodes))
        depths = self["depths"][needed]
        order = np.argsort(depths, kind="stable")
        starts = np.searchsorted(depths[order], np.arange(1, int(depths.max()) + 2))
        for start, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            yield needed[order[start:stop]]

    def keep(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Forget all steps but those that lead to some nodes; return the new numbers of these nodes."""
        is_kept = self.ancestors_of(nodes)
        numbers = np.cumsum(is_kept) - 1
        columns = {name: column[is_kept] for name, column in self.columns().items()}
        columns["parents"] = np.where(columns["parents"] < 0, -1, numbers[columns["parents"]])
        self.replace(columns)
        renumbered: NDArray[np.int64] = numbers[nodes]
        return renumbered

    def check(self) -> None:
        """Check that steps from a file lead back to the start."""
        parents, depths = self["parents"], self["depths"]
        before = np.arange(-1, len(self) - 1)  # the last node that each may follow
        if not len(self) or (parents > before).any() or (parents < np.minimum(before, 0)).any():
            raise ValueError("steps without the step before them")
        if depths[0] != 0 or (depths[1:] != depths[parents[1:]] + 1).any():
            raise ValueError("steps lead elsewhere")


class Arrival(NamedTuple):
    """A step that reaches a cell."""

    key: NDArray[Any]  # `[F]`
    state: Any
    score: float  # sum of the rewards since the start
    num_steps: int  # actions since the start
    ended: bool  # whether the episode has ended
    lives: float  # lives that are left; NaN if unknown


class CellStore(Table):
    """The best known state of each cell.

    Columns: `keys` `[N, F]`, `scores`, `num_steps`, `num_visits`, `num_choices`, `first_visits`, `ended`,
    `nodes` (in the tree of steps) and `lives`, `[N]` each.
    """

    def __init__(self, start: Arrival) -> None:
        counts = dict.fromkeys(("num_steps", "num_visits", "num_choices", "first_visits", "nodes"), np.int64)
        dtypes = {**counts, "scores": np.float64, "lives": np.float64, "ended": np.bool_}
        columns: dict[str, Any] = {name: (dtype, ()) for name, dtype in dtypes.items()}
        super().__init__({"keys": (start.key.dtype, start.key.shape), **columns})
        # States are in blocks, so that the array of them all, which may be large, is never copied.
        self._blocks: list[NDArray[Any]] = []
        self._state_dtype = start.state.dtype if isinstance(start.state, np.void) else np.dtype(object)
        self._index: dict[bytes, int] = {}
        self.put(start, 0, 0)

    def states(self, cells: NDArray[np.integer[Any]]) -> NDArray[Any]:
        """Return a copy of the states of some cells, `[K]`."""
        states = np.empty(len(cells), self._state_dtype)
        for index, cell in enumerate(cells.tolist()):
            states[index] = self._blocks[cell // BLOCK][cell % BLOCK]
        return states

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Yield the states of all cells, as views of some thousand each."""
        for start, block in zip(range(0, len(self), BLOCK), self._blocks, strict=True):
            yield block[: len(self) - start]

    def visit(self, arrival: Arrival) -> bool:
        """Count a visit, and return whether the cell is new, or was reached better than before."""
        index = self._index.get(_name(arrival.key, arrival.ended))
        if index is None:
            return True
        self["num_visits"][index] += 1
        score = self["scores"][index]
        return bool(
            arrival.score > score or (arrival.score == score and arrival.num_steps < self["num_steps"][index])
        )

    def put(self, arrival: Arrival, node: int, num_env_steps: int) -> None:
        """Make a state the best one of its cell."""
        name = _name(arrival.key, arrival.ended)
        index = self._index.get(name)
        if index is None:
            index = self._index[name] = self.append(
                keys=arrival.key, ended=arrival.ended, num_visits=1, first_visits=num_env_steps
            )
            if index // BLOCK == len(self._blocks):
                self._blocks.append(np.empty(BLOCK, self._state_dtype))
        self["scores"][index] = arrival.score
        self["num_steps"][index] = arrival.num_steps
        self["nodes"][index] = node
        self["lives"][index] = arrival.lives
        self._blocks[index // BLOCK][index % BLOCK] = arrival.state

    def restore(self, columns: Mapping[str, NDArray[Any]], blocks: Sequence[NDArray[Any]]) -> None:
        """Replace all cells by those of a file, and their states by blocks that `blocks` yielded."""
        self.replace(columns)
        if not np.isfinite(self["scores"]).all():
            raise ValueError("scores: expected finite numbers")
        for name in ("num_visits", "num_choices"):
            if (self[name] < 0).any():
                raise ValueError(f"{name}: expected numbers of at least 0")
        self.replace_states(blocks)
        names = zip(self["keys"], self["ended"].tolist(), strict=True)
        self._index = {_name(key, ended): cell for cell, (key, ended) in enumerate(names)}

    def replace_states(self, blocks: Sequence[NDArray[Any]]) -> None:
        """Replace the states of all cells; all blocks but the last one are full."""
        sizes = [min(BLOCK, len(self) - start) for start in range(0, len(self), BLOCK)]
        if [block.shape for block in blocks] != [(size,) for size in sizes]:
            raise ValueError("states are missing")
        if len({block.dtype for block in blocks}) != 1:
            raise ValueError("states are of several types")
        self._state_dtype = blocks[0].dtype
        last = np.empty(BLOCK, self._state_dtype)
        last[: sizes[-1]] = blocks[-1]
        self._blocks = [*blocks[:-1], last]


def _name(key: NDArray[Any], ended: bool) -> bytes:
    """Return what identifies a cell."""
    return key.tobytes() + bytes([ended])
