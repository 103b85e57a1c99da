"""Who moved where: the moves of a swarm as a tree. Letters: N nodes, B walkers, L actions of a branch."""

from __future__ import annotations

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

__all__ = ["Lineage"]

_FEW_MOVES = 64
"""Moves per walker that there is room for at first: most decisions make fewer, and are never pruned."""


class Lineage:
    """The moves that lead to living walkers, a tree as a struct of arrays.

    Node 0 is where all began; every other node is one move of one walker, and its parent the move
    before. Walkers that were cloned share nodes. Parents come before their children.

    Branches that no walker stands on are cut off whenever the arrays are full. With M nodes on living
    branches at that time there is never room for more than `max(64 B, 4 (M + B))`. Walkers soon have
    their early moves in common, so that M grows by about one per iteration, however long a wave runs.

    Args:
        space: The space of one action.
        num_walkers: B.
    """

    def __init__(self, space: Space[np.ndarray], num_walkers: int) -> None:
        room = _FEW_MOVES * num_walkers + 1
        self._parents = np.full(room, -1)
        self._actions = np.zeros((room, *(space.shape or ())), space.dtype)
        self._num_steps = np.zeros(room, np.int64)
        self._rewards = np.zeros(room)
        self._size = 1
        self._trunk = 0  # up to here the nodes are one chain that all walkers descend from

    def __len__(self) -> int:
        """N."""
        return self._size

    @property
    def parents(self) -> NDArray[np.int64]:
        """`[N]`, the node before; -1 for node 0."""
        return self._parents[: self._size]

    @property
    def actions(self) -> NDArray[np.generic]:
        """`[N, *action shape]`, the action of each move; that of node 0 means nothing."""
        return self._actions[: self._size]

    @property
    def num_steps(self) -> NDArray[np.int64]:
        """`[N]`, the environment steps that it was held."""
        return self._num_steps[: self._size]

    @property
    def rewards(self) -> NDArray[np.float64]:
        """`[N]`, the sum of the rewards on the way."""
        return self._rewards[: self._size]

    def append(
        self,
        tips: NDArray[np.int64],
        actions: NDArray[np.generic],
        num_steps: NDArray[np.int64],
        rewards: NDArray[np.float64],
    ) -> NDArray[np.int64]:
        """Add a move of every walker; one that took no step stays where it is.

        Args:
            tips: `[B]`, the node that each walker stands on. All other branches may be cut off.
            actions: `[B, *action shape]`.
            num_steps: `[B]`.
            rewards: `[B]`.

        Returns:
            `[B]`, the nodes that they stand on now.
        """
        if self._size + len(tips) > len(self._parents):
            tips = self.prune(tips)
            if self._size + len(tips) > len(self._parents) // 2:
                self._double()
        moved = num_steps.nonzero()[0]
        new = np.arange(self._size, self._size + len(moved))
        nodes = slice(self._size, self._size + len(moved))
        self._parents[nodes] = tips[moved]
        self._actions[nodes] = actions[moved]
        self._num_steps[nodes] = num_steps[moved]
        self._rewards[nodes] = rewards[moved]
        self._size += len(moved)
        if len(moved) == len(tips):
            return new
        tips = tips.copy()
        tips[moved] = new
        return tips

    def prune(self, tips: NDArray[np.int64]) -> NDArray[np.int64]:
        """Cut off all branches but those that lead to `tips` `[B]`; returns their new numbers."""
        living = np.zeros(self._size, bool)
        living[: self._trunk + 1] = True
        front = tips[~living[tips]]
        while len(front):
            living[front] = True
            front = self._parents[front]
            front = front[~living[front]]
        kept = np.flatnonzero(living)
        numbers = np.cumsum(living) - 1
        self._parents[1 : len(kept)] = numbers[self._parents[kept[1:]]]
        for each in (self._actions, self._num_steps, self._rewards):
            each[: len(kept)] = each[kept]
        self._size = len(kept)
        tips = numbers[tips]
        self._trunk = self._last_common(tips)
        return tips

    def _last_common(self, tips: NDArray[np.int64]) -> int:
        """The last node that all others come before or descend from; each has to lead to a tip."""
        earliest = np.minimum.accumulate(self.parents[:0:-1])[::-1]  # parent of any node after this one
        common = np.flatnonzero(earliest >= np.arange(self._size - 1))
        return int(common[common <= tips.min()].max(initial=0))

    def _double(self) -> None:
        for name in ("_parents", "_actions", "_num_steps", "_rewards"):
            each = getattr(self, name)
            setattr(self, name, np.concatenate([each, np.zeros_like(each)]))

    def origins(self, tips: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first move `[B]` on the way to each tip `[B]` (0 if there is none), and the number of moves."""
        first, num_moves = tips.copy(), (tips > 0).astype(np.int64)
        further = np.flatnonzero(self._parents[first] > 0)
        while len(further):
            first[further] = self._parents[first[further]]
            num_moves[further] += 1
            further = further[self._parents[first[further]] > 0]
        return first, num_moves

    def branch(self, tip: int) -> tuple[NDArray[np.generic], NDArray[np.int64]]:
        """The actions `[L, *action shape]` that lead to a node, and the steps `[L]` that each was held."""
        nodes = []
        while tip > 0:
            nodes.append(tip)
            tip = int(self._parents[tip])
        nodes.reverse()
        path = np.array(nodes, np.int64)
        return self._actions[path], self._num_steps[path]
