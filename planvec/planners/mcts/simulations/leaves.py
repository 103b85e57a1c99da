"""The values of leaves as compiled code: writes the requests for them, and backs them up.

Letters: B rows, K slots.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.kernels import Pointer, copy_bytes, jit, value_at
from planvec.planners.mcts.backup import back_up
from planvec.planners.mcts.rules import OPEN_LOOP
from planvec.planners.mcts.simulations.progress import COMPLETED, LEAVES, NUM_SIMULATIONS, PERFORM
from planvec.planners.mcts.simulations.shared import Shared


@jit()
def _back_up(memory: Pointer[Shared], half: int) -> int:
    """Back up the simulations of a half, which completes them."""
    shared: Shared = value_at(memory)
    progress = shared.progress
    first = progress.bounds[half]
    last = first + progress.counts[half]
    slots, values = progress.slots[first:last], progress.leaf_values[first:last]
    back_up(shared.tree, shared.paths, slots, values, shared.rules)
    progress.totals[NUM_SIMULATIONS] += progress.counts[half]
    return COMPLETED


@jit()
def finish(memory: Pointer[Shared], half: int) -> int:
    """Take the values of leaves and back up the simulations, or write the request for values."""
    # With rollouts, a simulation makes a rollout if its last node is new, at the largest depth, or waiting
    # for the rollout of another simulation. Any other one reached a node that another simulation has
    # evaluated, whose value it takes.
    # Returns `COMPLETED` or `PERFORM`.
    shared: Shared = value_at(memory)
    tree, rules, limits = shared.tree, shared.rules, shared.limits
    progress, requests = shared.progress, shared.requests
    size, first = limits.state_bytes, progress.bounds[half]
    is_open_loop = rules.chance == OPEN_LOOP
    count = 0
    for slot in range(first, first + progress.counts[half]):
        depth = shared.paths.depths[slot]
        index = np.int64(shared.paths.nodes[slot, depth])
        node = tree.nodes[index]
        if not is_open_loop:
            progress.has_ended[slot] = node.ended
        value = node.values if rules.backs_up_values else node.raw_values
        if progress.has_ended[slot]:
            value = 0.0
        elif limits.asks_leaves and (progress.is_new[slot] or node.pending or depth >= rules.max_depth):
            row = first + count
            progress.rows[row] = slot
            count += 1
            if is_open_loop:
                copy_bytes(requests.own_states, slot * size, requests.states, row * size, size)
            else:
                copy_bytes(shared.tree_states, index * size, requests.states, row * size, size)
        progress.leaf_values[slot] = value
    progress.num_rows[half] = count
    if count == 0:
        return _back_up(memory, half)
    progress.stages[half] = LEAVES
    return PERFORM


@jit(cache=True)
def take_values(code: Any, memory: Pointer[Shared], values: NDArray[np.float64], half: int) -> int:
    """Take the values `[B]` that were requested for leaves, and back up the simulations."""
    # Those of rollouts are returns of player 0.
    shared: Shared = value_at(memory)
    tree, paths, progress = shared.tree, shared.paths, shared.progress
    first = progress.bounds[half]
    for row in range(progress.num_rows[half]):
        slot = progress.rows[first + row]
        node = tree.nodes[paths.nodes[slot, paths.depths[slot]]]
        value = -values[row] if node.players == 1 else values[row]
        progress.leaf_values[slot] = value
        if shared.rules.rolls_out and progress.is_new[slot]:
            node.raw_values = value
            # Other simulations may have passed meanwhile; the value is then a mean without this one.
            node.values += value / (node.visits + 1)
            node.pending = False
    return _back_up(memory, half)
