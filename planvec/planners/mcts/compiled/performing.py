"""Runs the loop of a search, and performs its requests with a kernel. It is compiled once for each kernel.

    advance --request--> step_rows or roll_rows --answer--> advance --request--> ...

Letters: K slots.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planvec.kernels import Pointer, jit, next_uint64, roll_rows, step_rows, value_at
from planvec.planners.mcts.compiled.loop import advance, answer_of
from planvec.planners.mcts.simulations.progress import (
    FIRST_REQUEST,
    LEAVES,
    NUM_CHUNKS,
    NUM_EVENTS,
    NUM_QUEUED,
    NUM_ROWS,
    REFUSED,
    Progress,
    Steps,
)
from planvec.planners.mcts.simulations.shared import Shared


class Draws(NamedTuple):
    """What the random numbers of requests are drawn from, and where they are written."""

    random: NDArray[np.uint64]  # the generator of the search; see `planvec.kernels.random`
    # `[K]` uint64, the seeds of the rows of requests; `[0]` where a step has one outcome
    seeds: NDArray[np.uint64]
    action_seeds: NDArray[np.uint64]  # `[2]` uint64, those of the rollouts of each half


@jit(inline=True)
def _draw_seeds(progress: Progress, draws: Draws, half: int) -> None:
    """Draw the seeds of a request, as `planvec.planners.mcts.rollouts.LeafRollouts` draws them."""
    if progress.stages[half] == LEAVES:
        draws.action_seeds[half] = next_uint64(draws.random) >> np.uint64(1)  # as `integers(2**63)`
    if len(draws.seeds) > 0:
        first = progress.bounds[half]
        for row in range(first, first + progress.num_rows[half]):
            draws.seeds[row] = next_uint64(draws.random)


@jit(inline=True)
def _count(progress: Progress, answer: Steps) -> bool:
    """Count the rows of an answer. Returns whether all rewards are finite; else `check_numbers` raises."""
    for reward in answer.rewards:
        if not np.isfinite(reward):
            return False
    progress.totals[NUM_ROWS] += len(answer.rewards)
    progress.totals[NUM_CHUNKS] += 1
    return True


@jit(inline=True)
def _perform(
    kernel: Any,
    constants: Any,
    shared: Shared,
    answers: Steps,
    draws: Draws,
    time_limit: int,
    repeats: Any,
    action_range: Any,
    half: int,
) -> bool:
    """Perform the request of a half with the kernel. Returns whether that was possible."""
    progress, requests, limits = shared.progress, shared.requests, shared.limits
    first, count, size = progress.bounds[half], progress.num_rows[half], limits.state_bytes
    last = first + count
    states, seeds = requests.states[first * size : last * size], draws.seeds[first:last]
    answer = answer_of(shared, answers, half)
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
            seeds,
            time_limit,
            draws.action_seeds[half],
            zero,
            low,
            span,
            lowest,
            highest,
            answer.new_states,
            results,
        )
    else:
        actions = requests.actions[first * limits.action_bytes : last * limits.action_bytes]
        status = step_rows(
            kernel,
            constants,
            zero,
            count,
            states,
            actions,
            None if repeats is None else repeats[first:last],
            seeds,
            time_limit,
            answer.new_states,
            True,
            None,
            results,
            answer.rewards,  # not written: there are no extras
            False,
        )
    return status == 0 and _count(progress, answer)


@jit(cache=True)
def run(
    kernel: Any,
    constants: Any,
    code: Any,
    memory: Pointer[Shared],
    answers: Steps,
    draws: Draws,
    time_limit: int,
    repeats: Any,  # `[K]` int64, dt; None: 1, for which another loop is compiled
    action_range: Any,
    max_events: int,
) -> int:
    """Run a search until it is over, or until it has processed some answers."""
    # `answers`: `[K]`, written. After `REFUSED`, the answer to the request of the half that was queued last
    # has to be written before the next call.
    # Returns `DONE`, `PAUSED`, `REFUSED` or `ENDED`.
    shared: Shared = value_at(memory)
    totals = shared.progress.totals
    last_event = totals[NUM_EVENTS] + max_events
    while True:
        status = advance(code, memory, answers, last_event)
        if status >= 0:
            return status
        half = shared.progress.queue[totals[NUM_QUEUED] - 1]
        _draw_seeds(shared.progress, draws, half)
        if not _perform(kernel, constants, shared, answers, draws, time_limit, repeats, action_range, half):
            return REFUSED


@jit(cache=True)
def next_request(code: Any, memory: Pointer[Shared], answers: Steps, draws: Draws, max_events: int) -> int:
    """Run a search up to its next request, which is performed outside. Knows no kernel."""
    # Returns `DONE`, `PAUSED`, `ENDED`, or `FIRST_REQUEST` + a half: the answer to its request has to be
    # written before the next call.
    shared: Shared = value_at(memory)
    totals = shared.progress.totals
    status = advance(code, memory, answers, totals[NUM_EVENTS] + max_events)
    if status >= 0:
        return status
    half: int = shared.progress.queue[totals[NUM_QUEUED] - 1]
    _draw_seeds(shared.progress, draws, half)
    return FIRST_REQUEST + half
