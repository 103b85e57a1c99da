"""The walkers of a swarm as a struct of arrays. Letters: B walkers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.planners.swarm.config import Draw
from planvec.planners.swarm.iteration import (
    MOVE_DTYPE,
    WALKER_DTYPE,
    Features,
    Moves,
    Outcomes,
    Rules,
    extrapolate_returns,
    find_first_moves,
    iterate,
    prune_moves,
    trace_path,
)
from planvec.rows import Transitions, arrays_of_states, states_of_arrays

# -- The moves of a swarm as a tree. Letters: N nodes, B walkers, L actions of a sequence --------------------

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


_NO_BYTES = np.empty(0, np.uint8)


@dataclass(slots=True, eq=False)
class Walkers:
    """The state of every walker, and the actions that led to it."""

    start: NDArray[Any]  # `[1]`, the state at which the planner plans
    states: NDArray[Any]  # `[B]` states
    table: NDArray[Any]  # `[B]` of `WALKER_DTYPE`, what is known of each walker besides
    lineage: Lineage  # the moves of all walkers, a tree
    num_ended: int = 0  # how many have terminated or were truncated

    def __repr__(self) -> str:
        return f"<Walkers: {len(self.table)}, of which {self.num_ended} have ended>"

    @classmethod
    def initial(cls, start: NDArray[Any], num_walkers: int, action_space: Space[Any]) -> Walkers:
        """Return walkers that have not moved yet."""
        table = np.zeros(num_walkers, WALKER_DTYPE)
        return cls(start, np.repeat(start, num_walkers), table, Lineage(action_space, num_walkers))

    @property
    def returns(self) -> NDArray[np.float64]:
        """Undiscounted returns, `[B]` float64."""
        return self.table["total"]

    @property
    def num_steps(self) -> NDArray[np.int64]:
        """Ages in environment steps, `[B]` int64."""
        return self.table["num_steps"]

    @property
    def nodes(self) -> NDArray[np.int64]:
        """The latest node of each walker in the lineage, `[B]` int64."""
        return self.table["node"]

    @property
    def terminated(self) -> NDArray[np.bool_]:
        """Which walkers have terminated, `[B]` bool."""
        return self.table["terminated"]

    @property
    def truncated(self) -> NDArray[np.bool_]:
        """Which walkers were truncated, `[B]` bool."""
        return self.table["truncated"]

    def advance_and_clone(
        self,
        draw: Draw,
        out: Transitions,
        features: Features,
        novelty: NDArray[np.float64],
        rules: Rules,
        is_guided: bool,
    ) -> bool:
        """Update every walker by its transition, then replace some by clones of others."""
        # `novelty`: `[B]`, number of features that no walker has seen before; empty: it does not count.
        # Returns whether walker 0 was dead, and is a clone now.
        lineage = self.lineage
        lineage.make_room(self.table)
        outcomes = Outcomes(
            np.ascontiguousarray(out.rewards, np.float64),
            np.ascontiguousarray(out.infos["num_steps"], np.int64),
            np.ascontiguousarray(out.terminated, bool),
            np.ascontiguousarray(out.truncated, bool),
        )
        states = out.new_states
        are_objects = states.dtype.hasobject
        held = _NO_BYTES if are_objects else np.ascontiguousarray(states).view(np.uint8)
        copies = np.empty_like(held)
        lineage.num_nodes, self.num_ended, first_was_dead = iterate(
            *(self.table, lineage.moves, lineage.num_nodes, outcomes, features, draw.action_bytes),
            *(held, copies, draw.uniforms, novelty, rules, is_guided),
        )
        self.states = states[self.table["source"]] if are_objects else copies.view(states.dtype)
        return bool(first_was_dead)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the swarm as arrays of numbers and text."""
        lineage = self.lineage
        return {
            **arrays_of_states("start", self.start),
            **arrays_of_states("states", self.states),
            "table": self.table,
            "moves": lineage.moves.nodes[: lineage.num_nodes],
            "actions": lineage.moves.actions[: lineage.num_nodes],
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], action_space: Space[Any]) -> Walkers:
        """Return the swarm that `to_arrays` turned into arrays."""
        start, states = states_of_arrays("start", arrays), states_of_arrays("states", arrays)
        table = arrays["table"]
        if start.shape != (1,) or states.shape != table.shape or table.dtype != WALKER_DTYPE:
            raise ValueError(f"table: expected one row for each of {len(states)} walkers")
        lineage = Lineage.from_moves(action_space, arrays["moves"], arrays["actions"], table)
        num_ended = int((table["terminated"] | table["truncated"]).sum())
        return cls(start, states, table, lineage, num_ended)

    @property
    def saved_states(self) -> NDArray[Any]:
        """The states of the walkers, and the one at which the planner plans."""
        return np.concatenate([self.states, self.start])

    def values(self) -> NDArray[np.float64]:
        """Return the returns `[B]`, extrapolated to the age of the oldest walker."""
        values = np.empty(len(self.table))
        extrapolate_returns(self.table, values)
        return values
