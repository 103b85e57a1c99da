"""The moves of a swarm as a tree. Letters: N nodes, B walkers, L actions of a sequence."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

__all__ = ["Lineage"]

_INITIAL_MOVES = 64
"""Initial capacity in moves per walker. Most decisions make fewer moves and never prune."""


class Lineage:
    """Records the moves that lead to the walkers: a tree as a struct of arrays.

    Node 0 is the start; every other node is one move of one walker, and its parent the move before. Clones
    share nodes. Parents come before their children.

    Nodes that lead to no walker are pruned whenever the arrays are full. With M nodes left by that, the
    capacity is at most `max(64 B, 4 (M + B))`. Walkers soon share their early moves, so that M grows by
    about one per iteration, however long a wave runs.

    Args:
        space: The space of one action.
        num_walkers: B.
    """

    def __init__(self, space: Space[np.ndarray], num_walkers: int) -> None:
        capacity = _INITIAL_MOVES * num_walkers + 1
        self._parents = np.full(capacity, -1)
        self._actions = np.zeros((capacity, *(space.shape or ())), space.dtype)
        self._num_steps = np.zeros(capacity, np.int64)
        self._rewards = np.zeros(capacity)
        self._size = 1
        self._last_shared = 0  # nodes up to this one are one chain that all walkers descend from

    def __len__(self) -> int:
        """Return N."""
        return self._size

    @property
    def parents(self) -> NDArray[np.int64]:
        """Parent of each node, `[N]` int64; -1 for node 0."""
        return self._parents[: self._size]

    @property
    def actions(self) -> NDArray[np.generic]:
        """Action of each move, `[N, *action shape]`; that of node 0 is meaningless."""
        return self._actions[: self._size]

    @property
    def num_steps(self) -> NDArray[np.int64]:
        """Number of environment steps of each move, `[N]` int64."""
        return self._num_steps[: self._size]

    @property
    def rewards(self) -> NDArray[np.float64]:
        """Sum of the rewards of each move, `[N]` float64."""
        return self._rewards[: self._size]

    def append(
        self,
        nodes: NDArray[np.int64],
        actions: NDArray[np.generic],
        num_steps: NDArray[np.int64],
        rewards: NDArray[np.float64],
    ) -> NDArray[np.int64]:
        """Add a move of every walker. One that took no step keeps its node.

        Args:
            nodes: `[B]`, the latest node of each walker. Nodes that lead to none of them may be pruned.
            actions: `[B, *action shape]`.
            num_steps: `[B]`.
            rewards: `[B]`.

        Returns:
            `[B]` int64, the new latest nodes.
        """
        if self._size + len(nodes) > len(self._parents):
            nodes = self.prune(nodes)
            if self._size + len(nodes) > len(self._parents) // 2:
                self._double()
        moved = num_steps.nonzero()[0]
        new = np.arange(self._size, self._size + len(moved))
        rows = slice(self._size, self._size + len(moved))
        self._parents[rows] = nodes[moved]
        self._actions[rows] = actions[moved]
        self._num_steps[rows] = num_steps[moved]
        self._rewards[rows] = rewards[moved]
        self._size += len(moved)
        if len(moved) == len(nodes):
            return new
        nodes = nodes.copy()
        nodes[moved] = new
        return nodes

    def prune(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Remove all nodes that lead to none of `nodes` `[B]`; return the new indices of these."""
        used = np.zeros(self._size, bool)
        used[: self._last_shared + 1] = True
        front = nodes[~used[nodes]]
        while len(front):
            used[front] = True
            front = self._parents[front]
            front = front[~used[front]]
        kept = np.flatnonzero(used)
        numbers = np.cumsum(used) - 1
        self._parents[1 : len(kept)] = numbers[self._parents[kept[1:]]]
        for array in (self._actions, self._num_steps, self._rewards):
            array[: len(kept)] = array[kept]
        self._size = len(kept)
        nodes = numbers[nodes]
        self._last_shared = self._last_common(nodes)
        return nodes

    def _last_common(self, nodes: NDArray[np.int64]) -> int:
        """Return the last node that every other node precedes or descends from.

        Args:
            nodes: `[B]`, the latest nodes. Every node has to lead to one of them.
        """
        earliest = np.minimum.accumulate(self.parents[:0:-1])[::-1]  # parent of any node after this one
        common = np.flatnonzero(earliest >= np.arange(self._size - 1))
        return int(common[common <= nodes.min()].max(initial=0))

    def _double(self) -> None:
        """Double the capacity."""
        self._parents = _doubled(self._parents)
        self._actions = _doubled(self._actions)
        self._num_steps = _doubled(self._num_steps)
        self._rewards = _doubled(self._rewards)

    def first_moves(self, nodes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first move `[B]` before each node `[B]` (0: none) and the number of moves `[B]`."""
        first, num_moves = nodes.copy(), (nodes > 0).astype(np.int64)
        further = np.flatnonzero(self._parents[first] > 0)
        while len(further):
            first[further] = self._parents[first[further]]
            num_moves[further] += 1
            further = further[self._parents[first[further]] > 0]
        return first, num_moves

    def sequence(self, node: int) -> tuple[NDArray[np.generic], NDArray[np.int64]]:
        """Return the actions `[L, *action shape]` that lead to a node, and the steps `[L]` of each."""
        moves = []
        while node > 0:
            moves.append(node)
            node = int(self._parents[node])
        moves.reverse()
        path = np.array(moves, np.int64)
        return self._actions[path], self._num_steps[path]


def _doubled(array: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([array, np.zeros_like(array)])
