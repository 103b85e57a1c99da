"""One half of the simulations in flight, as compiled code: one call before each answer, and one after it.

    begin --request--> take_steps --request--> ... --> take_values
               ^            |
               +------------+  (a sampled outcome that was in the tree already: select on from its node)

Both the search in Python (`planvec.planners.mcts.search`) and the loop of a kernel (`loop`) run simulations
with these functions, so that they find the same plan. Letters: K slots, S bytes of a state.
"""

from __future__ import annotations

from typing import Any

from planvec.kernels import Pointer, copy_bytes, jit, value_at
from planvec.planners.mcts.arrays import NUM_NODES, NUM_OUTCOMES, TreeArrays
from planvec.planners.mcts.rules import MAX_IDLE, OPEN_LOOP, SAMPLE
from planvec.planners.mcts.selection import start, undo
from planvec.planners.mcts.simulations.leaves import finish
from planvec.planners.mcts.simulations.progress import (
    EXHAUSTED,
    MAX_MEMORY,
    NONE,
    NUM_IDLE,
    NUM_SIMULATIONS,
    NUM_SIMULATIONS_REACHED,
    NUM_STARTED,
    PERFORM,
    STOP,
    Limits,
    Progress,
    Steps,
)
from planvec.planners.mcts.simulations.shared import Shared
from planvec.planners.mcts.simulations.steps import (
    expand_half,
    find_outcomes,
    go_down,
    orient,
    request_steps,
    select_on,
)


@jit(inline=True)
def _num_allowed(tree: TreeArrays, progress: Progress, limits: Limits) -> Any:
    """Return how many simulations may begin; set the reason to stop where it is 0 from now on."""
    totals = progress.totals
    if 0 <= limits.num_simulations <= totals[NUM_STARTED]:
        totals[STOP] = NUM_SIMULATIONS_REACHED
        return 0
    if tree.nodes[0].proven:
        totals[STOP] = EXHAUSTED
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


@jit()
def _select_half(memory: Pointer[Shared], half: int) -> bool:
    """Select the paths of the simulations of a half. Returns whether there are any."""
    shared: Shared = value_at(memory)
    rules, limits = shared.rules, shared.limits
    progress, requests = shared.progress, shared.requests
    first, totals = progress.bounds[half], progress.totals
    num_allowed = min(_num_allowed(shared.tree, progress, limits), progress.bounds[half + 1] - first)
    if num_allowed <= 0:
        return False
    last = first + num_allowed
    statuses = progress.statuses[first:last]
    slots = progress.slots[first:last]
    start(shared.paths, slots)
    count = go_down(memory, slots, statuses)
    if count < len(slots):
        undo(shared.tree, shared.paths, slots[count])  # it has collided
    if count == 0:
        return False  # every action worth a simulation is in flight
    totals[NUM_STARTED] += count
    progress.counts[half] = count
    num_rows = 0
    for index in range(count):
        slot = first + index
        progress.is_new[slot] = progress.has_ended[slot] = False
        if rules.chance == OPEN_LOOP:
            size = limits.state_bytes
            copy_bytes(shared.root_state, 0, requests.own_states, slot * size, size)
        if statuses[index] == SAMPLE:
            progress.rows[first + num_rows] = slot
            num_rows += 1
    progress.num_rows[half] = num_rows
    totals[NUM_IDLE] = 0 if num_rows > 0 else totals[NUM_IDLE] + count
    return True


@jit(cache=True)
def begin(code: Any, memory: Pointer[Shared], half: int) -> int:
    """Begin the simulations of a half."""
    # Returns `NONE`, `COMPLETED` or `PERFORM`.
    if not _select_half(memory, half):
        return NONE
    shared: Shared = value_at(memory)
    if shared.progress.num_rows[half] > 0:
        request_steps(memory, half)
        return PERFORM
    return finish(memory, half)


@jit(cache=True)
def go_on(code: Any, memory: Pointer[Shared], half: int, num_rows: int) -> int:
    """Continue the simulations of a half after their steps were added to the tree."""
    # Returns `COMPLETED` or `PERFORM`.
    if select_on(memory, half, num_rows):
        request_steps(memory, half)
        return PERFORM
    return finish(memory, half)


@jit(cache=True)
def take_steps(code: Any, memory: Pointer[Shared], steps: Steps, half: int) -> int:
    """Add the steps of a half to the tree, and continue its simulations."""
    # Returns `COMPLETED` or `PERFORM`.
    orient(code, memory, steps, half)
    find_outcomes(code, memory, steps, half)
    return go_on(code, memory, half, expand_half(code, memory, steps, half))
