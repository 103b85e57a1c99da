"""The values of leaves as compiled code: writes the requests for rollouts, and takes their returns.

Letters: K slots.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planvec.kernels import copy_bytes, jit, next_uint64
from planvec.planners.mcts.arrays import Paths, TreeArrays
from planvec.planners.mcts.compiled.progress import ROLLING, Limits, Progress, Requests
from planvec.planners.mcts.rules import Rules

__all__ = ["request_rollouts", "take_rollouts"]


@jit(cache=True)
def request_rollouts(
    tree: TreeArrays,
    paths: Paths,
    tree_states: NDArray[np.uint8],
    rules: Rules,
    limits: Limits,
    progress: Progress,
    requests: Requests,
    random: NDArray[np.uint64],
    half: int,
) -> int:
    """Write the values of last nodes that are known, and the request for rollouts. Returns its rows."""
    size, first = limits.state_bytes, progress.bounds[half]
    is_open_loop = len(requests.own_states) > 0
    count = 0
    for slot in range(first, first + progress.counts[half]):
        depth = paths.depths[slot]
        node = np.int64(paths.nodes[slot, depth])
        if not is_open_loop:
            progress.has_ended[slot] = tree.nodes[node].ended
        value = tree.nodes[node].values if rules.backs_up_values else tree.nodes[node].raw_values
        if progress.has_ended[slot]:
            value = 0.0
        elif limits.rollout_steps > 0 and (
            progress.is_new[slot] or tree.nodes[node].pending or depth >= rules.max_depth
        ):
            row = first + count
            progress.rows[row] = slot
            count += 1
            if is_open_loop:
                copy_bytes(requests.own_states, slot * size, requests.states, row * size, size)
            else:
                copy_bytes(tree_states, node * size, requests.states, row * size, size)
        progress.leaf_values[slot] = value
    progress.num_rows[half] = count
    if count > 0:
        progress.stages[half] = ROLLING
        requests.action_seeds[half] = next_uint64(random) >> np.uint64(1)  # as `integers(2**63)`
        if len(requests.seeds) > 0:
            for row in range(first, first + count):
                requests.seeds[row] = next_uint64(random)
    return count


@jit(cache=True)
def take_rollouts(tree: TreeArrays, paths: Paths, progress: Progress, requests: Requests, half: int) -> None:
    """Take the returns of rollouts as the values of last nodes."""
    first = progress.bounds[half]
    for row in range(first, first + progress.num_rows[half]):
        slot, value = progress.rows[row], requests.rewards[row]
        progress.leaf_values[slot] = value
        if progress.is_new[slot]:
            node = paths.nodes[slot, paths.depths[slot]]
            tree.nodes[node].raw_values = value
            # Other simulations may have passed meanwhile; the value is then a mean without this one.
            tree.nodes[node].values += value / (tree.nodes[node].visits + 1)
            tree.nodes[node].pending = False
