"""The arrays of a search tree, and what they take.

The tree is a struct of arrays, its root node 0. An edge is an action at a node; it leads to one or more
outcomes, each of which leads to a node. Where a step has one outcome, outcome and node have the same index.

Letters: N nodes, A actions per node, M outcomes, K simulations in flight, D depths.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "COLLIDED",
    "EDGE_DTYPES",
    "NODES",
    "NODE_DTYPES",
    "NUM_DRAWS",
    "NUM_NODES",
    "NUM_OUTCOMES",
    "OPEN_LOOP",
    "OPTIONAL_EDGE_DTYPES",
    "OUTCOME_DTYPES",
    "RESOLVED",
    "ROOT_WEIGHT",
    "SAMPLE",
    "SCALE_BY_NODE",
    "SCALE_BY_TREE",
    "SINGLE",
    "Paths",
    "Rules",
    "TreeArrays",
    "TreeKind",
    "bytes_per_node",
    "empty_arrays",
    "empty_paths",
]

SAMPLE, RESOLVED, COLLIDED = 0, 1, 2
"""How a descent ends: at an action to step; where the value is known; at a step that is under way."""
SINGLE, NODES, OPEN_LOOP = 0, 1, 2
"""An action has one outcome; outcomes that are nodes of their own; one node for all of its outcomes."""
SCALE_BY_TREE, SCALE_BY_NODE = -1.0, -2.0
"""Values of `Rules.value_scale`; any other is the scale itself."""
NUM_NODES, NUM_OUTCOMES, NUM_DRAWS, ROOT_WEIGHT = 0, 1, 2, 3
"""Indices of `TreeArrays.counters`."""


class TreeArrays(NamedTuple):
    """The tree.

    Attributes:
        visits: `[N]` int32, completed simulations that took an action here.
        unobserved: `[N]` int32, those under way (the O of WU-UCT).
        values: `[N]` float64, estimate of the return from here on.
        own_values: `[N]` float64, what the node was evaluated to when it was new.
        ended: `[N]` bool.
        pending: `[N]` bool, whether its own evaluation (a rollout) is under way.
        starts: `[N]` int32, the action from which ties are broken.
        parents: `[N]` int32, where the node was first reached from; -1 for the root.
        parent_actions: `[N]` int32.
        edge_visits: `[N, A]` int32.
        edge_unobserved: `[N, A]` int32.
        edge_values: `[N, A]` float64, mean return of an action.
        edge_samples: `[N, A]` int32, how often its outcome was asked for.
        first_outcomes: `[N, A]` int32, the latest outcome; -1: none yet.
        priors: `[N, A]` float64, or `[1, 1]` where none are needed.
        legal: `[N, A]` bool, or `[1, 1]` where all are legal.
        outcome_nodes: `[M]` int32.
        outcome_rewards: `[M]` float64.
        outcome_discounts: `[M]` float64, discount to the number of steps that it took.
        outcome_steps: `[M]` int32, that number.
        outcome_counts: `[M]` int32, how often it was sampled.
        next_outcomes: `[M]` int32, the other outcomes of its edge; -1 at the end.
        bounds: `[2]` float64, the lowest and the highest return that was backed up.
        root_visits: `[A]` int64, returns of the root's actions, as its own.
        root_means: `[A]` float64, their means.
        root_squares: `[A]` float64, their sums of squared deviations.
        depth_histogram: `[D + 1]` int64, simulations that ended after so many actions.
        counters: `[4]` int64: nodes, outcomes, random draws; whether the root was evaluated (0 or 1).
    """

    visits: NDArray[np.int32]
    unobserved: NDArray[np.int32]
    values: NDArray[np.float64]
    own_values: NDArray[np.float64]
    ended: NDArray[np.bool_]
    pending: NDArray[np.bool_]
    starts: NDArray[np.int32]
    parents: NDArray[np.int32]
    parent_actions: NDArray[np.int32]
    edge_visits: NDArray[np.int32]
    edge_unobserved: NDArray[np.int32]
    edge_values: NDArray[np.float64]
    edge_samples: NDArray[np.int32]
    first_outcomes: NDArray[np.int32]
    priors: NDArray[np.float64]
    legal: NDArray[np.bool_]
    outcome_nodes: NDArray[np.int32]
    outcome_rewards: NDArray[np.float64]
    outcome_discounts: NDArray[np.float64]
    outcome_steps: NDArray[np.int32]
    outcome_counts: NDArray[np.int32]
    next_outcomes: NDArray[np.int32]
    bounds: NDArray[np.float64]
    root_visits: NDArray[np.int64]
    root_means: NDArray[np.float64]
    root_squares: NDArray[np.float64]
    depth_histogram: NDArray[np.int64]
    counters: NDArray[np.int64]


class TreeKind(NamedTuple):
    """How a tree was searched: only a search of the same kind can go on with it.

    Attributes:
        has_own_actions: Whether every node has actions of its own.
        has_priors: PUCT.
        has_legal: Whether there are legal actions.
        shares_nodes: Whether equal states share a node.
        chance: `SINGLE`, `NODES` or `OPEN_LOOP`.
        discount: Per environment step.
        dt: Environment steps of an action.
    """

    has_own_actions: bool
    has_priors: bool
    has_legal: bool
    shares_nodes: bool
    chance: int
    discount: float
    dt: int


class Paths(NamedTuple):
    """What each simulation in flight has done since the root.

    Attributes:
        depths: `[K]` int32, the number of its actions.
        nodes: `[K, D + 1]` int32.
        actions: `[K, D]` int32.
        rewards: `[K, D]` float64.
        discounts: `[K, D]` float64.
    """

    depths: NDArray[np.int32]
    nodes: NDArray[np.int32]
    actions: NDArray[np.int32]
    rewards: NDArray[np.float64]
    discounts: NDArray[np.float64]


class Rules(NamedTuple):
    """What the kernels go by.

    Attributes:
        exploration: Factor of the bonus.
        value_scale: What a bonus of 1 is worth: a number, `SCALE_BY_TREE` or `SCALE_BY_NODE`.
        use_priors: PUCT, else UCT.
        use_legal: Whether `legal` is to be looked at.
        chance: `SINGLE`, `NODES` or `OPEN_LOOP`.
        max_depth: D.
        widening: Actions allowed at a node: `widening[0] * visits ** widening[1]`; (inf, 0): all.
        sampling: The same for the outcomes sampled of an action.
        backs_up_values: Whether values are computed anew from those of the outcomes, as a graph needs it,
            or are means of the returns that passed.
        backs_up_max: Whether a node is worth its best action, or the mean over its simulations.
        rolls_out: Whether new nodes wait for a rollout.
        seed: For starts and draws.
    """

    exploration: float
    value_scale: float
    use_priors: bool
    use_legal: bool
    chance: int
    max_depth: int
    widening: tuple[float, float]
    sampling: tuple[float, float]
    backs_up_values: bool
    backs_up_max: bool
    rolls_out: bool
    seed: int


NODE_DTYPES = {
    "visits": np.int32,
    "unobserved": np.int32,
    "values": np.float64,
    "own_values": np.float64,
    "ended": np.bool_,
    "pending": np.bool_,
    "starts": np.int32,
    "parents": np.int32,
    "parent_actions": np.int32,
}
EDGE_DTYPES = {
    "edge_visits": np.int32,
    "edge_unobserved": np.int32,
    "edge_values": np.float64,
    "edge_samples": np.int32,
    "first_outcomes": np.int32,
}
OPTIONAL_EDGE_DTYPES = {"priors": np.float64, "legal": np.bool_}
OUTCOME_DTYPES = {
    "outcome_nodes": np.int32,
    "outcome_rewards": np.float64,
    "outcome_discounts": np.float64,
    "outcome_steps": np.int32,
    "outcome_counts": np.int32,
    "next_outcomes": np.int32,
}


_BYTES_OF_PLACE = 400
"""What it takes to find a state again: entries of dictionaries, and their keys."""


def bytes_per_node(num_actions: int, state_bytes: int, action_bytes: int, kind: TreeKind) -> int:
    """What one node of a tree takes, with its edges, its state, its actions and an outcome that leads to it.

    Args:
        num_actions: A.
        state_bytes: Of one state; 0 where none are kept.
        action_bytes: Of one action; counted where every node has its own.
        kind: How the tree is searched.
    """
    per_edge = sum(np.dtype(each).itemsize for each in EDGE_DTYPES.values())
    per_edge += 8 * kind.has_priors + kind.has_legal + action_bytes * kind.has_own_actions
    per_node = sum(np.dtype(each).itemsize for each in (*NODE_DTYPES.values(), *OUTCOME_DTYPES.values()))
    finds_again = kind.chance != SINGLE or kind.shares_nodes
    return per_node + num_actions * per_edge + state_bytes + _BYTES_OF_PLACE * finds_again


def empty_arrays(
    capacity: int, num_actions: int, max_depth: int, use_priors: bool, use_legal: bool
) -> TreeArrays:
    """Uninitialised arrays for a tree: memory that is never written is never taken.

    Args:
        capacity: N and M.
        num_actions: A.
        max_depth: D.
        use_priors: Whether there are priors.
        use_legal: Whether there are legal actions.
    """
    edges = (capacity, num_actions)
    shapes = {"priors": edges if use_priors else (1, 1), "legal": edges if use_legal else (1, 1)}
    arrays: dict[str, NDArray[Any]] = {}
    for name, dtype in {**NODE_DTYPES, **OUTCOME_DTYPES}.items():
        arrays[name] = np.empty(capacity, dtype)
    for name, dtype in EDGE_DTYPES.items():
        arrays[name] = np.empty(edges, dtype)
    for name, dtype in OPTIONAL_EDGE_DTYPES.items():
        arrays[name] = np.empty(shapes[name], dtype)
    return TreeArrays(
        **arrays,
        bounds=np.empty(2),
        root_visits=np.zeros(num_actions, np.int64),
        root_means=np.zeros(num_actions),
        root_squares=np.zeros(num_actions),
        depth_histogram=np.zeros(max_depth + 1, np.int64),
        counters=np.zeros(4, np.int64),
    )


def empty_paths(num_slots: int, max_depth: int) -> Paths:
    """Room for the paths of simulations in flight.

    Args:
        num_slots: K.
        max_depth: D.
    """
    return Paths(
        np.zeros(num_slots, np.int32),
        np.zeros((num_slots, max_depth + 1), np.int32),
        np.zeros((num_slots, max_depth), np.int32),
        np.zeros((num_slots, max_depth)),
        np.zeros((num_slots, max_depth)),
    )
