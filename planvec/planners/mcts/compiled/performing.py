"""Runs the loop of a search, and performs its requests with a kernel. It is compiled once for each kernel.

    advance --request--> step_rows or roll_rows --answer--> advance --request--> ...

Letters: K slots.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.kernels import jit, next_uint64, roll_rows, step_rows
from planvec.planners.mcts.arrays import Paths, TreeArrays
from planvec.planners.mcts.compiled.loop import advance, answer_of
from planvec.planners.mcts.rules import Rules
from planvec.planners.mcts.simulations.progress import (
    LEAVES,
    NUM_CHUNKS,
    NUM_EVENTS,
    NUM_QUEUED,
    NUM_ROWS,
    REFUSED,
    Limits,
    Progress,
    Requests,
    Steps,
)
from planvec.planners.mcts.simulations.table import Table

__all__ = ["run"]


@jit(cache=True)
def _draw_seeds(
    progress: Progress,
    random: NDArray[np.uint64],
    seeds: NDArray[np.uint64],
    action_seeds: NDArray[np.uint64],
    half: int,
) -> None:
    """Draw the seeds of a request, as `planvec.planners.mcts.rollouts.LeafRollouts` draws them."""
    if progress.stages[half] == LEAVES:
        action_seeds[half] = next_uint64(random) >> np.uint64(1)  # as `integers(2**63)`
    if len(seeds) > 0:
        first = progress.bounds[half]
        for row in range(first, first + progress.num_rows[half]):
            seeds[row] = next_uint64(random)


@jit(cache=True)
def _count(progress: Progress, answer: Steps) -> bool:
    """Count the rows of an answer. Returns whether all rewards are numbers; else the driver raises."""
    for reward in answer.rewards:
        if np.isnan(reward):
            return False
    progress.totals[NUM_ROWS] += len(answer.rewards)
    progress.totals[NUM_CHUNKS] += 1
    return True


@jit()
def _perform(
    kernel: Any,
    constants: Any,
    limits: Limits,
    time_limit: int,
    repeats: Any,
    action_range: Any,
    progress: Progress,
    requests: Requests,
    answers: Steps,
    seeds: NDArray[np.uint64],
    action_seeds: NDArray[np.uint64],
    half: int,
) -> bool:
    """Perform the request of a half with the kernel. Returns whether that was possible."""
    first, count, size = progress.bounds[half], progress.num_rows[half], limits.state_bytes
    last = first + count
    states = requests.states[first * size : last * size]
    answer = answer_of(answers, limits, progress, half)
    results = (answer.rewards, answer.terminated, answer.truncated, answer.num_steps)
    zero: Any = np.int64(0)  # 0 would be another type, for which the loops would be compiled again
    if progress.stages[half] == LEAVES:
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
            seeds[first:last],
            time_limit,
            action_seeds[half],
            zero,
            low,
            span,
            lowest,
            highest,
            answer.new_states,
            results,
        )
    else:
        status = step_rows(
            kernel,
            constants,
            zero,
            count,
            states,
            requests.actions[first * limits.action_bytes : last * limits.action_bytes],
            None if repeats is None else repeats[first:last],
            seeds[first:last],
            time_limit,
            answer.new_states,
            True,
            None,
            results,
            progress.discounts,
            False,
        )
    return status == 0 and _count(progress, answer)


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
    progress: Progress,
    requests: Requests,
    answers: Steps,
    seeds: NDArray[np.uint64],
    action_seeds: NDArray[np.uint64],
    random: NDArray[np.uint64],
    time_limit: int,
    repeats: Any,
    action_range: Any,
    max_events: int,
) -> int:
    """Run a search until it is over, or until it has processed some answers.

    Args:
        kernel: A `KernelType`.
        constants: The constants of the kernel.
        code: A `CodeType` of this function.
        tree: As in `loop.advance`, and so are the next arguments.
        paths: As in `loop.advance`.
        tree_states: As in `loop.advance`.
        actions: As in `loop.advance`.
        root_state: As in `loop.advance`.
        rules: As in `loop.advance`.
        limits: As in `loop.advance`.
        table: As in `loop.advance`.
        progress: As in `loop.advance`.
        requests: As in `loop.advance`.
        answers: Written. After `REFUSED`, the answer to the request of the half that was queued last has to
            be written before the next call.
        seeds: `[K]`, written: the seeds of the rows of requests; `[0]` where a step has one outcome.
        action_seeds: `[2]`, written: those of the rollouts of each half.
        random: The generator of the search, written; see `planvec.kernels.random`.
        time_limit: Steps after which an episode is truncated.
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
            code,
            tree,
            paths,
            tree_states,
            actions,
            root_state,
            rules,
            limits,
            table,
            progress,
            requests,
            answers,
            last_event,
        )
        if status >= 0:
            return status
        half = progress.queue[totals[NUM_QUEUED] - 1]
        _draw_seeds(progress, random, seeds, action_seeds, half)
        is_performed = _perform(
            kernel,
            constants,
            limits,
            time_limit,
            repeats,
            action_range,
            progress,
            requests,
            answers,
            seeds,
            action_seeds,
            half,
        )
        if not is_performed:
            return REFUSED
