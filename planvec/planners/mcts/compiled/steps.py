"""The steps of simulations as compiled code: writes their requests, and expands the tree by the answers.

Letters: B rows, K slots, S bytes of a state.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planvec.kernels import copy_bytes, jit, next_uint64
from planvec.planners.mcts.arrays import NUM_NODES, NUM_OUTCOMES, Paths, TreeArrays
from planvec.planners.mcts.compiled.progress import STEPPING, Limits, Progress, Requests
from planvec.planners.mcts.compiled.table import Table, look_up
from planvec.planners.mcts.expansion import expand
from planvec.planners.mcts.rules import OPEN_LOOP, SAMPLE, SINGLE, Rules
from planvec.planners.mcts.selection import resume

__all__ = ["request_steps", "take_steps"]


@jit(cache=True)
def request_steps(
    paths: Paths,
    tree_states: NDArray[np.uint8],
    actions: NDArray[np.uint8],
    limits: Limits,
    progress: Progress,
    requests: Requests,
    random: NDArray[np.uint64],
    half: int,
) -> None:
    """Write the request to take the last action of each path, and draw its seeds."""
    size, action_size = limits.state_bytes, limits.action_bytes
    first = progress.bounds[half]
    is_open_loop = len(requests.own_states) > 0
    for row in range(first, first + progress.num_rows[half]):
        slot = progress.rows[row]
        depth = paths.depths[slot]
        if is_open_loop:
            copy_bytes(requests.own_states, slot * size, requests.states, row * size, size)
        else:
            node = np.int64(paths.nodes[slot, depth])
            copy_bytes(tree_states, node * size, requests.states, row * size, size)
        source = paths.actions[slot, depth] * action_size
        copy_bytes(actions, source, requests.actions, row * action_size, action_size)
        if len(requests.seeds) > 0:
            requests.seeds[row] = next_uint64(random)
    progress.stages[half] = STEPPING


@jit(cache=True)
def _expand(
    tree: TreeArrays,
    paths: Paths,
    tree_states: NDArray[np.uint8],
    rules: Rules,
    limits: Limits,
    table: Table,
    powers: NDArray[np.float64],
    progress: Progress,
    requests: Requests,
    half: int,
) -> int:
    """Add the transitions of an answer to the tree. Returns how many selections go on from their node.

    Their slots are then the first rows of the half.
    """
    size, first = limits.state_bytes, progress.bounds[half]
    last = first + progress.num_rows[half]
    num_nodes, num_outcomes = tree.counters[NUM_NODES], tree.counters[NUM_OUTCOMES]
    is_open_loop = rules.chance == OPEN_LOOP
    for row in range(first, last):
        progress.discounts[row] = powers[requests.num_steps[row]]
        progress.ends[row] = requests.terminated[row] != 0 or requests.truncated[row] != 0
    if rules.chance == SINGLE and len(table.nodes) == 1:
        for row in range(first, last):
            progress.nodes[row] = progress.outcomes[row] = num_nodes + row - first
            copy_bytes(requests.new_states, row * size, tree_states, progress.nodes[row] * size, size)
    else:
        look_up(table, tree, tree_states, paths, progress, requests, first, last, size)
    expand(
        tree,
        paths,
        progress.rows[first:last],
        progress.outcomes[first:last],
        progress.nodes[first:last],
        requests.rewards[first:last],
        progress.discounts[first:last],
        requests.num_steps[first:last],
        progress.ends[first:last],
        rules,
    )
    count = 0
    for row in range(first, last):
        slot, node = progress.rows[row], progress.nodes[row]
        is_new = node == num_nodes
        num_nodes += is_new
        progress.is_new[slot] = is_new
        if is_open_loop:
            copy_bytes(requests.new_states, row * size, requests.own_states, slot * size, size)
            progress.has_ended[slot] = progress.ends[row]
        # A new outcome that leads to a known node ends the simulation with the value of that node.
        is_known = is_open_loop or progress.outcomes[row] < num_outcomes
        if not is_new and not progress.ends[row] and is_known:
            progress.rows[first + count] = slot
            count += 1
    return count


@jit(cache=True)
def take_steps(
    tree: TreeArrays,
    paths: Paths,
    tree_states: NDArray[np.uint8],
    rules: Rules,
    limits: Limits,
    table: Table,
    powers: NDArray[np.float64],
    progress: Progress,
    requests: Requests,
    half: int,
) -> bool:
    """Process the answer to the steps of a half. Returns whether some selections go on to further steps."""
    count = _expand(tree, paths, tree_states, rules, limits, table, powers, progress, requests, half)
    first, kept = progress.bounds[half], 0
    if count > 0:
        statuses = progress.statuses[first : first + count]
        resume(tree, paths, progress.rows[first : first + count], statuses, rules)
        for index in range(count):
            if statuses[index] == SAMPLE:
                progress.rows[first + kept] = progress.rows[first + index]
                kept += 1
    progress.num_rows[half] = kept
    return kept > 0
