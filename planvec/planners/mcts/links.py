"""Lists how the nodes of a tree lead to each other. Letters: N nodes, E links."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planvec.planners.mcts.tree import Tree
from planvec.planners.tree_view import TreeView


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
