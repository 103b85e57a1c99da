"""Compiled queries of a search tree: the nodes below one, and its best actions.

The arrays are those of `tree.TreeArrays`. Letters: N nodes, A actions per node, M outcomes, D depths.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.kernels import jit


@jit(cache=True)
def mark_reachable(
    edges: np.ndarray,  # `[N, A]`
    outcomes: np.ndarray,  # `[M]`
    root: Any,
    nodes: NDArray[np.bool_],  # `[N]`, all False; written
    used: NDArray[np.bool_],  # `[M]`, all False; written
    stack: NDArray[np.int64],  # `[N]`, memory for the nodes whose edges are to be followed
) -> None:
    """Mark the nodes that can be reached from a node, itself included, and the outcomes that lead there."""
    stack[0], size = root, 1
    nodes[root] = True
    while size > 0:
        size -= 1
        node = stack[size]
        for action in range(edges.shape[1]):
            outcome = edges[node, action].first_outcomes
            while outcome >= 0:
                used[outcome] = True
                child = outcomes[outcome].outcome_nodes
                if not nodes[child]:
                    nodes[child] = True
                    stack[size] = child
                    size += 1
                outcome = outcomes[outcome].next_outcomes


@jit(cache=True)
def best_edge(edges: np.ndarray, legal: NDArray[np.bool_], node: Any, by_value: bool) -> int:
    """Return the index of the best action of a node; see `Tree.best_action`."""
    best, most_visits, best_value = -1, 0, -math.inf
    only_legal = False
    if legal.shape == edges.shape:
        for action in range(edges.shape[1]):
            only_legal |= legal[node, action] and edges[node, action].edge_visits > 0
    for action in range(edges.shape[1]):
        visits, value = edges[node, action].edge_visits, edges[node, action].edge_values
        if visits > 0 and (not only_legal or legal[node, action]):
            if math.isnan(value):
                value = -math.inf
            if by_value:
                is_better = value > best_value or (value == best_value and visits > most_visits)
            else:
                is_better = visits > most_visits or (visits == most_visits and value > best_value)
            if is_better or best < 0:
                best, most_visits, best_value = action, visits, value
    return best


@jit(cache=True)
def follow_best(
    edges: np.ndarray,  # `[N, A]`
    legal: NDArray[np.bool_],  # `[N, A]`, or `[1, 1]` where all actions are legal
    outcomes: np.ndarray,  # `[M]`
    by_value: bool,
    first: int,
    path: NDArray[np.int64],  # `[D]`, written: the outcomes
    actions: NDArray[np.int64],  # `[D]`, written: the indices of the actions
) -> int:
    """Follow the best actions and their most frequent outcomes from the root on, without a cycle."""
    # `first`: index of the action at the root; -1: the best one.
    # Returns the number of actions.
    node = np.int64(0)
    for depth in range(len(path)):
        action = first if depth == 0 and first >= 0 else best_edge(edges, legal, node, by_value)
        outcome = edges[node, action].first_outcomes if action >= 0 else -1
        best, most = np.int64(-1), -1
        while outcome >= 0:
            if outcomes[outcome].outcome_counts > most:
                best, most = np.int64(outcome), outcomes[outcome].outcome_counts
            outcome = outcomes[outcome].next_outcomes
        if best < 0:
            return depth
        node = np.int64(outcomes[best].outcome_nodes)
        if node == 0:
            return depth
        for before in range(depth):
            if outcomes[path[before]].outcome_nodes == node:
                return depth
        path[depth], actions[depth] = best, action
    return len(path)
