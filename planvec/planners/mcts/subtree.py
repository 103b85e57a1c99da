"""Extract the arrays of the subtree below a node. Letters: N nodes, A actions per node, M outcomes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.kernels import jit
from planvec.planners.mcts.arrays import NUM_NODES, NUM_OUTCOMES, ROOT_WEIGHT, TreeArrays


def extract_subtree(arrays: TreeArrays, root: int) -> tuple[NDArray[np.int64], TreeArrays]:
    """Return the nodes that can be reached from a node, and their arrays with that node as the root."""
    # Statistics that only the root has start again at 0.
    num_nodes, num_outcomes = int(arrays.counters[NUM_NODES]), int(arrays.counters[NUM_OUTCOMES])
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
    # `take` copies records several times faster than an index does.
    part = arrays._replace(
        **{name: getattr(arrays, name).take(nodes, 0) for name in arrays.rows() if name != "outcomes"},
        outcomes=arrays.outcomes.take(used_outcomes),
        root_edges=np.zeros_like(arrays.root_edges),
        bounds=arrays.bounds.copy(),
        depth_histogram=np.zeros_like(arrays.depth_histogram),
        counters=counters,
    )
    part.parents[:] = np.where(part.parents >= 0, new_node[part.parents], -1)
    part.parents[0] = part.parent_actions[0] = -1
    part.first_outcomes[:] = new_outcome[part.first_outcomes]
    part.next_outcomes[:] = new_outcome[part.next_outcomes]
    part.outcome_nodes[0], part.outcome_nodes[1:] = 0, new_node[part.outcome_nodes[1:]]
    return nodes, part


@jit(cache=True)
def mark_reachable(
    edges: NDArray[Any],  # `[N, A]`
    outcomes: NDArray[Any],  # `[M]`
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
