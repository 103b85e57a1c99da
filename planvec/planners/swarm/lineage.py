"""The moves of a swarm as a tree. Letters: N nodes, B walkers, L actions of a sequence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.planners.swarm.arrays import MOVE_DTYPE, Moves
from planvec.planners.swarm.moves import find_first_moves, prune_moves, trace_path

_INITIAL_MOVES = 64  # Initial capacity in moves per walker. Most decisions make fewer moves and never prune.


class Lineage:
    """Records the moves that lead to the walkers: a tree as a struct of arrays."""

    # Node 0 is the start; every other node is one move of one walker, and its parent the move before. Clones
    # share nodes. Parents come before their children.
    # Nodes that lead to no walker are pruned whenever the arrays are full. With M nodes left by that, the
    # capacity is at most `max(64 B, 4 (M + B))`. Walkers soon share their early moves, so that M grows by
    # about one per iteration, however long a wave runs.

    def __init__(self, space: Space[np.ndarray], num_walkers: int) -> None:
        capacity = _INITIAL_MOVES * num_walkers + 1
        self._shape, self._dtype = space.shape or (), np.dtype(space.dtype)
        num_bytes = math.prod(self._shape) * self._dtype.itemsize
        # The arrays, with room for more moves. `append_moves` writes them.
        self.moves = Moves(np.zeros(capacity, MOVE_DTYPE), np.zeros((capacity, num_bytes), np.uint8))
        self.moves.nodes[0] = (-1, 0, 0.0)
        self.num_nodes = 1  # N
        self._last_shared = 0  # nodes up to this one are one chain that all walkers descend from

    @classmethod
    def from_moves(
        cls, space: Space[np.ndarray], moves: NDArray[Any], actions: NDArray[Any], walkers: NDArray[Any]
    ) -> Lineage:
        """Return a lineage of moves that come from a file."""
        # `moves`: `[N]` of `MOVE_DTYPE`. `actions`: `[N, bytes of an action]` uint8. `walkers`: `[B]` of
        # `WALKER_DTYPE`, whose moves have to be among them.
        lineage = cls(space, len(walkers))
        num_nodes, num_bytes = len(moves), lineage.moves.actions.shape[1]
        is_tree = moves.dtype == MOVE_DTYPE and num_nodes > 0 and moves["parent"][0] == -1
        is_tree = is_tree and bool((moves["parent"][1:] < np.arange(1, num_nodes)).all())
        is_tree = is_tree and bool((moves["parent"][1:] >= 0).all())
        if not is_tree or actions.shape != (num_nodes, num_bytes) or actions.dtype != np.uint8:
            raise ValueError("moves: expected a tree of moves, parents before their children")
        for name, limit in (("node", num_nodes), ("source", len(walkers))):
            if ((walkers[name] < 0) | (walkers[name] >= limit)).any():
                raise ValueError(f"{name}: expected indices from 0 to {limit - 1}")
        capacity = max(len(lineage.moves.nodes), num_nodes)
        rows = (np.zeros(capacity, MOVE_DTYPE), np.zeros((capacity, num_bytes), np.uint8))
        for row, array in zip(rows, (moves, actions), strict=True):
            row[:num_nodes] = array
        lineage.moves, lineage.num_nodes = Moves(*rows), num_nodes
        return lineage

    @property
    def parents(self) -> NDArray[np.int64]:
        """Parent of each node, `[N]` int64; -1 for node 0."""
        return self.moves.nodes["parent"][: self.num_nodes]

    @property
    def actions(self) -> NDArray[np.generic]:
        """Action of each move, `[N, *action shape]`; that of node 0 is meaningless."""
        return self._actions_of(self.moves.actions[: self.num_nodes])

    @property
    def num_steps(self) -> NDArray[np.int64]:
        """Number of environment steps of each move, `[N]` int64."""
        return self.moves.nodes["num_steps"][: self.num_nodes]

    @property
    def rewards(self) -> NDArray[np.float64]:
        """Sum of the rewards of each move, `[N]` float64."""
        return self.moves.nodes["reward"][: self.num_nodes]

    def make_room(self, walkers: NDArray[Any]) -> None:
        """Make room for one more move of every walker."""
        # `walkers`: `[B]` of `WALKER_DTYPE`. Nodes that lead to none of them may be pruned; the new indices
        # are written.
        if self.num_nodes + len(walkers) > len(self.moves.nodes):
            self.prune(walkers)
            if self.num_nodes + len(walkers) > len(self.moves.nodes) // 2:
                self.moves = Moves(*(np.concatenate([array, np.zeros_like(array)]) for array in self.moves))

    def prune(self, walkers: NDArray[Any]) -> None:
        """Remove all nodes that lead to no walker, and write the new indices of the latest moves."""
        self.num_nodes, self._last_shared = prune_moves(
            self.moves, self.num_nodes, walkers, self._last_shared
        )

    def first_moves(self, walkers: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first move `[B]` of each walker (0: none) and the number of its moves `[B]`."""
        firsts, num_moves = np.empty(len(walkers), np.int64), np.empty(len(walkers), np.int64)
        find_first_moves(self.moves, self.num_nodes, walkers, firsts, num_moves)
        return firsts, num_moves

    def sequence(self, node: int) -> tuple[NDArray[np.generic], NDArray[np.int64]]:
        """Return the actions `[L, *action shape]` that lead to a node, and the steps `[L]` of each."""
        path = np.empty(self.num_nodes, np.int64)
        path = path[trace_path(self.moves, node, path) :]
        return self._actions_of(self.moves.actions[path]), self.moves.nodes["num_steps"][path]

    def _actions_of(self, rows: NDArray[np.uint8]) -> NDArray[np.generic]:
        """Return actions from their bytes."""
        return rows.view(self._dtype).reshape(len(rows), *self._shape)
