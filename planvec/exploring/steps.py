"""The steps that lead to the cells of an archive, as a tree. Letters: M nodes, T steps of a path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.exploring.tables import Table


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
