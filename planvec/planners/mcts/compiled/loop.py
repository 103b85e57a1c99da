"""The loop of a compiled search: what `TreeSearch` and the driver do in Python, for one root.

    select --> step --> expand --> roll out --> back up
                 ^         |
                 +---------+  (a sampled outcome that was in the tree already: select on from its node)

It begins simulations, writes their requests, and processes the answers in the order of the requests, as
`planvec.planners.driver` does, and draws the same random numbers. So it finds the same plan. It knows no
kernel and is compiled once; `performing` answers the requests.

Letters: B rows, K slots, S bytes of a state.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.kernels import copy_bytes, jit, next_uint64
from planvec.planners.mcts.arrays import (
    MAX_IDLE,
    NUM_NODES,
    NUM_OUTCOMES,
    OPEN_LOOP,
    SAMPLE,
    SINGLE,
    Paths,
    Rules,
    TreeArrays,
)
from planvec.planners.mcts.backup import back_up
from planvec.planners.mcts.compiled.progress import (
    DONE,
    ENDED,
    EXHAUSTED,
    GOES_ON,
    MAX_ENV_STEPS,
    MAX_MEMORY,
    NUM_ENV_STEPS,
    NUM_EVENTS,
    NUM_FREE,
    NUM_IDLE,
    NUM_QUEUED,
    NUM_SIMULATIONS,
    NUM_SIMULATIONS_REACHED,
    NUM_STARTED,
    PAUSED,
    PERFORM,
    ROLLING,
    STEPPING,
    STOP,
    Limits,
    Progress,
    Requests,
)
from planvec.planners.mcts.compiled.table import Table, look_up
from planvec.planners.mcts.expansion import expand
from planvec.planners.mcts.selection import resume, select

__all__ = ["advance"]


@jit(cache=True)
def _num_allowed(tree: TreeArrays, progress: Progress, limits: Limits) -> Any:
    """Return how many simulations may begin; set the reason to stop where it is 0 from now on."""
    totals = progress.totals
    if 0 <= limits.num_simulations <= totals[NUM_STARTED]:
        totals[STOP] = NUM_SIMULATIONS_REACHED
        return 0
    free: Any = len(tree.nodes) - max(tree.counters[NUM_NODES], tree.counters[NUM_OUTCOMES])
    free -= totals[NUM_STARTED] - totals[NUM_SIMULATIONS]
    if free <= 0 and totals[NUM_STARTED] == totals[NUM_SIMULATIONS]:
        totals[STOP] = MAX_MEMORY
    if totals[NUM_IDLE] >= MAX_IDLE and limits.num_simulations < 0:
        totals[STOP] = EXHAUSTED
        return 0
    if limits.num_simulations >= 0:
        free = min(free, limits.num_simulations - totals[NUM_STARTED])
    return free


@jit(cache=True)
def _request_steps(
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
def _request_rollouts(
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
def _back_up(tree: TreeArrays, paths: Paths, rules: Rules, progress: Progress, half: int) -> None:
    """Back up the simulations of a half, which completes them."""
    first = progress.bounds[half]
    last = first + progress.counts[half]
    back_up(tree, paths, progress.slots[first:last], progress.leaf_values[first:last], rules)
    progress.totals[NUM_SIMULATIONS] += progress.counts[half]


@jit(cache=True)
def _begin(
    tree: TreeArrays,
    paths: Paths,
    root_state: NDArray[np.uint8],
    rules: Rules,
    limits: Limits,
    progress: Progress,
    requests: Requests,
    half: int,
) -> bool:
    """Select the paths of the simulations of a half. Returns whether there are any."""
    first, totals = progress.bounds[half], progress.totals
    num_allowed = min(_num_allowed(tree, progress, limits), progress.bounds[half + 1] - first)
    if num_allowed <= 0:
        return False
    last = first + num_allowed
    statuses = progress.statuses[first:last]
    count = select(tree, paths, progress.slots[first:last], statuses, rules)
    if count == 0:
        return False  # every action worth a simulation is in flight
    totals[NUM_STARTED] += count
    progress.counts[half] = count
    num_rows = 0
    for index in range(count):
        slot = first + index
        progress.is_new[slot] = progress.has_ended[slot] = False
        if len(requests.own_states) > 0:
            copy_bytes(root_state, 0, requests.own_states, slot * len(root_state), len(root_state))
        if statuses[index] == SAMPLE:
            progress.rows[first + num_rows] = slot
            num_rows += 1
    progress.num_rows[half] = num_rows
    totals[NUM_IDLE] = 0 if num_rows > 0 else totals[NUM_IDLE] + count
    return True


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
def _take_rollouts(tree: TreeArrays, paths: Paths, progress: Progress, requests: Requests, half: int) -> None:
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


@jit(cache=True)
def _process(
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


@jit(cache=True)
def advance(
    tree: TreeArrays,
    paths: Paths,
    tree_states: NDArray[np.uint8],
    actions: NDArray[np.uint8],
    root_state: NDArray[np.uint8],
    rules: Rules,
    limits: Limits,
    table: Table,
    powers: NDArray[np.float64],
    random: NDArray[np.uint64],
    progress: Progress,
    requests: Requests,
    last_event: int,
) -> int:
    """Run a search up to its next request, or to its end.

    Args:
        tree: The tree, written.
        paths: The paths of the simulations in flight, written.
        tree_states: The bytes of the states of nodes, written; `[0]` for an open loop.
        actions: The bytes of the actions of every node.
        root_state: `[S]`, the bytes of the root's state.
        rules: The settings of the kernels of the tree.
        limits: The limits of the search.
        table: The transposition table, written.
        powers: `[dt + 1]`, the discounts of 0, 1, ... steps.
        random: The generator of the search, written; see `planvec.kernels.random`.
        progress: The simulations in flight, written.
        requests: Their requests and answers, written.
        last_event: Number of processed answers after which the loop pauses.

    Returns:
        `DONE`, `PAUSED` or `ENDED`; or `PERFORM`: the request of the half that was queued last has to be
        answered before the next call.
    """
    totals, num_halves = progress.totals, 1 + (progress.bounds[2] > progress.bounds[1])
    while totals[NUM_EVENTS] < last_event:
        half, has_rows, is_begun = -1, False, False
        if totals[STOP] == GOES_ON and totals[NUM_FREE] > 0 and totals[NUM_QUEUED] < num_halves:
            half = progress.free[totals[NUM_FREE] - 1]
            is_begun = _begin(tree, paths, root_state, rules, limits, progress, requests, half)
        is_rolled = False
        if is_begun:
            totals[NUM_FREE] -= 1
            has_rows = progress.num_rows[half] > 0
        elif totals[NUM_QUEUED] == 0:
            return DONE
        else:
            half = progress.queue[0]
            progress.queue[0] = progress.queue[1]
            totals[NUM_QUEUED] -= 1
            for row in range(progress.bounds[half], progress.bounds[half] + progress.num_rows[half]):
                totals[NUM_ENV_STEPS] += requests.num_steps[row]
            if totals[NUM_ENV_STEPS] == 0:
                return ENDED
            is_rolled = progress.stages[half] == ROLLING
            if not is_rolled:
                has_rows = _process(
                    tree, paths, tree_states, rules, limits, table, powers, progress, requests, half
                )
        is_completed = is_rolled
        if is_rolled:
            _take_rollouts(tree, paths, progress, requests, half)
        elif has_rows:
            _request_steps(paths, tree_states, actions, limits, progress, requests, random, half)
        else:
            num_rows = _request_rollouts(
                tree, paths, tree_states, rules, limits, progress, requests, random, half
            )
            is_completed = num_rows == 0
        if is_completed:
            _back_up(tree, paths, rules, progress, half)
            progress.free[totals[NUM_FREE]] = half
            totals[NUM_FREE] += 1
        else:
            progress.queue[totals[NUM_QUEUED]] = half
            totals[NUM_QUEUED] += 1
        if is_completed or not is_begun:
            totals[NUM_EVENTS] += 1
            if 0 <= limits.max_env_steps <= totals[NUM_ENV_STEPS] and totals[STOP] == GOES_ON:
                totals[STOP] = MAX_ENV_STEPS
        if not is_completed:
            return PERFORM
    return PAUSED
