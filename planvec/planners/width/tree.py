"""The tree of a width-based search. Letters: N nodes, A actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.planners.novelty.features import MEMORY_SHAPE
from planvec.planners.plan import TreeView
from planvec.rows import arrays_of_states, states_of_arrays

PENDING, ILLEGAL = -2, -3  # child of an action whose step was requested; of one that is not legal
_FIRST_CAPACITY = 256
# array with an entry for each node -> what the spare entries hold
_FILL: dict[str, float] = {
    "parents": -1,
    "taken": -1,
    "children": -1,
    "rewards": 0,
    "lives": np.nan,
    "ended": False,
    "returns": np.nan,
}


class Origin(NamedTuple):
    """What the nodes of a tree depend on besides the state of the root."""

    dt: int  # environment steps of an action
    features: str  # name of the features, which files hold
    function: Any  # the features that were given; None: the default, or the tree comes from a file

    @classmethod
    def of(cls, dt: int, features: Any) -> Origin:
        """Return the origin by settings of a planner."""
        named = features if hasattr(features, "__qualname__") else type(features)
        return cls(dt, f"{named.__module__}.{named.__qualname__}", features)

    def matches(self, other: Origin) -> bool:
        """Return whether nodes of one tree can be continued with the settings of the other."""
        is_same = self.function is None or other.function is None or self.function == other.function
        return self[:2] == other[:2] and is_same


class WidthTree:
    """The nodes of a search, node 0 the root; children come after their parents."""

    # `parents`: `[N]` int32; -1 for the root.
    # `taken`: `[N]` int32, index of the action that leads to a node; -1 for the root.
    # `rewards`: `[N]` float64, reward of the action that leads to a node.
    # `lives`: `[N]` float64, lives that are left; NaN if unknown.
    # `returns`: `[N]` float64, the return of the action that leads to a node and of the best ones from there;
    # the value of the root; NaN before a decision is made.
    # `states`: `[N]`.
    # `codes`: `[N, ...]`.

    def __init__(
        self,
        actions: NDArray[Any],  # `[A, *action shape]`, the actions of every node
        states: NDArray[Any],
        codes: NDArray[Any],
        memory: NDArray[np.int32],
        origin: Origin,
    ) -> None:
        self.actions = actions  # `[A, *action shape]`
        self.parents, self.taken = np.empty(0, np.int32), np.empty(0, np.int32)
        self.children = np.empty((0, len(actions)), np.int32)  # `[N, A]` int32; -1: not generated
        self.rewards, self.lives, self.returns = np.empty(0), np.empty(0), np.empty(0)
        self.ended = np.empty(0, np.bool_)  # `[N]` bool, whether the episode has ended
        self.states, self.codes = states[:0], codes[:0]
        self.best = np.zeros(1, np.int64)  # `[P + 1]` int64, the nodes on the path of best actions
        self.memory = memory  # what the codes depend on
        self.origin = origin
        self.num_nodes = 0  # N
        self._make_room(1)
        self.states[:], self.codes[:] = states, codes
        self.num_nodes = 1

    def _make_room(self, capacity: int) -> None:
        """Make room for a number of nodes."""
        for name in (*_FILL, "states", "codes"):
            held = getattr(self, name)[: self.num_nodes]
            array = np.empty((capacity, *held.shape[1:]), held.dtype)
            array[: self.num_nodes] = held
            if name in _FILL:
                array[self.num_nodes :] = _FILL[name]
            setattr(self, name, array)

    def __repr__(self) -> str:
        return f"<WidthTree: {self.num_nodes} nodes, {len(self.actions)} actions>"

    def add(self, parent: int, action: int, state: Any, code: NDArray[Any]) -> int:
        """Add a node and return its index."""
        node = self.num_nodes
        if node == len(self.parents):
            self._make_room(max(_FIRST_CAPACITY, 2 * node))
        self.num_nodes += 1
        self.parents[node], self.taken[node] = parent, action
        self.children[parent, action] = node
        self.states[node], self.codes[node] = state, code
        return node

    def node_actions(self, node: int) -> NDArray[Any]:
        """Return the actions `[A, *action shape]`, which are those of every node."""
        return self.actions

    def view(self) -> TreeView:
        """Return what pictures show; visits are the numbers of nodes at and below each node."""
        size = self.num_nodes
        parents, visits = self.parents[:size].astype(np.int64), np.ones(size, np.int64)
        for node in range(size - 1, 0, -1):  # children come after their parents
            visits[parents[node]] += visits[node]
        links = np.column_stack([parents, np.arange(size)])[1:]
        return TreeView(
            parents, self.taken[:size].astype(np.int64), visits, self.returns[:size], self.best, links
        )

    def subtree(self, root: int) -> WidthTree:
        """Return a copy of the tree below a node."""
        kept = np.zeros(self.num_nodes, np.bool_)
        kept[root] = True
        for node in range(root + 1, self.num_nodes):
            kept[node] = kept[self.parents[node]]
        nodes = np.flatnonzero(kept)
        number = np.full(self.num_nodes + 1, -1, np.int32)  # the last entry is that of -1
        number[nodes] = np.arange(len(nodes))
        size, first = len(nodes), nodes[:1]
        tree = WidthTree(self.actions, self.states[first], self.codes[first], self.memory.copy(), self.origin)
        tree._make_room(size)
        tree.num_nodes = size
        for name in ("taken", "rewards", "lives", "ended", "states", "codes"):
            getattr(tree, name)[:size] = getattr(self, name)[nodes]
        tree.parents[:size] = number[self.parents[nodes]]
        tree.children[:size] = number[np.maximum(self.children[nodes], -1)]
        tree.parents[0] = tree.taken[0] = -1
        tree.rewards[0] = 0.0
        return tree

    # -- files ----------------------------------------------------------------------------------------

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the tree as arrays of numbers and text, without spare capacity."""
        names = ("parents", "taken", "rewards", "lives", "ended", "returns", "codes")
        arrays = {name: getattr(self, name)[: self.num_nodes] for name in names}
        return {
            **arrays,
            "actions": self.actions,
            "memory": self.memory,
            "dt": np.array(self.origin.dt),
            "features": np.array(self.origin.features),
            "best": self.best,
            **arrays_of_states("states", self.states[: self.num_nodes]),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], action_space: Space[Any]) -> WidthTree:
        """Return the tree that `to_arrays` turned into arrays."""
        states, codes = states_of_arrays("states", arrays), arrays["codes"]
        size, memory = len(states), np.array(arrays["memory"], np.int32)
        if not size or memory.shape != MEMORY_SHAPE:
            raise ValueError("a tree without nodes, or without the memory of its codes")
        origin = Origin(int(arrays["dt"]), str(arrays["features"]), None)
        tree = cls(arrays["actions"], states[:1], codes[:1], memory, origin)
        tree._make_room(size)
        tree.num_nodes = size
        tree.states[:], tree.codes[:] = states, codes
        for name in ("parents", "taken", "rewards", "lives", "ended", "returns"):
            getattr(tree, name)[:] = arrays[name]
        nodes = np.arange(1, size)
        parents, taken = tree.parents[1:], tree.taken[1:]
        if ((parents < 0) | (parents >= nodes) | (taken < 0) | (taken >= len(tree.actions))).any():
            raise ValueError("parents or actions that are not there")
        tree.children[parents, taken] = nodes
        tree.best = arrays["best"].astype(np.int64)
        if tree.best.ndim != 1 or ((tree.best < 0) | (tree.best >= size)).any():
            raise ValueError("a best path of nodes that are not there")
        return tree

    @property
    def saved_states(self) -> NDArray[Any]:
        """The states of the nodes."""
        return self.states[: self.num_nodes]
