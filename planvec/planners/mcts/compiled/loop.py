"""The loop of a compiled search: what `TreeSearch` and the driver do in Python, for one root.

    select --> step --> expand --> roll out --> back up
                 ^         |
                 +---------+  (a sampled outcome that was in the tree already: select on from its node)

It begins simulations, performs their requests with a kernel, and processes the answers in the order of
sending, as `planvec.planners.driver` does, and draws the same random numbers. So it finds the same plan.

Letters: B rows, K slots, S bytes of a state.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.kernels import (
    action_bytes,
    copy_record,
    jit,
    next_uint64,
    record_size,
    roll_rows,
    step_rows,
)
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
    NUM_CHUNKS,
    NUM_ENV_STEPS,
    NUM_EVENTS,
    NUM_FREE,
    NUM_IDLE,
    NUM_QUEUED,
    NUM_ROWS,
    NUM_SIMULATIONS,
    NUM_SIMULATIONS_REACHED,
    NUM_STARTED,
    PAUSED,
    REFUSED,
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

__all__ = ["run"]


@jit()
def _num_allowed(tree: TreeArrays, progress: Progress, limits: Limits) -> Any:
    """Return how many simulations may begin; set the reason to stop where it is 0 from now on."""
    totals = progress.totals
    if 0 <= limits.num_simulations <= totals[NUM_STARTED]:
        totals[STOP] = NUM_SIMULATIONS_REACHED
        return 0
    free: Any = len(tree.visits) - max(tree.counters[NUM_NODES], tree.counters[NUM_OUTCOMES])
    free -= totals[NUM_STARTED] - totals[NUM_SIMULATIONS]
    if free <= 0 and totals[NUM_STARTED] == totals[NUM_SIMULATIONS]:
        totals[STOP] = MAX_MEMORY
    if totals[NUM_IDLE] >= MAX_IDLE and limits.num_simulations < 0:
        totals[STOP] = EXHAUSTED
        return 0
    if limits.num_simulations >= 0:
        free = min(free, limits.num_simulations - totals[NUM_STARTED])
    return free


@jit()
def _request_steps(
    kernel: Any,
    paths: Paths,
    tree_states: NDArray[np.uint8],
    actions: NDArray[np.uint8],
    progress: Progress,
    requests: Requests,
    random: NDArray[np.uint64],
    half: int,
) -> None:
    """Write the request to take the last action of each path, and draw its seeds."""
    size, action_size = record_size(kernel), action_bytes(kernel)
    first = progress.bounds[half]
    is_open_loop = len(requests.own_states) > 0
    for row in range(first, first + progress.num_rows[half]):
        slot = progress.rows[row]
        depth = paths.depths[slot]
        if is_open_loop:
            copy_record(kernel, requests.own_states, slot * size, requests.states, row * size)
        else:
            node = np.int64(paths.nodes[slot, depth])
            copy_record(kernel, tree_states, node * size, requests.states, row * size)
        source = paths.actions[slot, depth] * action_size
        for byte in range(action_size):
            requests.actions[row * action_size + byte] = actions[source + byte]
        if len(requests.seeds) > 0:
            requests.seeds[row] = next_uint64(random)
    progress.stages[half] = STEPPING


@jit()
def _request_rollouts(
    kernel: Any,
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
    size, first = record_size(kernel), progress.bounds[half]
    is_open_loop = len(requests.own_states) > 0
    count = 0
    for slot in range(first, first + progress.counts[half]):
        depth = paths.depths[slot]
        node = np.int64(paths.nodes[slot, depth])
        if not is_open_loop:
            progress.has_ended[slot] = tree.ended[node]
        value = tree.values[node] if rules.backs_up_values else tree.raw_values[node]
        if progress.has_ended[slot]:
            value = 0.0
        elif limits.rollout_steps > 0 and (
            progress.is_new[slot] or tree.pending[node] or depth >= rules.max_depth
        ):
            row = first + count
            progress.rows[row] = slot
            count += 1
            if is_open_loop:
                copy_record(kernel, requests.own_states, slot * size, requests.states, row * size)
            else:
                copy_record(kernel, tree_states, node * size, requests.states, row * size)
        progress.leaf_values[slot] = value
    progress.num_rows[half] = count
    if count > 0:
        progress.stages[half] = ROLLING
        requests.action_seeds[half] = next_uint64(random) >> np.uint64(1)  # as `integers(2**63)`
        if len(requests.seeds) > 0:
            for row in range(first, first + count):
                requests.seeds[row] = next_uint64(random)
    return count


@jit()
def _back_up(tree: TreeArrays, paths: Paths, rules: Rules, progress: Progress, half: int) -> None:
    """Back up the simulations of a half, which completes them."""
    first = progress.bounds[half]
    last = first + progress.counts[half]
    back_up(tree, paths, progress.slots[first:last], progress.leaf_values[first:last], rules)
    progress.totals[NUM_SIMULATIONS] += progress.counts[half]


@jit()
def _begin(
    kernel: Any,
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
            copy_record(kernel, root_state, 0, requests.own_states, slot * record_size(kernel))
        if statuses[index] == SAMPLE:
            progress.rows[first + num_rows] = slot
            num_rows += 1
    progress.num_rows[half] = num_rows
    totals[NUM_IDLE] = 0 if num_rows > 0 else totals[NUM_IDLE] + count
    return True


@jit()
def _expand(
    kernel: Any,
    tree: TreeArrays,
    paths: Paths,
    tree_states: NDArray[np.uint8],
    rules: Rules,
    table: Table,
    powers: NDArray[np.float64],
    progress: Progress,
    requests: Requests,
    half: int,
) -> int:
    """Add the transitions of an answer to the tree. Returns how many selections go on from their node.

    Their slots are then the first rows of the half.
    """
    size, first = record_size(kernel), progress.bounds[half]
    last = first + progress.num_rows[half]
    num_nodes, num_outcomes = tree.counters[NUM_NODES], tree.counters[NUM_OUTCOMES]
    is_open_loop = rules.chance == OPEN_LOOP
    for row in range(first, last):
        progress.discounts[row] = powers[requests.num_steps[row]]
        progress.ends[row] = requests.terminated[row] != 0 or requests.truncated[row] != 0
    if rules.chance == SINGLE and len(table.nodes) == 1:
        for row in range(first, last):
            progress.nodes[row] = progress.outcomes[row] = num_nodes + row - first
            copy_record(kernel, requests.new_states, row * size, tree_states, progress.nodes[row] * size)
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
            copy_record(kernel, requests.new_states, row * size, requests.own_states, slot * size)
            progress.has_ended[slot] = progress.ends[row]
        # A new outcome that leads to a known node ends the simulation with the value of that node.
        is_known = is_open_loop or progress.outcomes[row] < num_outcomes
        if not is_new and not progress.ends[row] and is_known:
            progress.rows[first + count] = slot
            count += 1
    return count


@jit()
def _take_rollouts(tree: TreeArrays, paths: Paths, progress: Progress, requests: Requests, half: int) -> None:
    """Take the returns of rollouts as the values of last nodes."""
    first = progress.bounds[half]
    for row in range(first, first + progress.num_rows[half]):
        slot, value = progress.rows[row], requests.rewards[row]
        progress.leaf_values[slot] = value
        if progress.is_new[slot]:
            node = paths.nodes[slot, paths.depths[slot]]
            tree.raw_values[node] = value
            # Other simulations may have passed meanwhile; the value is then a mean without this one.
            tree.values[node] += value / (tree.visits[node] + 1)
            tree.pending[node] = False


@jit()
def _perform(
    kernel: Any,
    constants: Any,
    limits: Limits,
    repeats: Any,
    action_range: Any,
    progress: Progress,
    requests: Requests,
    half: int,
) -> bool:
    """Perform the request of a half with the kernel. Returns whether that was possible."""
    size, first, count = record_size(kernel), progress.bounds[half], progress.num_rows[half]
    last = first + count
    states = requests.states[first * size : last * size]
    new_states = requests.new_states[first * size : last * size]
    seeds = requests.seeds[first:last]  # [0] if there are none
    results = (
        requests.rewards[first:last],
        requests.terminated[first:last],
        requests.truncated[first:last],
        requests.num_steps[first:last],
    )
    if progress.stages[half] == ROLLING:
        low, span, lowest, highest = action_range
        status = roll_rows(
            kernel,
            constants,
            0,
            count,
            states,
            requests.actions[:0],
            limits.rollout_steps,
            limits.discount,
            seeds,
            limits.time_limit,
            requests.action_seeds[half],
            0,
            low,
            span,
            lowest,
            highest,
            new_states,
            results,
        )
    else:
        actions = requests.actions[first * action_bytes(kernel) : last * action_bytes(kernel)]
        dt = None if repeats is None else repeats[first:last]
        status = step_rows(
            kernel,
            constants,
            0,
            count,
            states,
            actions,
            dt,
            seeds,
            limits.time_limit,
            new_states,
            True,
            None,
            results,
            progress.leaf_values,
            False,
        )
    if status != 0:
        return False
    for row in range(first, last):
        if np.isnan(requests.rewards[row]):
            return False  # the driver raises an error
    progress.totals[NUM_ROWS] += count
    progress.totals[NUM_CHUNKS] += 1
    return True


@jit(cache=True)
def run(
    kernel: Any,
    constants: Any,
    tree: TreeArrays,
    paths: Paths,
    tree_states: NDArray[np.uint8],
    actions: NDArray[np.uint8],
    root_state: NDArray[np.uint8],
    rules: Rules,
    limits: Limits,
    table: Table,
    powers: NDArray[np.float64],
    repeats: Any,
    action_range: Any,
    random: NDArray[np.uint64],
    progress: Progress,
    requests: Requests,
    max_events: int,
) -> int:
    """Run a search until it is over, or until it has processed some answers.

    Args:
        kernel: A `KernelType`.
        constants: The constants of the kernel.
        tree: The tree, written.
        paths: The paths of the simulations in flight, written.
        tree_states: The bytes of the states of nodes, written; `[0]` for an open loop.
        actions: The bytes of the actions of every node.
        root_state: `[S]`, the bytes of the root's state.
        rules: The settings of the kernels of the tree.
        limits: The limits of the search.
        table: The transposition table, written.
        powers: `[dt + 1]`, the discounts of 0, 1, ... steps.
        repeats: `[K]` int64, dt; None: 1, for which another loop is compiled.
        action_range: The ranges of random actions, see `roll_rows`.
        random: The generator of the search, written; see `planvec.kernels.random`.
        progress: The simulations in flight, written.
        requests: Their requests and answers, written. After `REFUSED`, the answer to the request of the half
            that was queued last has to be written before the next call.
        max_events: Number of answers after which the loop pauses.

    Returns:
        `DONE`, `PAUSED`, `REFUSED` or `ENDED`.
    """
    totals, num_halves = progress.totals, 1 + (progress.bounds[2] > progress.bounds[1])
    last_event = totals[NUM_EVENTS] + max_events
    while totals[NUM_EVENTS] < last_event:
        half, has_rows, is_begun = -1, False, False
        can_begin = totals[STOP] == GOES_ON and totals[NUM_FREE] > 0
        if can_begin and totals[NUM_QUEUED] < num_halves:
            half = progress.free[totals[NUM_FREE] - 1]
            is_begun = _begin(kernel, tree, paths, root_state, rules, limits, progress, requests, half)
            has_rows = is_begun and progress.num_rows[half] > 0
        if is_begun:
            totals[NUM_FREE] -= 1
        elif totals[NUM_QUEUED] == 0:
            return DONE
        else:
            half = progress.queue[0]
            progress.queue[0] = progress.queue[1]
            totals[NUM_QUEUED] -= 1
            first = progress.bounds[half]
            for row in range(first, first + progress.num_rows[half]):
                totals[NUM_ENV_STEPS] += requests.num_steps[row]
            if totals[NUM_ENV_STEPS] == 0:
                return ENDED
            if progress.stages[half] == STEPPING:
                count = _expand(
                    kernel, tree, paths, tree_states, rules, table, powers, progress, requests, half
                )
                if count > 0:
                    statuses = progress.statuses[first : first + count]
                    resume(tree, paths, progress.rows[first : first + count], statuses, rules)
                    kept = 0
                    for index in range(count):
                        if statuses[index] == SAMPLE:
                            progress.rows[first + kept] = progress.rows[first + index]
                            kept += 1
                    count = kept
                progress.num_rows[half] = count
                has_rows = count > 0
        is_completed = False
        if has_rows:
            _request_steps(kernel, paths, tree_states, actions, progress, requests, random, half)
        elif not is_begun and progress.stages[half] == ROLLING:
            _take_rollouts(tree, paths, progress, requests, half)
            is_completed = True
        else:
            is_completed = (
                _request_rollouts(
                    kernel, tree, paths, tree_states, rules, limits, progress, requests, random, half
                )
                == 0
            )
        is_performed = True
        if is_completed:
            _back_up(tree, paths, rules, progress, half)
            progress.free[totals[NUM_FREE]] = half
            totals[NUM_FREE] += 1
        else:
            is_performed = _perform(
                kernel, constants, limits, repeats, action_range, progress, requests, half
            )
            progress.queue[totals[NUM_QUEUED]] = half
            totals[NUM_QUEUED] += 1
        if is_completed or not is_begun:
            totals[NUM_EVENTS] += 1
            if 0 <= limits.max_env_steps <= totals[NUM_ENV_STEPS] and totals[STOP] == GOES_ON:
                totals[STOP] = MAX_ENV_STEPS
        if not is_performed:
            return REFUSED
    return PAUSED
