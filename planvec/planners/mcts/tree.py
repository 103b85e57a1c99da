"""A search tree: its arrays, the states of its nodes, queries, and files.

Letters: N nodes, A actions per node, M outcomes, D depths, L actions of a path.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners.mcts.arrays import (
    AS_GIVEN,
    GRAPH,
    NUM_COUNTERS,
    NUM_NODES,
    NUM_OUTCOMES,
    OPEN_LOOP,
    SINGLE,
    TreeArrays,
    TreeKind,
    empty_arrays,
)
from planvec.planners.plan import TreeView
from planvec.planners.root_actions import equal_actions
from planvec.rows import arrays_of_states, damage_named, read_arrays, state_keys, states_of_arrays

# -- Reads the files of search trees. They may be damaged or made by others, so every index is checked.
#
# Compiled kernels follow the indices without looking: a wrong one would crash the process.
#
# Letters: N nodes, A actions per node, M outcomes, D depths.


def _read_kind(text: str) -> TreeKind:
    kind = TreeKind(*json.loads(text))
    is_right = (
        all(isinstance(flag, bool) for flag in kind[:4])
        and kind.chance in range(SINGLE, OPEN_LOOP + 1)
        and isinstance(kind.discount, (int, float))
        and 0 <= kind.discount <= 1
        and isinstance(kind.dt, int)
        and kind.dt >= 1
        and kind.choice in range(AS_GIVEN, GRAPH + 1)
    )
    if not is_right:
        raise ValueError(f"kind: expected the settings of a search, got {text[:200]}")
    return kind


def _read_arrays(archive: Mapping[str, NDArray[Any]], kind: TreeKind) -> TreeArrays:
    """Return the arrays of a tree."""
    counters, edge_visits, histogram = (
        archive[name] for name in ("counters", "edge_visits", "depth_histogram")
    )
    if counters.shape != (NUM_COUNTERS,) or edge_visits.ndim != 2 or histogram.ndim != 1:
        raise ValueError("counters, edge_visits or depth_histogram have another number of dimensions")
    num_nodes, num_outcomes = int(counters[NUM_NODES]), int(counters[NUM_OUTCOMES])
    num_actions, num_depths = edge_visits.shape[1], len(histogram)
    if num_nodes < 1 or num_outcomes < 0 or num_actions < 1 or num_depths < 1:
        raise ValueError(f"expected at least one node and action, got {num_nodes} and {num_actions}")
    if max(num_nodes, num_outcomes) > max(len(archive["visits"]), len(archive["outcome_nodes"])):
        raise ValueError(f"visits: expected int32 of shape ({num_nodes},), got fewer rows")
    arrays = empty_arrays(
        max(num_nodes, num_outcomes), num_actions, num_depths - 1, kind.has_priors, kind.has_legal
    )
    row_counts = {"nodes": num_nodes, "edges": num_nodes, "outcomes": num_outcomes}
    row_counts |= {"priors": num_nodes} if kind.has_priors else {}
    row_counts |= {"legal": num_nodes} if kind.has_legal else {}
    used = {name: getattr(arrays, name)[:count] for name, count in row_counts.items()}
    arrays = arrays._replace(**used)
    for name, target in arrays.named().items():
        array = archive[name]
        if array.shape != target.shape or array.dtype != target.dtype:
            raise ValueError(
                f"{name}: expected {target.dtype} of shape {target.shape}, got {array.dtype} of {array.shape}"
            )
        target[...] = array
    return arrays


def _check_contents(tree: Tree) -> None:
    """Check the states, the actions and every index."""
    arrays, states, actions, kind = tree.arrays, tree.states, tree.actions, tree.kind
    num_nodes, num_actions = arrays.edge_visits.shape
    num_outcomes = len(arrays.outcome_nodes)
    if states is not None and states.shape != (num_nodes,):
        raise ValueError(f"states: expected shape ({num_nodes},), got {states.shape}")
    own = (num_nodes, num_actions) if kind.has_own_actions else (num_actions,)
    if actions.shape[: len(own)] != own:
        raise ValueError(f"actions: expected shape ({', '.join(map(str, own))}, ...), got {actions.shape}")
    for name, low, high in (
        ("starts", 0, num_actions),
        ("players", 0, 2),
        ("parents", -1, num_nodes),
        ("parent_actions", -1, num_actions),
        ("first_outcomes", -1, num_outcomes),
        ("outcome_nodes", 0, num_nodes),
        ("next_outcomes", -1, num_outcomes),
    ):
        array = getattr(arrays, name)
        if array.size and not low <= array.min() <= array.max() < high:
            raise ValueError(f"{name}: expected indices from {low} to {high - 1}")
    for name in ("visits", "edge_visits", "edge_samples", "outcome_counts", "outcome_steps", "counters"):
        if (getattr(arrays, name) < 0).any():
            raise ValueError(f"{name}: expected no negative numbers")
    for name in ("unobserved", "edge_unobserved", "pending"):
        if getattr(arrays, name).any():
            raise ValueError(f"{name}: expected a tree without simulations in flight")
    is_tree = kind.chance == SINGLE and not kind.shares_nodes
    if is_tree and not np.array_equal(arrays.outcome_nodes, np.arange(num_nodes)):
        raise ValueError("outcome_nodes: expected the index of each outcome, whose node has the same index")
    for name in ("parents", "next_outcomes"):
        if _has_cycle(getattr(arrays, name)):
            raise ValueError(f"{name}: expected chains that end, got a cycle")


def _has_cycle(following: NDArray[np.int32]) -> bool:
    """Return whether some chain of indices does not end with -1. Each pass doubles the length looked at."""
    after = following.astype(np.int64)
    for _ in range(len(following).bit_length() + 1):
        after = np.where(after < 0, -1, after[after])
    return bool((after >= 0).any())


@dataclass(frozen=True, eq=False)
class Branch:
    """A path from the root.

    Attributes:
        nodes: `[L + 1]` int64, from the root on.
        actions: `[L, *action shape]`.
        num_steps: `[L]` int64, environment steps of each action.
        total_return: Discounted sum of the rewards along it.
    """

    nodes: NDArray[np.int64]
    actions: NDArray[Any]
    num_steps: NDArray[np.int64]
    total_return: float


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
        from planvec.planners.mcts.subtree import best_edge  # here, since numba takes long to import

        return best_edge(self.arrays.edges, self.arrays.legal, node, by_value)

    def principal_variation(self, by_value: bool, first: int = -1) -> Branch:
        """Return the path of best actions and their most frequent outcomes, from the root on.

        Where equal states share a node it ends before it would reach a node again.

        Args:
            by_value: As in `best_action`.
            first: Index of the action at the root; -1: the best one.
        """
        from planvec.planners.mcts.subtree import follow_best  # here, since numba takes long to import

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
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], action_space: Space[Any] | None) -> Tree:
        """Return the tree that `to_arrays` turned into arrays.

        Args:
            arrays: The arrays, which may be damaged or made by others.
            action_space: The space of one action; a tree holds its actions, and does not need it.

        Raises:
            KeyError, TypeError, ValueError: They are damaged.
        """
        kind = _read_kind(str(arrays["kind"]))
        parts = _read_arrays(arrays, kind)
        states = states_of_arrays("states", arrays) if "states" in arrays else None
        tree = cls(parts, states, arrays["actions"], kind)
        _check_contents(tree)
        return tree

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
        with damage_named(f"tree: expected a file that Tree.save wrote, got {path}, which is damaged"):
            tree = cls.from_arrays(read_arrays(path), None if env is None else env.action_space)
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


# -- Lists how the nodes of a tree lead to each other. Letters: N nodes, E links -----------------------------


class Links(NamedTuple):
    """Lists every outcome of every action of a tree. Where equal states share nodes, several lead to one."""

    nodes: NDArray[np.int64]  # `[E]` int64, where the action is taken
    actions: NDArray[np.int64]  # `[E]` int64, index of the action
    children: NDArray[np.int64]  # `[E]` int64, the node that the outcome leads to
    # `[E]` float64, the visits of the action, divided among its outcomes as they were sampled
    visits: NDArray[np.float64]


def links_of(tree: Tree) -> Links:
    """Return the links of a tree."""
    arrays = tree.arrays
    first = arrays.first_outcomes[: tree.num_nodes]
    nodes, actions = np.nonzero(first >= 0)
    outcomes = first[nodes, actions].astype(np.int64)
    parts = [(nodes, actions, outcomes)]
    while True:
        following = arrays.next_outcomes[outcomes]
        is_more = following >= 0
        if not is_more.any():
            break
        nodes, actions, outcomes = nodes[is_more], actions[is_more], following[is_more].astype(np.int64)
        parts.append((nodes, actions, outcomes))
    nodes, actions, outcomes = (np.concatenate(column) for column in zip(*parts, strict=True))
    counts = np.maximum(arrays.outcome_counts[outcomes], 1).astype(np.float64)
    totals = np.zeros(first.shape)
    np.add.at(totals, (nodes, actions), counts)
    visits = arrays.edge_visits[nodes, actions] * counts / totals[nodes, actions]
    return Links(nodes, actions, arrays.outcome_nodes[outcomes].astype(np.int64), visits)


def view_of(tree: Tree) -> TreeView:
    """Return what pictures show of a tree."""
    arrays, size = tree.arrays, tree.num_nodes
    parents, actions = arrays.parents[:size].astype(np.int64), arrays.parent_actions[:size].astype(np.int64)
    links = links_of(tree)
    return TreeView(
        parents,
        np.where(parents >= 0, actions, -1),
        np.rint(node_visits(tree)).astype(np.int64),
        np.where(parents >= 0, arrays.edge_values[parents, actions], arrays.values[0]),
        tree.principal_variation(by_value=False).nodes,
        np.column_stack([links.nodes, links.children]),
    )


def node_visits(tree: Tree) -> NDArray[np.float64]:
    """Return how many simulations came to each node, `[N]`."""
    # At a node where the episode goes on, these are the simulations that took an action there, and the one
    # that found it. No action is taken at the others, so the visits of the actions that led there count.
    links = links_of(tree)
    arrived = np.bincount(links.children, links.visits, minlength=tree.num_nodes)
    ended = tree.arrays.ended[: tree.num_nodes]
    visits: NDArray[np.float64] = np.where(
        ended, arrived, np.maximum(tree.arrays.visits[: tree.num_nodes], 1)
    )
    return visits
