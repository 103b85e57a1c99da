"""The loop of a compiled search: what the driver does in Python, for one root.

It begins simulations, and processes the answers in the order of the requests, as `planvec.planners.driver`
does. It knows no kernel and is compiled once; `performing` answers the requests.

Letters: K slots, S bytes of a state.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.kernels import jit
from planvec.planners.mcts.arrays import Paths, TreeArrays
from planvec.planners.mcts.rules import Rules
from planvec.planners.mcts.simulations.half import begin, take_steps
from planvec.planners.mcts.simulations.leaves import take_values
from planvec.planners.mcts.simulations.progress import (
    COMPLETED,
    DONE,
    ENDED,
    GOES_ON,
    LEAVES,
    MAX_ENV_STEPS,
    NONE,
    NUM_ENV_STEPS,
    NUM_EVENTS,
    NUM_FREE,
    NUM_QUEUED,
    PAUSED,
    PERFORM,
    STOP,
    Limits,
    Progress,
    Requests,
    Steps,
)
from planvec.planners.mcts.simulations.table import Table

__all__ = ["advance", "answer_of"]


@jit(cache=True)
def answer_of(answers: Steps, limits: Limits, progress: Progress, half: int) -> Steps:
    """Return the part of the answers `[K]` that belongs to the request of a half, as views."""
    first = progress.bounds[half]
    last = first + progress.num_rows[half]
    return Steps(
        answers.new_states[first * limits.state_bytes : last * limits.state_bytes],
        answers.rewards[first:last],
        answers.terminated[first:last],
        answers.truncated[first:last],
        answers.num_steps[first:last],
    )


@jit(cache=True)
def _take(
    code: Any,
    tree: TreeArrays,
    paths: Paths,
    nodes: Any,
    progress: Progress,
    requests: Requests,
    answer: Steps,
    half: int,
) -> int:
    """Process the answer to the request of a half. Returns `COMPLETED` or `PERFORM`."""
    tree_states, actions, rules, limits, table = nodes
    if progress.stages[half] == LEAVES:
        return take_values(code, tree, paths, rules, progress, answer.rewards, half)
    return take_steps(
        code, tree, paths, tree_states, actions, rules, limits, table, progress, requests, answer, half
    )


@jit(cache=True)
def advance(
    code: Any,
    tree: TreeArrays,
    paths: Paths,
    tree_states: NDArray[np.uint8],
    actions: NDArray[np.uint8],
    root_state: NDArray[np.uint8],
    rules: Rules,
    limits: Limits,
    table: Table,
    progress: Progress,
    requests: Requests,
    answers: Steps,
    last_event: int,
) -> int:
    """Run a search up to its next request, or to its end.

    The arguments are those of `half.begin` and `half.take_steps`, and:

    Args:
        code: A `CodeType`.
        tree: The tree.
        paths: The paths.
        tree_states: The states of nodes.
        actions: The actions.
        root_state: The root's state.
        rules: The settings.
        limits: The limits.
        table: The table.
        progress: The simulations in flight.
        requests: Their requests.
        answers: `[K]`, the answers to the requests that are queued.
        last_event: Number of processed answers after which the loop pauses.

    Returns:
        `DONE`, `PAUSED` or `ENDED`; or -1: the request of the half that was queued last has to be answered
        before the next call.
    """
    totals, num_halves = progress.totals, 1 + (progress.bounds[2] > progress.bounds[1])
    while totals[NUM_EVENTS] < last_event:
        half, status = 0, NONE
        if totals[STOP] == GOES_ON and totals[NUM_FREE] > 0 and totals[NUM_QUEUED] < num_halves:
            half = progress.free[totals[NUM_FREE] - 1]
            status = begin(
                code, tree, paths, tree_states, actions, root_state, rules, limits, progress, requests, half
            )
        is_begun = status != NONE
        if is_begun:
            totals[NUM_FREE] -= 1
        elif totals[NUM_QUEUED] == 0:
            return DONE
        else:
            half = progress.queue[0]
            progress.queue[0] = progress.queue[1]
            totals[NUM_QUEUED] -= 1
            answer = answer_of(answers, limits, progress, half)
            totals[NUM_ENV_STEPS] += answer.num_steps.sum()
            if totals[NUM_ENV_STEPS] == 0:
                return ENDED
            nodes = (tree_states, actions, rules, limits, table)
            status = _take(code, tree, paths, nodes, progress, requests, answer, half)
        if status == COMPLETED:
            progress.free[totals[NUM_FREE]] = half
            totals[NUM_FREE] += 1
        else:
            progress.queue[totals[NUM_QUEUED]] = half
            totals[NUM_QUEUED] += 1
        if status == COMPLETED or not is_begun:
            totals[NUM_EVENTS] += 1
            if 0 <= limits.max_env_steps <= totals[NUM_ENV_STEPS] and totals[STOP] == GOES_ON:
                totals[STOP] = MAX_ENV_STEPS
        if status == PERFORM:
            return -1
    return PAUSED
