"""A search tree: its arrays, the states of its nodes, queries, and files.

Letters: N nodes, A actions per node, M outcomes, D depths, L actions of a path.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners.mcts.arrays import NUM_NODES, TreeArrays, empty_arrays
from planvec.planners.mcts.files import read_tree, tree_parts
from planvec.planners.mcts.rules import TreeKind
from planvec.planners.root_actions import equal_actions
from planvec.rows import arrays_of_states, state_keys


@dataclass(frozen=True, eq=False)
class Branch:
    """A path from the root."""

    nodes: NDArray[np.int64]  # `[L + 1]` int64, from the root on
    actions: NDArray[Any]  # `[L, *action shape]`
    num_steps: NDArray[np.int64]  # `[L]` int64, environment steps of each action
    total_return: float  # discounted sum of the rewards along it


@dataclass(frozen=True, eq=False)
class Tree:
    """The tree of a search. Node 0 is the root.

    Attributes:
        arrays: Visits, values and children; see `TreeArrays`. They have spare capacity at their end.
        states: `[N]`, the state of each node; None for an open-loop tree, whose nodes have several.
        actions: `[A, *action shape]`, the actions of every node, or `[N, A, *action shape]`, those of each.
        kind: The settings with which it was searched.
    """

    arrays: TreeArrays
    states: NDArray[Any] | None
    actions: NDArray[Any]
    kind: TreeKind

    def __repr__(self) -> str:
        return f"<Tree: {self.num_nodes} nodes, {self.num_actions} actions>"

    @property
    def num_nodes(self) -> int:
        """Return N, the number of nodes in use."""
        return int(self.arrays.counters[NUM_NODES])

    @property
    def num_actions(self) -> int:
        """Return A."""
        return int(self.arrays.edge_visits.shape[1])

    @property
    def max_depth(self) -> int:
        """Return D."""
        return len(self.arrays.depth_histogram) - 1

    def node_actions(self, node: int) -> NDArray[Any]:
        """Return the actions `[A, *action shape]` of a node."""
        return self.actions[node] if self.kind.has_own_actions else self.actions

    def outcomes(self, node: int, action: int) -> list[int]:
        """Return the indices of the outcomes of an action, the latest first.

        Args:
            node: Index of the node.
            action: Index of the action, from 0 to A - 1.
        """
        outcomes = []
        outcome = int(self.arrays.first_outcomes[node, action])
        while outcome >= 0:
            outcomes.append(outcome)
            outcome = int(self.arrays.next_outcomes[outcome])
        return outcomes

    def best_action(self, node: int, by_value: bool) -> int:
        """Return the index of the best action of a node; -1 without a completed simulation.

        Args:
            node: Index of the node.
            by_value: Whether the best is the one with the highest value, of equals the most visited; else it
                is the most visited, of equals the one with the highest value. Actions that are proven to be
                of no use are left out if there are others.
        """
        from planvec.planners.mcts.variation import best_edge  # here, since numba takes long to import

        return best_edge(self.arrays.edges, self.arrays.legal, node, by_value)

    def principal_variation(self, by_value: bool, first: int = -1) -> Branch:
        """Return the path of best actions and their most frequent outcomes, from the root on.

        Where equal states share a node it ends before it would reach a node again.

        Args:
            by_value: As in `best_action`.
            first: Index of the action at the root; -1: the best one.
        """
        from planvec.planners.mcts.variation import follow_best  # here, since numba takes long to import

        path, indices = np.empty(self.max_depth, np.int64), np.empty(self.max_depth, np.int64)
        arrays = self.arrays
        length = follow_best(arrays.edges, arrays.legal, arrays.outcomes, by_value, first, path, indices)
        outcomes, indices = arrays.outcomes[path[:length]], indices[:length]
        nodes = np.zeros(length + 1, np.int64)
        nodes[1:] = outcomes["outcome_nodes"]
        actions = self.actions[nodes[:-1], indices] if self.kind.has_own_actions else self.actions[indices]
        total, discount = 0.0, 1.0
        for reward, factor in outcomes[["outcome_rewards", "outcome_discounts"]].tolist():
            total += discount * reward
            discount *= factor
        return Branch(nodes, actions, outcomes["outcome_steps"].astype(np.int64), total)

    def standard_errors(self) -> NDArray[np.float64]:
        """Return the standard errors `[A]` of the mean returns of the root's actions; NaN below 2 returns.

        Returns from before this node was the root do not count. The standard errors are those of means, even
        where values are backed up along a graph or as maxima.
        """
        visits = self.arrays.root_visits
        variance = np.full(self.num_actions, np.nan)
        np.divide(self.arrays.root_squares, visits - 1, out=variance, where=visits > 1)
        errors: NDArray[np.float64] = np.sqrt(variance / np.maximum(visits, 1))
        return errors

    # -- the next decision ----------------------------------------------------------------------

    def advance(self, action: Any, state: Any = None) -> Tree | None:
        """Return the subtree that an action leads to, with its statistics.

        Args:
            action: One of the root's actions.
            state: The state that it led to; None takes the most frequent outcome. The random generator in the
                state is not compared.

        Returns:
            The subtree; None where the action was not tried, never led to that state, or ended the episode.

        Raises:
            InvalidBatchError: `action` is not an action of the root.
        """
        index = self.index_of(action)
        outcomes = self.outcomes(0, index)
        if state is not None and self.states is not None:
            state_key = state_keys(_as_array(state, self.states.dtype))[0]
            keys = state_keys(self.states[self.arrays.outcome_nodes[outcomes]])
            outcomes = [outcome for outcome, key in zip(outcomes, keys, strict=True) if key == state_key]
        if not outcomes:
            return None
        outcome = max(outcomes, key=lambda index: self.arrays.outcome_counts[index])
        root = int(self.arrays.outcome_nodes[outcome])
        return None if self.arrays.ended[root] else self.subtree(root)

    def index_of(self, action: Any) -> int:
        """Return the index of an action of the root; see `advance` for errors."""
        actions = self.node_actions(0)
        equal = equal_actions(actions, action)
        if not equal.any():
            raise InvalidBatchError(f"action: expected one of the root's actions, got {action!r}")
        return int(np.argmax(equal))

    def subtree(self, root: int) -> Tree:
        """Return the tree below a node."""
        from planvec.planners.mcts.subtree import extract_subtree  # here, since numba takes long to import

        nodes, arrays = extract_subtree(self.arrays, root)
        states = None if self.states is None else self.states.take(nodes)
        actions = self.actions.take(nodes, 0) if self.kind.has_own_actions else self.actions
        return Tree(arrays, states, actions, self.kind)

    def with_capacity(self, capacity: int, max_depth: int) -> Tree:
        """Return a copy with another capacity.

        Args:
            capacity: N and M of the copy.
            max_depth: D of the copy.
        """
        num_nodes, row_counts = self.num_nodes, self.arrays.rows()
        arrays = empty_arrays(
            capacity, self.num_actions, max_depth, self.kind.has_priors, self.kind.has_legal
        )
        for name, target in arrays._asdict().items():
            source = getattr(self.arrays, name)
            if name in row_counts:
                target[: row_counts[name]] = source[: row_counts[name]]
            else:
                target[:] = 0 if name == "depth_histogram" else source
        states = _resized(self.states, capacity, num_nodes)
        actions = _resized(self.actions, capacity, num_nodes) if self.kind.has_own_actions else self.actions
        assert actions is not None
        return Tree(arrays, states, actions, self.kind)

    # -- files ------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the tree to a NumPy archive, which loads without running code.

        Args:
            path: The file, which is overwritten.
        """
        archive = self.to_arrays()
        with open(path, "wb") as file:  # given the name, NumPy would append ".npz"
            np.savez(file, **archive)  # type: ignore[arg-type]

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the tree as arrays of numbers and text, without spare capacity."""
        num_nodes, row_counts = self.num_nodes, self.arrays.rows()
        archive: dict[str, NDArray[Any]] = {"kind": np.array(json.dumps(self.kind))}
        used = {name: getattr(self.arrays, name)[:count] for name, count in row_counts.items()}
        archive |= self.arrays._replace(**used).named()
        archive["actions"] = self.actions[:num_nodes] if self.kind.has_own_actions else self.actions
        if self.states is not None:
            archive |= arrays_of_states("states", self.states[:num_nodes])
        return archive

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], action_space: Space[Any]) -> Tree:
        """Return the tree that `to_arrays` turned into arrays.

        Args:
            arrays: The arrays, which may be damaged or made by others.
            action_space: The space of one action.

        Raises:
            KeyError, TypeError, ValueError: They are damaged.
        """
        return cls(*tree_parts(arrays))

    @property
    def saved_states(self) -> NDArray[Any]:
        """The states of the nodes; none for an open loop."""
        return np.empty(0, object) if self.states is None else self.states[: self.num_nodes]

    @classmethod
    def load(cls, path: str | Path, env: Any = None) -> Tree:
        """Read a tree that `save` wrote. Continue its search with `planner.resume(env, tree)`.

        Args:
            path: The file.
            env: A `BatchEnv` or `PlanEnv` of the same environment, which checks the states of the tree. It
                may be left out if states are records.

        Raises:
            InvalidBatchError: The file is damaged, or holds something else than a tree of this environment;
                or its states are `SavedState`s, and `env` is None.
            OSError: The file cannot be read.
        """
        tree = cls(*read_tree(path))
        states = tree.saved_states
        if env is None and tree.states is not None and states.dtype.hasobject:
            raise InvalidBatchError(
                f"env: expected the environment of the tree, which checks the states in {path}, got None: "
                "Tree.load(path, env)"
            )
        if env is not None and tree.states is not None:
            env.check_states(states)
        return tree


def _as_array(state: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return one state as an array `[1]`."""
    if isinstance(state, np.ndarray) and state.shape == (1,):
        return state
    states = np.empty(1, dtype)
    states[0] = state
    return states


def _resized(array: NDArray[Any] | None, capacity: int, used: int) -> NDArray[Any] | None:
    """Return a copy with another capacity of the first `used` rows."""
    if array is None:
        return None
    larger = np.empty((capacity, *array.shape[1:]), array.dtype)
    larger[:used] = array[:used]
    return larger
