"""A search tree: its arrays, the states of its nodes, queries, and files.

The tree is a struct of arrays of records with node 0 as its root. An edge is an action at a node. It has one
or more outcomes, each of which leads to a node. Where a step has one outcome, outcome and node have the same
index.

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
from planvec.planners.plan import TreeView
from planvec.planners.root_actions import equal_actions
from planvec.rows import arrays_of_states, damage_named, read_arrays, state_keys, states_of_arrays

# an action has one outcome; a node for each of its outcomes; one node for all of its outcomes
SINGLE, NODES, OPEN_LOOP = 0, 1, 2
# what a look at the environment has chosen: nothing; shorter rollouts; a graph of observations, or of states
AS_GIVEN, SHORT_ROLLOUTS, GRAPH, STATES = range(4)


class TreeKind(NamedTuple):
    """The settings with which a tree was searched. Only a search with the same ones can continue it."""

    has_own_actions: bool  # whether every node has its own, drawn actions
    has_priors: bool  # whether there are priors (PUCT)
    has_legal: bool  # whether there are masks of legal actions
    shares_nodes: bool  # whether equal states share a node
    chance: int  # `SINGLE`, `NODES` or `OPEN_LOOP`
    discount: float  # factor per environment step
    dt: int  # environment steps for which an action is repeated
    choice: int = AS_GIVEN  # `AS_GIVEN`, `SHORT_ROLLOUTS`, `GRAPH` or `STATES`

    @property
    def is_tree(self) -> bool:
        """Whether every outcome is new, and leads to the node with its index."""
        return self.chance == SINGLE and not self.shares_nodes


# indices of `TreeArrays.counters`: number of nodes, of outcomes, of random draws; whether the root was
# evaluated; whether a certain value was outside `value_bounds`
NUM_NODES, NUM_OUTCOMES, NUM_DRAWS, ROOT_WEIGHT, OUT_OF_BOUNDS = 0, 1, 2, 3, 4
NUM_COUNTERS = 5


class _Field:
    """A field of an array of records, which it gives as an array, a view."""

    def __init__(self, records: str, dtype: type[np.generic]) -> None:
        self.records, self.dtype = records, dtype

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, arrays: object, owner: object = None) -> np.ndarray:
        field: np.ndarray = getattr(arrays, self.records)[self._name]
        return field


class _Records(NamedTuple):
    """The arrays of a tree as compiled code sees them."""

    nodes: np.ndarray  # `[N]` records of the fields below
    edges: np.ndarray  # `[N, A]`
    outcomes: np.ndarray  # `[M]`
    root_edges: np.ndarray  # `[A]`
    priors: NDArray[np.float64]  # `[N, A]` float64, or `[1, 1]` without priors
    # `[N, A]` bool, the actions that may be taken, without those that are proven to be of no use; or `[1, 1]`
    # where all may
    legal: NDArray[np.bool_]
    bounds: NDArray[np.float64]  # `[2]` float64, the lowest and the highest return that were backed up
    # `[D + 1]` int64, number of simulations that ended after 0, 1, ... actions
    depth_histogram: NDArray[np.int64]
    counters: NDArray[np.int64]  # `[5]` int64; the constants above are its indices


class TreeArrays(_Records):
    """The arrays of a tree. What a search reads together lies together, in records."""

    __slots__ = ()

    visits = _Field("nodes", np.int32)  # completed simulations that took an action here
    unobserved = _Field("nodes", np.int32)  # those in flight (the O of WU-UCT)
    values = _Field("nodes", np.float64)  # estimated return from the node on, for the player to move
    raw_values = _Field("nodes", np.float64)  # its first evaluation, by a rollout or `value_fn`
    ended = _Field("nodes", np.bool_)  # whether the episode has ended
    pending = _Field("nodes", np.bool_)  # whether the first evaluation (a rollout) is in flight
    players = _Field("nodes", np.int8)  # the player to move; 0 at ends, and where there is one player
    # whether the value is exactly known though the episode goes on (`value_bounds`)
    proven = _Field("nodes", np.bool_)
    # Number of actions up to the nearest one that was not tried, as far as known; a large number: there is
    # none. Left out of `named`: a search that begins with 0 everywhere finds it again.
    frontiers = _Field("nodes", np.int32)
    starts = _Field("nodes", np.int32)  # the action that wins ties; further ones follow it cyclically
    parents = _Field("nodes", np.int32)  # the first parent; -1 for the root
    parent_actions = _Field("nodes", np.int32)  # the action of that parent
    edge_visits = _Field("edges", np.int32)  # completed simulations that took the action
    edge_unobserved = _Field("edges", np.int32)  # those in flight
    edge_values = _Field("edges", np.float64)  # mean return, for the player who takes the action
    edge_samples = _Field("edges", np.int32)  # how often an outcome was sampled
    first_outcomes = _Field("edges", np.int32)  # the latest outcome, first of a linked list; -1: none yet
    outcome_rewards = _Field("outcomes", np.float64)  # sum of rewards, for the player who takes the action
    # the discount to the power of the number of environment steps; negative where the other player is to move
    # next, whose values have the other sign
    outcome_discounts = _Field("outcomes", np.float64)
    outcome_nodes = _Field("outcomes", np.int32)  # the node that it leads to
    outcome_steps = _Field("outcomes", np.int32)  # number of environment steps
    outcome_counts = _Field("outcomes", np.int32)  # how often it was sampled
    next_outcomes = _Field("outcomes", np.int32)  # the next outcome of the edge; -1 at the end of the list
    # the returns of the root's actions, while this node was the root: their number, their means, and the sums
    # of their squared deviations
    root_visits = _Field("root_edges", np.int64)
    root_means = _Field("root_edges", np.float64)
    root_squares = _Field("root_edges", np.float64)

    def named(self) -> dict[str, np.ndarray]:
        """Return all arrays that files hold, by name: the fields of records, and the others."""
        arrays: dict[str, np.ndarray] = {}
        for name, array in self._asdict().items():
            names = array.dtype.names
            arrays |= {name: array} if names is None else {field: array[field] for field in names}
        del arrays["frontiers"]
        return arrays

    def used(self) -> TreeArrays:
        """Return the rows in use, without spare capacity, as views."""
        num_nodes, num_outcomes = int(self.counters[NUM_NODES]), int(self.counters[NUM_OUTCOMES])
        return self._replace(
            nodes=self.nodes[:num_nodes],
            edges=self.edges[:num_nodes],
            outcomes=self.outcomes[:num_outcomes],
            priors=self.priors[:num_nodes],
            legal=self.legal[:num_nodes],
        )


_NODE, _EDGE, _OUTCOME, _ROOT_EDGE = (
    np.dtype(
        [
            (name, field.dtype)
            for name, field in vars(TreeArrays).items()
            if isinstance(field, _Field) and field.records == records
        ],
        align=True,
    )
    for records in ("nodes", "edges", "outcomes", "root_edges")
)

# memory of a state in the transposition table: entries of dictionaries, and their keys
_BYTES_OF_TABLE_ENTRY = 400


def bytes_per_node(num_actions: int, state_bytes: int, action_bytes: int, kind: TreeKind) -> int:
    """Return the memory in bytes of a node: its edges, its state, its actions and the outcome before it."""
    # `state_bytes`: Bytes of one state; 0 without states. `action_bytes`: Bytes of one action; counted where
    # every node has its own actions.
    per_edge = _EDGE.itemsize + 8 * kind.has_priors + kind.has_legal + action_bytes * kind.has_own_actions
    per_node = _NODE.itemsize + _OUTCOME.itemsize
    return per_node + num_actions * per_edge + state_bytes + _BYTES_OF_TABLE_ENTRY * (not kind.is_tree)


def empty_arrays(capacity: int, num_actions: int, max_depth: int, kind: TreeKind) -> TreeArrays:
    """Return uninitialised arrays for a tree. The system provides their memory when it is written."""
    edges = (capacity, num_actions)
    return TreeArrays(
        nodes=np.empty(capacity, _NODE),
        edges=np.empty(edges, _EDGE),
        outcomes=np.empty(capacity, _OUTCOME),
        root_edges=np.zeros(num_actions, _ROOT_EDGE),
        priors=np.empty(edges) if kind.has_priors else np.zeros((1, 1)),
        legal=np.empty(edges, np.bool_) if kind.has_legal else np.zeros((1, 1), np.bool_),
        bounds=np.empty(2),
        depth_histogram=np.zeros(max_depth + 1, np.int64),
        counters=np.zeros(NUM_COUNTERS, np.int64),
    )


class Branch(NamedTuple):
    """A path from the root."""

    nodes: NDArray[np.int64]  # `[L + 1]` int64, from the root on
    actions: np.ndarray  # `[L, *action shape]`
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
    states: np.ndarray | None
    actions: np.ndarray
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

    def node_actions(self, node: int) -> np.ndarray:
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

    def view(self) -> TreeView:
        """Return what pictures show."""
        arrays, size = self.arrays, self.num_nodes
        # The links: every outcome of every action. Where equal states share nodes, several lead to one.
        first = arrays.first_outcomes[:size]
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
        children = arrays.outcome_nodes[outcomes].astype(np.int64)
        # The visits of an action are divided among its outcomes as they were sampled.
        counts = np.maximum(arrays.outcome_counts[outcomes], 1).astype(np.float64)
        totals = np.zeros(first.shape)
        np.add.at(totals, (nodes, actions), counts)
        link_visits = arrays.edge_visits[nodes, actions] * counts / totals[nodes, actions]
        # At a node where the episode goes on, the visits are the simulations that took an action there, and
        # the one that found it. No action is taken at the others, so the visits of the actions that led there
        # count.
        arrived = np.bincount(children, link_visits, minlength=size)
        visits = np.where(arrays.ended[:size], arrived, np.maximum(arrays.visits[:size], 1))
        parents = arrays.parents[:size].astype(np.int64)
        parent_actions = arrays.parent_actions[:size].astype(np.int64)
        return TreeView(
            parents,
            np.where(parents >= 0, parent_actions, -1),
            np.rint(visits).astype(np.int64),
            np.where(parents >= 0, arrays.edge_values[parents, parent_actions], arrays.values[0]),
            self.principal_variation(by_value=False).nodes,
            np.column_stack([nodes, children]),
        )

    # -- the next decision ----------------------------------------------------------------------

    def advance(self, action: object, state: object = None) -> Tree | None:
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

    def index_of(self, action: object) -> int:
        """Return the index of an action of the root; see `advance` for errors."""
        actions = self.node_actions(0)
        equal = equal_actions(actions, action)
        if not equal.any():
            raise InvalidBatchError(f"action: expected one of the root's actions, got {action!r}")
        return int(np.argmax(equal))

    def subtree(self, root: int) -> Tree:
        """Return the tree below a node."""
        from planvec.planners.mcts.subtree import mark_reachable  # here, since numba takes long to import

        arrays, num_nodes = self.arrays, self.num_nodes
        num_outcomes = int(arrays.counters[NUM_OUTCOMES])
        is_used, has_use = np.zeros(num_nodes, np.bool_), np.zeros(num_outcomes, np.bool_)
        mark_reachable(arrays.edges, arrays.outcomes, root, is_used, has_use, np.empty(num_nodes, np.int64))
        is_used[root] = False  # it comes first
        nodes = np.concatenate([[root], np.flatnonzero(is_used)])
        used_outcomes = np.concatenate([[0], np.flatnonzero(has_use)])
        new_node = np.full(num_nodes, -1, np.int32)
        new_node[nodes] = np.arange(len(nodes))
        # The last entry is that of -1, no outcome.
        new_outcome = np.full(num_outcomes + 1, -1, np.int32)
        new_outcome[used_outcomes[1:]] = np.arange(1, len(used_outcomes))
        counters = arrays.counters.copy()
        counters[[NUM_NODES, NUM_OUTCOMES, ROOT_WEIGHT]] = len(nodes), len(used_outcomes), 1
        # `take` copies records several times faster than an index does. Statistics that only the root has
        # start again at 0.
        part = TreeArrays(
            nodes=arrays.nodes.take(nodes),
            edges=arrays.edges.take(nodes, 0),
            outcomes=arrays.outcomes.take(used_outcomes),
            root_edges=np.zeros_like(arrays.root_edges),
            priors=arrays.priors.take(nodes, 0) if self.kind.has_priors else arrays.priors,
            legal=arrays.legal.take(nodes, 0) if self.kind.has_legal else arrays.legal,
            bounds=arrays.bounds.copy(),
            depth_histogram=np.zeros_like(arrays.depth_histogram),
            counters=counters,
        )
        part.parents[:] = np.where(part.parents >= 0, new_node[part.parents], -1)
        part.parents[0] = part.parent_actions[0] = -1
        part.first_outcomes[:] = new_outcome[part.first_outcomes]
        part.next_outcomes[:] = new_outcome[part.next_outcomes]
        part.outcome_nodes[0], part.outcome_nodes[1:] = 0, new_node[part.outcome_nodes[1:]]
        states = None if self.states is None else self.states.take(nodes)
        actions = self.actions.take(nodes, 0) if self.kind.has_own_actions else self.actions
        return Tree(part, states, actions, self.kind)

    def with_capacity(self, capacity: int, max_depth: int) -> Tree:
        """Return a copy whose N and M are `capacity`, and whose D is `max_depth`."""
        num_nodes, kind = self.num_nodes, self.kind
        arrays = empty_arrays(capacity, self.num_actions, max_depth, kind)
        for name, source in self.arrays.used()._asdict().items():
            if name != "depth_histogram":  # which begins again
                getattr(arrays, name)[: len(source)] = source
        states, actions = self.states, self.actions
        if states is not None:
            states = np.empty(capacity, states.dtype)
            states[:num_nodes] = self.saved_states
        if kind.has_own_actions:
            actions = np.empty((capacity, *actions.shape[1:]), actions.dtype)
            actions[:num_nodes] = self.actions[:num_nodes]
        return Tree(arrays, states, actions, kind)

    # -- files ------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the tree to a NumPy archive, which loads without running code.

        Args:
            path: The file, which is overwritten.
        """
        archive = self.to_arrays()
        with open(path, "wb") as file:  # given the name, NumPy would append ".npz"
            np.savez(file, **archive)  # type: ignore[arg-type]

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the tree as arrays of numbers and text, without spare capacity."""
        archive: dict[str, np.ndarray] = {"kind": np.array(json.dumps(self.kind))}
        archive |= self.arrays.used().named()
        archive["actions"] = self.actions[: self.num_nodes] if self.kind.has_own_actions else self.actions
        if self.states is not None:
            archive |= arrays_of_states("states", self.saved_states)
        return archive

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], action_space: Space[object] | None) -> Tree:
        """Return the tree that `to_arrays` turned into arrays.

        Args:
            arrays: The arrays, which may be damaged or made by others.
            action_space: The space of one action; a tree holds its actions, and does not need it.

        Raises:
            KeyError, TypeError, ValueError: They are damaged.
        """
        kind = TreeKind(*json.loads(str(arrays["kind"])))
        is_right = (
            all(isinstance(flag, bool) for flag in kind[:4])
            and kind.chance in range(SINGLE, OPEN_LOOP + 1)
            and isinstance(kind.discount, (int, float))
            and 0 <= kind.discount <= 1
            and isinstance(kind.dt, int)
            and kind.dt >= 1
            and kind.choice in range(AS_GIVEN, STATES + 1)
        )
        if not is_right:
            raise ValueError(f"kind: expected the settings of a search, got {arrays['kind']!s:.200}")
        counters, edge_visits, histogram = (
            arrays[name] for name in ("counters", "edge_visits", "depth_histogram")
        )
        if counters.shape != (NUM_COUNTERS,) or edge_visits.ndim != 2 or histogram.ndim != 1:
            raise ValueError("counters, edge_visits or depth_histogram have another number of dimensions")
        num_nodes, num_outcomes = int(counters[NUM_NODES]), int(counters[NUM_OUTCOMES])
        num_actions, num_depths = edge_visits.shape[1], len(histogram)
        if num_nodes < 1 or num_outcomes < 0 or num_actions < 1 or num_depths < 1:
            raise ValueError(f"expected at least one node and action, got {num_nodes} and {num_actions}")
        capacity = max(num_nodes, num_outcomes)
        if capacity > max(len(arrays["visits"]), len(arrays["outcome_nodes"])):
            raise ValueError(f"visits: expected int32 of shape ({num_nodes},), got fewer rows")
        parts = empty_arrays(capacity, num_actions, num_depths - 1, kind)
        parts.counters[:] = counters
        parts = parts.used()
        parts.frontiers[:] = 0
        for name, target in parts.named().items():
            array = arrays[name]
            if array.shape != target.shape or array.dtype != target.dtype:
                raise ValueError(
                    f"{name}: expected {target.dtype} of shape {target.shape}, got {array.dtype} of "
                    f"{array.shape}"
                )
            target[...] = array
        states = states_of_arrays("states", arrays) if "states" in arrays else None
        if states is not None and states.shape != (num_nodes,):
            raise ValueError(f"states: expected shape ({num_nodes},), got {states.shape}")
        actions = arrays["actions"]
        own = (num_nodes, num_actions) if kind.has_own_actions else (num_actions,)
        if actions.shape[: len(own)] != own:
            raise ValueError(
                f"actions: expected shape ({', '.join(map(str, own))}, ...), got {actions.shape}"
            )
        # Compiled kernels follow the indices without looking: a wrong one would crash the process.
        for name, low, high in (
            ("starts", 0, num_actions),
            ("players", 0, 2),
            ("parents", -1, num_nodes),
            ("parent_actions", -1, num_actions),
            ("first_outcomes", -1, num_outcomes),
            ("outcome_nodes", 0, num_nodes),
            ("next_outcomes", -1, num_outcomes),
        ):
            array = getattr(parts, name)
            if array.size and not low <= array.min() <= array.max() < high:
                raise ValueError(f"{name}: expected indices from {low} to {high - 1}")
        for name in ("visits", "edge_visits", "edge_samples", "outcome_counts", "outcome_steps", "counters"):
            if (getattr(parts, name) < 0).any():
                raise ValueError(f"{name}: expected no negative numbers")
        # A node of an open loop keeps waiting for its evaluation where its first simulation ended there.
        in_flight = ["unobserved", "edge_unobserved", *(["pending"] if kind.chance != OPEN_LOOP else [])]
        for name in in_flight:
            if getattr(parts, name).any():
                raise ValueError(f"{name}: expected a tree without simulations in flight")
        if kind.is_tree and not np.array_equal(parts.outcome_nodes, np.arange(num_nodes)):
            raise ValueError(
                "outcome_nodes: expected the index of each outcome, whose node has the same index"
            )
        for name in ("parents", "next_outcomes"):
            # A chain of indices has to end with -1. Each pass doubles the length looked at.
            after = getattr(parts, name).astype(np.int64)
            for _ in range(len(after).bit_length() + 1):
                after = np.where(after < 0, -1, after[after])
            if (after >= 0).any():
                raise ValueError(f"{name}: expected chains that end, got a cycle")
        # Outcomes are drawn by their counts: without any, a draw would run beyond the end of the list.
        linked = np.concatenate([parts.first_outcomes.reshape(-1), parts.next_outcomes])
        if (parts.outcome_counts[linked[linked >= 0]] < 1).any():
            raise ValueError("outcome_counts: expected a sample of each outcome of an action, got none")
        return cls(parts, states, actions, kind)

    @property
    def saved_states(self) -> np.ndarray:
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


def _as_array(state: object, dtype: np.dtype) -> np.ndarray:
    """Return one state as an array `[1]`."""
    if isinstance(state, np.ndarray) and state.shape == (1,):
        return state
    states = np.empty(1, dtype)
    states[0] = state
    return states
