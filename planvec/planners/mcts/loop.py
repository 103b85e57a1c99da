"""The loop of a compiled search: what the driver does in Python, for one root.

It begins simulations, and processes the answers in the order of the requests, as `planvec.planners.driver`
does. It knows no kernel and is compiled once; `performing` answers the requests.

Letters: K slots, S bytes of a state.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planvec.kernels import Pointer, jit, next_uint64, roll_rows, step_rows, value_at
from planvec.planners.mcts.simulations import (
    COMPLETED,
    DONE,
    ENDED,
    FIRST_REQUEST,
    GOES_ON,
    LEAVES,
    MAX_ENV_STEPS,
    NONE,
    NUM_CHUNKS,
    NUM_ENV_STEPS,
    NUM_EVENTS,
    NUM_FREE,
    NUM_QUEUED,
    NUM_ROWS,
    PAUSED,
    PERFORM,
    REFUSED,
    STOP,
    Progress,
    Shared,
    Steps,
    begin,
    take_steps,
    take_values,
)


@jit(inline=True)
def answer_of(shared: Shared, answers: Steps, half: int) -> Steps:
    """Return the part of the answers `[K]` that belongs to the request of a half, as views."""
    size, first = shared.limits.state_bytes, shared.progress.bounds[half]
    last = first + shared.progress.num_rows[half]
    return Steps(
        answers.new_states[first * size : last * size],
        answers.rewards[first:last],
        answers.terminated[first:last],
        answers.truncated[first:last],
        answers.num_steps[first:last],
    )


@jit(cache=True)
def advance(code: Any, memory: Pointer[Shared], answers: Steps, last_event: int) -> int:
    """Run a search up to its next request, or to its end."""
    # `answers`: `[K]`, the answers to the requests that are queued.
    # Returns `DONE`, `PAUSED` or `ENDED`; or -1: the request of the half that was queued last has to be
    # answered before the next call.
    shared: Shared = value_at(memory)
    progress, totals = shared.progress, shared.progress.totals
    num_halves = 1 + (progress.bounds[2] > progress.bounds[1])
    while totals[NUM_EVENTS] < last_event:
        half, status = 0, NONE
        if totals[STOP] == GOES_ON and totals[NUM_FREE] > 0 and totals[NUM_QUEUED] < num_halves:
            half = progress.free[totals[NUM_FREE] - 1]
            status = begin(code, memory, half)
        is_begun = status != NONE
        if is_begun:
            totals[NUM_FREE] -= 1
        elif totals[NUM_QUEUED] == 0:
            return DONE
        else:
            half = progress.queue[0]
            progress.queue[0] = progress.queue[1]
            totals[NUM_QUEUED] -= 1
            answer = answer_of(shared, answers, half)
            totals[NUM_ENV_STEPS] += answer.num_steps.sum()
            if totals[NUM_ENV_STEPS] == 0:
                return ENDED
            if progress.stages[half] == LEAVES:
                status = take_values(code, memory, answer.rewards, half)
            else:
                status = take_steps(code, memory, answer, half)
        if status == COMPLETED:
            progress.free[totals[NUM_FREE]] = half
            totals[NUM_FREE] += 1
        else:
            progress.queue[totals[NUM_QUEUED]] = half
            totals[NUM_QUEUED] += 1
        if status == COMPLETED or not is_begun:
            totals[NUM_EVENTS] += 1
            if 0 <= shared.limits.max_env_steps <= totals[NUM_ENV_STEPS] and totals[STOP] == GOES_ON:
                totals[STOP] = MAX_ENV_STEPS
        if status == PERFORM:
            return -1
    return PAUSED


# -- Runs the loop of a search, and performs its requests with a kernel. It is compiled once for each kernel.
#
#     advance --request--> step_rows or roll_rows --answer--> advance --request--> ...
#
# Letters: K slots.


class Draws(NamedTuple):
    """What the random numbers of requests are drawn from, and where they are written."""

    random: NDArray[np.uint64]  # the generator of the search; see `planvec.kernels.random`
    # `[K]` uint64, the seeds of the rows of requests; `[0]` where a step has one outcome
    seeds: NDArray[np.uint64]
    action_seeds: NDArray[np.uint64]  # `[2]` uint64, those of the rollouts of each half


@jit(inline=True)
def _draw_seeds(progress: Progress, draws: Draws, half: int) -> None:
    """Draw the seeds of a request, as `planvec.planners.mcts.search.LeafRollouts` draws them."""
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
