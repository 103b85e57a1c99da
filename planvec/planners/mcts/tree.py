"""A search tree: its arrays, the states of its nodes, and what is read from them.

Letters: N nodes, A actions per node, M outcomes, D depths, L actions of a branch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners.mcts.arrays import (
    EDGE_DTYPES,
    NODE_DTYPES,
    NUM_NODES,
    NUM_OUTCOMES,
    OPTIONAL_EDGE_DTYPES,
    OUTCOME_DTYPES,
    TreeArrays,
    TreeKind,
    empty_arrays,
)
from planvec.rows.state_keys import state_keys

__all__ = ["Branch", "Tree"]


@dataclass(frozen=True, eq=False)
class Branch:
    """A way down the tree.

    Attributes:
        nodes: `[L + 1]`, from the root on.
        actions: `[L, *action shape]`.
        num_steps: `[L]` int64, environment steps of each.
        total_return: Discounted sum of the rewards along it.
    """

    nodes: NDArray[np.int64]
    actions: NDArray[Any]
    num_steps: NDArray[np.int64]
    total_return: float


@dataclass(frozen=True, eq=False)
class Tree:
    """What a tree search knows. Node 0 is the root.

    Attributes:
        arrays: Visits, values and children; see `TreeArrays`. Longer than the tree is.
        states: `[N]`, the state of each node; None for an open-loop tree, whose nodes have many.
        actions: `[A, *action shape]`, the actions of every node, or `[N, A, *action shape]`, those of each.
        kind: How it was searched.
    """

    arrays: TreeArrays
    states: NDArray[Any] | None
    actions: NDArray[Any]
    kind: TreeKind

    @property
    def num_nodes(self) -> int:
        """N, of the nodes that are in use."""
        return int(self.arrays.counters[NUM_NODES])

    @property
    def num_actions(self) -> int:
        """A."""
        return int(self.arrays.edge_visits.shape[1])

    @property
    def max_depth(self) -> int:
        """D."""
        return len(self.arrays.depth_histogram) - 1

    def node_actions(self, node: int) -> NDArray[Any]:
        """The actions `[A, *action shape]` of a node."""
        return self.actions[node] if self.kind.has_own_actions else self.actions

    def outcomes(self, node: int, action: int) -> list[int]:
        """The outcomes of an action, by index, the latest first.

        Args:
            node: Which node.
            action: From 0 to A - 1.
        """
        found = []
        outcome = int(self.arrays.first_outcomes[node, action])
        while outcome >= 0:
            found.append(outcome)
            outcome = int(self.arrays.next_outcomes[outcome])
        return found

    def best_action(self, node: int, by_value: bool) -> int:
        """The index of the action to take at a node; -1 where none was completed.

        Args:
            node: Which node.
            by_value: The one with the highest value, of equals the most visited; else the other way round.
        """
        visits, values = self.arrays.edge_visits[node], self.arrays.edge_values[node]
        if not visits.any():
            return -1
        held = np.where((visits > 0) & ~np.isnan(values), values, -np.inf)
        first, second = (held, visits) if by_value else (visits, held)
        equals = np.flatnonzero(first == first.max())
        return int(equals[np.argmax(second[equals])])

    def principal_variation(self, by_value: bool) -> Branch:
        """From the root on the best action and its most frequent outcome, as far as they were tried.

        Where equal states share a node it ends where it would come round again.
        """
        arrays = self.arrays
        nodes, actions, num_steps, total, discount = [0], [], [], 0.0, 1.0
        while len(nodes) <= self.max_depth:
            action = self.best_action(nodes[-1], by_value)
            found = self.outcomes(nodes[-1], action) if action >= 0 else []
            if not found:
                break
            outcome = max(found, key=lambda each: arrays.outcome_counts[each])
            if int(arrays.outcome_nodes[outcome]) in nodes:
                break
            actions.append(self.node_actions(nodes[-1])[action])
            num_steps.append(int(arrays.outcome_steps[outcome]))
            total += discount * float(arrays.outcome_rewards[outcome])
            discount *= float(arrays.outcome_discounts[outcome])
            nodes.append(int(arrays.outcome_nodes[outcome]))
        shape = self.node_actions(0).shape[1:]
        return Branch(
            np.array(nodes),
            np.array(actions, self.actions.dtype).reshape(-1, *shape),
            np.array(num_steps, np.int64),
            total,
        )

    def standard_errors(self) -> NDArray[np.float64]:
        """Of the mean returns of the root's actions `[A]`; NaN where there are less than 2 as a root.

        They are those of means, also where values are backed up along a graph or as maxima.
        """
        visits = self.arrays.root_visits
        variance = np.full(self.num_actions, np.nan)
        np.divide(self.arrays.root_squares, visits - 1, out=variance, where=visits > 1)
        errors: NDArray[np.float64] = np.sqrt(variance / np.maximum(visits, 1))
        return errors

    # -- the next decision ----------------------------------------------------------------------

    def advance(self, action: Any, state: Any = None) -> Tree | None:
        """The part of the tree that an action leads to, with its statistics, as a tree of its own.

        Args:
            action: One of the root's actions.
            state: The state that it led to; None takes the most frequent outcome. Where the state says how
                its generator is (a field "generator"), that is not looked at.

        Returns:
            None where that action was not tried, or never led to that state.

        Raises:
            InvalidBatchError: Not an action of the root.
        """
        index = self._index_of(action)
        found = self.outcomes(0, index)
        if state is not None and self.states is not None:
            wanted = state_keys(_one(state, self.states.dtype))[0]
            nodes = self.arrays.outcome_nodes[found]
            keys = state_keys(self.states[nodes])
            found = [outcome for outcome, key in zip(found, keys, strict=True) if key == wanted]
        if not found:
            return None
        outcome = max(found, key=lambda each: self.arrays.outcome_counts[each])
        root = int(self.arrays.outcome_nodes[outcome])
        return None if self.arrays.ended[root] else self._part(root)

    def _index_of(self, action: Any) -> int:
        actions = self.node_actions(0)
        equal = (actions == np.asarray(action)).reshape(len(actions), -1).all(axis=1)
        if not equal.any():
            raise InvalidBatchError(f"action: expected one of the root's actions, got {action!r}")
        return int(np.argmax(equal))

    def _part(self, root: int) -> Tree:
        """The tree below a node."""
        arrays = self.arrays
        nodes, outcomes = _reachable(arrays, root)
        used_outcomes = np.array([0, *outcomes], np.int64)
        new_node = np.full(self.num_nodes, -1, np.int32)
        new_node[nodes] = np.arange(len(nodes))
        # The last entry stands for -1: no outcome.
        new_outcome = np.full(int(arrays.counters[NUM_OUTCOMES]) + 1, -1, np.int32)
        new_outcome[used_outcomes[1:]] = np.arange(1, len(used_outcomes))
        part: dict[str, NDArray[Any]] = {name: getattr(arrays, name)[nodes] for name in NODE_DTYPES}
        part |= {name: getattr(arrays, name)[nodes] for name in EDGE_DTYPES}
        part |= {name: getattr(arrays, name)[used_outcomes] for name in OUTCOME_DTYPES}
        for name in OPTIONAL_EDGE_DTYPES:
            part[name] = getattr(arrays, name)[nodes] if name in self._row_counts() else getattr(arrays, name)
        part["parents"] = np.where(part["parents"] >= 0, new_node[part["parents"]], -1).astype(np.int32)
        part["parents"][0] = part["parent_actions"][0] = -1
        part["first_outcomes"] = new_outcome[part["first_outcomes"]]
        part["next_outcomes"] = new_outcome[part["next_outcomes"]]
        part["outcome_nodes"] = np.append(np.int32(0), new_node[part["outcome_nodes"][1:]])
        counters = np.array([len(nodes), len(used_outcomes), arrays.counters[2], 1], np.int64)
        # The spread of the returns at what is the root now was not kept; it begins anew.
        return Tree(
            TreeArrays(
                **part,
                bounds=arrays.bounds.copy(),
                root_visits=np.zeros(self.num_actions, np.int64),
                root_means=np.zeros(self.num_actions),
                root_squares=np.zeros(self.num_actions),
                depth_histogram=np.zeros_like(arrays.depth_histogram),
                counters=counters,
            ),
            None if self.states is None else self.states[nodes],
            self.actions[nodes] if self.kind.has_own_actions else self.actions,
            self.kind,
        )

    def _row_counts(self) -> dict[str, int]:
        """How many rows are in use, of the arrays that are longer than the tree is."""
        names = [*NODE_DTYPES, *EDGE_DTYPES]
        names += ["priors"] * self.kind.has_priors + ["legal"] * self.kind.has_legal
        num_outcomes = int(self.arrays.counters[NUM_OUTCOMES])
        return dict.fromkeys(names, self.num_nodes) | dict.fromkeys(OUTCOME_DTYPES, num_outcomes)

    def grown(self, capacity: int, max_depth: int) -> Tree:
        """A copy with room for more.

        Args:
            capacity: N and M of the copy.
            max_depth: D of the copy.
        """
        num_nodes, row_counts = self.num_nodes, self._row_counts()
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

        Raises:
            InvalidBatchError: Its states are no records of fixed size (`SavedState`s are pickles, which a
                file must not bring back).
        """
        if self.states is not None and self.states.dtype.hasobject:
            raise InvalidBatchError(
                "tree: expected states of fixed size, got SavedStates, which are not written to files; save "
                "the actions that led to the root instead, and search anew"
            )
        num_nodes, row_counts = self.num_nodes, self._row_counts()
        held: dict[str, Any] = {"kind": np.array(json.dumps(self.kind))}
        for name, array in self.arrays._asdict().items():
            held[name] = array[: row_counts.get(name, len(array))]
        held["actions"] = self.actions[:num_nodes] if self.kind.has_own_actions else self.actions
        if self.states is not None:
            held["states"] = self.states[:num_nodes]
        with open(path, "wb") as file:  # by its name, NumPy would append ".npz"
            np.savez(file, **held)

    @classmethod
    def load(cls, path: str | Path) -> Tree:
        """Read what `save` wrote; go on with `planner.resume(env, tree)`."""
        with np.load(path, allow_pickle=False) as held:
            arrays = TreeArrays(**{name: held[name] for name in TreeArrays._fields})
            states = held.get("states")
            return cls(arrays, states, held["actions"], TreeKind(*json.loads(str(held["kind"]))))


