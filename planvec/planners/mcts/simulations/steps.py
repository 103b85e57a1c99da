"""The steps of simulations as compiled code: writes their requests, and expands the tree by the answers.

Letters: B rows, K slots, S bytes of a state.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.kernels import Pointer, copy_bytes, jit, value_at
from planvec.planners.mcts.arrays import NUM_NODES, NUM_OUTCOMES
from planvec.planners.mcts.expansion import expand
from planvec.planners.mcts.rules import OPEN_LOOP, SAMPLE, SINGLE
from planvec.planners.mcts.selection import resume
from planvec.planners.mcts.simulations.progress import NUM_STARTED, STEPS, Steps
from planvec.planners.mcts.simulations.shared import Shared
from planvec.planners.mcts.simulations.table import look_up


@jit()
def request_steps(memory: Pointer[Shared], half: int) -> None:
    """Write the request to take the last action of each path."""
    shared: Shared = value_at(memory)
    paths, rules, limits = shared.paths, shared.rules, shared.limits
    progress, requests = shared.progress, shared.requests
    size, action_size = limits.state_bytes, limits.action_bytes
    first = progress.bounds[half]
    for row in range(first, first + progress.num_rows[half]):
        slot = progress.rows[row]
        depth = paths.depths[slot]
        if rules.chance == OPEN_LOOP:
            copy_bytes(requests.own_states, slot * size, requests.states, row * size, size)
        else:
            node = np.int64(paths.nodes[slot, depth])
            copy_bytes(shared.tree_states, node * size, requests.states, row * size, size)
        source = paths.actions[slot, depth] * action_size
        copy_bytes(shared.actions, source, requests.actions, row * action_size, action_size)
    progress.stages[half] = STEPS


@jit(cache=True)
def orient(code: Any, memory: Pointer[Shared], steps: Steps, half: int) -> None:
    """Turn the rewards of an answer, those of player 0, into those of the players who took the actions."""
    # With the sign of `outcome_discounts`, everything else is the same for one player and for two.
    shared: Shared = value_at(memory)
    tree, paths, progress = shared.tree, shared.paths, shared.progress
    if shared.limits.player_at >= 0:
        for row in range(len(steps.rewards)):
            slot = progress.rows[progress.bounds[half] + row]
            if tree.nodes[paths.nodes[slot, paths.depths[slot]]].players == 1:
                steps.rewards[row] = -steps.rewards[row]


@jit(cache=True)
def find_outcomes(code: Any, memory: Pointer[Shared], steps: Steps, half: int) -> None:
    """Find the outcome and the node of each row of an answer. New ones get the next free indices."""
    shared: Shared = value_at(memory)
    tree, tree_states, table, progress = shared.tree, shared.tree_states, shared.table, shared.progress
    rules, limits = shared.rules, shared.limits
    size, first = limits.state_bytes, progress.bounds[half]
    if rules.chance == SINGLE and len(table.nodes) == 1:
        num_nodes = tree.counters[NUM_NODES]
        for row in range(len(steps.rewards)):
            node = num_nodes + row
            progress.nodes[first + row] = progress.outcomes[first + row] = node
            copy_bytes(steps.new_states, row * size, tree_states, node * size, size)
    else:
        look_up(table, tree, tree_states, shared.paths, progress, first, steps, size)


@jit(cache=True)
def expand_half(code: Any, memory: Pointer[Shared], steps: Steps, half: int) -> int:
    """Add the transitions of an answer to the tree. Returns how many selections go on from their node."""
    # Their slots are then the first rows of the half. The last nodes of the others are leaves.
    shared: Shared = value_at(memory)
    tree, rules, limits = shared.tree, shared.rules, shared.limits
    progress, requests = shared.progress, shared.requests
    size, first = limits.state_bytes, progress.bounds[half]
    last = first + progress.num_rows[half]
    num_nodes, num_outcomes = tree.counters[NUM_NODES], tree.counters[NUM_OUTCOMES]
    is_open_loop = rules.chance == OPEN_LOOP
    for row in range(last - first):
        num_steps = steps.num_steps[row]
        power = limits.discount if num_steps == 1 else math.pow(limits.discount, np.float64(num_steps))
        if limits.player_at >= 0:
            slot = progress.rows[first + row]
            before = tree.nodes[shared.paths.nodes[slot, shared.paths.depths[slot]]].players
            if (steps.new_states[row * size + limits.player_at] == 1) != (before == 1):
                power = -power
        progress.discounts[first + row] = power
        progress.ends[first + row] = steps.terminated[row] != 0 or steps.truncated[row] != 0
    expand(
        tree,
        shared.paths,
        progress.rows[first:last],
        progress.outcomes[first:last],
        progress.nodes[first:last],
        steps.rewards,
        progress.discounts[first:last],
        steps.num_steps,
        progress.ends[first:last],
        rules,
    )
    count = 0
    for row in range(first, last):
        slot, node = progress.rows[row], progress.nodes[row]
        is_new = node == num_nodes
        num_nodes += is_new
        progress.is_new[slot] = is_new
        at = (row - first) * size
        if is_new and limits.player_at >= 0:
            tree.nodes[node].players = steps.new_states[at + limits.player_at] == 1
        if is_new and limits.mask_at >= 0:
            for action in range(tree.edges.shape[1]):
                tree.legal[node, action] = steps.new_states[at + limits.mask_at + action] != 0
        if is_open_loop:
            copy_bytes(steps.new_states, at, requests.own_states, slot * size, size)
            progress.has_ended[slot] = progress.ends[row]
        # A new outcome that leads to a known node ends the simulation with the value of that node.
        is_known = is_open_loop or progress.outcomes[row] < num_outcomes
        if not is_new and not progress.ends[row] and is_known:
            progress.rows[first + count] = slot
            count += 1
    return count


@jit()
def go_down(memory: Pointer[Shared], slots: NDArray[np.int64], statuses: NDArray[np.int64]) -> int:
    """Continue selections from their last nodes; see `resume`."""
    shared: Shared = value_at(memory)
    num_started = shared.progress.totals[NUM_STARTED]
    return resume(shared.tree, shared.paths, slots, statuses, shared.rules, shared.halving, num_started)


@jit()
def select_on(memory: Pointer[Shared], half: int, num_rows: int) -> bool:
    """Continue the selections of the first rows of a half. Returns whether some lead to further steps."""
    shared: Shared = value_at(memory)
    progress = shared.progress
    first, kept = progress.bounds[half], 0
    if num_rows > 0:
        slots = progress.rows[first : first + num_rows]
        statuses = progress.statuses[first : first + num_rows]
        go_down(memory, slots, statuses)
        for index in range(num_rows):
            if statuses[index] == SAMPLE:
                slots[kept] = slots[index]
                kept += 1
    progress.num_rows[half] = kept
    return kept > 0
