"""Extract the arrays of the subtree below a node. Letters: N nodes, A actions per node, M outcomes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planvec.planners.mcts.arrays import NUM_DRAWS, NUM_NODES, NUM_OUTCOMES, TreeArrays

__all__ = ["extract_subtree"]


def extract_subtree(arrays: TreeArrays, root: int) -> tuple[NDArray[np.int64], TreeArrays]:
    """Return the nodes that can be reached from a node, and their arrays with that node as the root.

    Statistics that only the root has start again at 0.

    Args:
        arrays: The arrays of the whole tree.
        root: The node.

    Returns:
        The indices of the nodes in the whole tree, the root first, and the new arrays.
    """
    nodes, outcomes = _reachable(arrays, root)
    used_outcomes = np.array([0, *outcomes], np.int64)
    new_node = np.full(int(arrays.counters[NUM_NODES]), -1, np.int32)
    new_node[nodes] = np.arange(len(nodes))
    # The last entry is that of -1, no outcome.
    new_outcome = np.full(int(arrays.counters[NUM_OUTCOMES]) + 1, -1, np.int32)
    new_outcome[used_outcomes[1:]] = np.arange(1, len(used_outcomes))
    part = arrays._replace(
        **{name: getattr(arrays, name)[nodes] for name in arrays.rows() if name != "outcomes"},
        outcomes=arrays.outcomes[used_outcomes],
        root_edges=np.zeros_like(arrays.root_edges),
        bounds=arrays.bounds.copy(),
        depth_histogram=np.zeros_like(arrays.depth_histogram),
        counters=np.array([len(nodes), len(used_outcomes), arrays.counters[NUM_DRAWS], 1], np.int64),
    )
    part.parents[:] = np.where(part.parents >= 0, new_node[part.parents], -1)
    part.parents[0] = part.parent_actions[0] = -1
    part.first_outcomes[:] = new_outcome[part.first_outcomes]
    part.next_outcomes[:] = new_outcome[part.next_outcomes]
    part.outcome_nodes[0], part.outcome_nodes[1:] = 0, new_node[part.outcome_nodes[1:]]
    return nodes, part


def _reachable(arrays: TreeArrays, root: int) -> tuple[NDArray[np.int64], list[int]]:
    """Return the nodes that can be reached from a node, itself first, and the outcomes that lead to them.

    Both are in the order of their indices.
    """
    seen, seen_outcomes, front = {root}, set[int](), [root]
    while front:
        edges = arrays.first_outcomes[front].reshape(-1)
        outcomes = edges[edges >= 0]
        front = []
        while len(outcomes):
            for outcome, node in zip(outcomes.tolist(), arrays.outcome_nodes[outcomes].tolist(), strict=True):
                seen_outcomes.add(outcome)
                if node not in seen:
                    seen.add(node)
                    front.append(node)
            outcomes = arrays.next_outcomes[outcomes]
            outcomes = outcomes[outcomes >= 0]
    nodes = np.array([root, *sorted(seen - {root})], np.int64)
    return nodes, sorted(seen_outcomes)