def _one(state: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """One state as an array `[1]`."""
    if isinstance(state, np.ndarray) and state.shape == (1,):
        return state
    held = np.empty(1, dtype)
    held[0] = state
    return held


def _reachable(arrays: TreeArrays, root: int) -> tuple[NDArray[np.int64], list[int]]:
    """The nodes below a node, itself first, and the outcomes that lead to them, in order of index."""
    seen, found_outcomes, front = {root}, set[int](), [root]
    while front:
        edges = arrays.first_outcomes[front].reshape(-1)
        outcomes = edges[edges >= 0]
        front = []
        while len(outcomes):
            for outcome, node in zip(outcomes.tolist(), arrays.outcome_nodes[outcomes].tolist(), strict=True):
                found_outcomes.add(outcome)
                if node not in seen:
                    seen.add(node)
                    front.append(node)
            outcomes = arrays.next_outcomes[outcomes]
            outcomes = outcomes[outcomes >= 0]
    nodes = np.array([root, *sorted(seen - {root})], np.int64)
    return nodes, sorted(found_outcomes)


def _resized(array: NDArray[Any] | None, capacity: int, used: int) -> NDArray[Any] | None:
    if array is None:
        return None
    larger = np.empty((capacity, *array.shape[1:]), array.dtype)
    larger[:used] = array[:used]
    return larger
