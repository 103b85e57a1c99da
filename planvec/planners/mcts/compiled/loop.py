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

from planvec.kernels import copy_bytes, jit
from planvec.planners.mcts.arrays import NUM_NODES, NUM_OUTCOMES, Paths, TreeArrays
from planvec.planners.mcts.backup import back_up
from planvec.planners.mcts.compiled.leaves import request_rollouts, take_rollouts
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
    STOP,
    Limits,
    Progress,
    Requests,
)
from planvec.planners.mcts.compiled.steps import request_steps, take_steps
from planvec.planners.mcts.compiled.table import Table
from planvec.planners.mcts.rules import MAX_IDLE, SAMPLE, Rules
from planvec.planners.mcts.selection import select

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
                has_rows = take_steps(
                    tree, paths, tree_states, rules, limits, table, powers, progress, requests, half
                )
        is_completed = is_rolled
        if is_rolled:
            take_rollouts(tree, paths, progress, requests, half)
        elif has_rows:
            request_steps(paths, tree_states, actions, limits, progress, requests, random, half)
        else:
            num_rows = request_rollouts(
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
