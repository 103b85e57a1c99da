"""Runs the loop of a search, and performs its requests with a kernel. It is compiled once for each kernel.

    advance --request--> step_rows or roll_rows --answer--> advance --request--> ...

Letters: K slots.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.kernels import jit, roll_rows, step_rows
from planvec.planners.mcts.arrays import Paths, TreeArrays
from planvec.planners.mcts.compiled.loop import advance
from planvec.planners.mcts.compiled.progress import (
    NUM_CHUNKS,
    NUM_EVENTS,
    NUM_QUEUED,
    NUM_ROWS,
    PERFORM,
    REFUSED,
    ROLLING,
    Limits,
    Progress,
    Requests,
)
from planvec.planners.mcts.compiled.table import Table
from planvec.planners.mcts.rules import Rules

__all__ = ["run"]


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
    size, first, count = limits.state_bytes, progress.bounds[half], progress.num_rows[half]
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
    zero: Any = np.int64(0)  # 0 would be another type, for which the loops would be compiled again
    if progress.stages[half] == ROLLING:
        low, span, lowest, highest = action_range
        status = roll_rows(
            kernel,
            constants,
            zero,
            count,
            states,
            requests.actions[:0],
            limits.rollout_steps,
            limits.discount,
            seeds,
            limits.time_limit,
            requests.action_seeds[half],
            zero,
            low,
            span,
            lowest,
            highest,
            new_states,
            results,
        )
    else:
        actions = requests.actions[first * limits.action_bytes : last * limits.action_bytes]
        dt = None if repeats is None else repeats[first:last]
        status = step_rows(
            kernel,
            constants,
            zero,
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
    code: Any,
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
    repeats: Any,
    action_range: Any,
    max_events: int,
) -> int:
    """Run a search until it is over, or until it has processed some answers.

    Args:
        kernel: A `KernelType`.
        constants: The constants of the kernel.
        code: A `CodeType` of this function.
        tree: As in `advance`, and so are the next arguments.
        paths: As in `advance`.
        tree_states: As in `advance`.
        actions: As in `advance`.
        root_state: As in `advance`.
        rules: As in `advance`.
        limits: As in `advance`.
        table: As in `advance`.
        powers: As in `advance`.
        random: As in `advance`.
        progress: As in `advance`.
        requests: As in `advance`. After `REFUSED`, the answer to the request of the half that was queued last
            has to be written before the next call.
        repeats: `[K]` int64, dt; None: 1, for which another loop is compiled.
        action_range: The ranges of random actions, see `roll_rows`.
        max_events: Number of answers after which the loop pauses.

    Returns:
        `DONE`, `PAUSED`, `REFUSED` or `ENDED`.
    """
    totals = progress.totals
    last_event = totals[NUM_EVENTS] + max_events
    while True:
        status = advance(
            tree,
            paths,
            tree_states,
            actions,
            root_state,
            rules,
            limits,
            table,
            powers,
            random,
            progress,
            requests,
            last_event,
        )
        if status != PERFORM:
            return status
        half = progress.queue[totals[NUM_QUEUED] - 1]
        if not _perform(kernel, constants, limits, repeats, action_range, progress, requests, half):
            return REFUSED
