"""The loop of a compiled search: what the driver does in Python, for one root.

It begins simulations, and processes the answers in the order of the requests, as `planvec.planners.driver`
does. It knows no kernel and is compiled once; `performing` answers the requests.

Letters: K slots, S bytes of a state.
"""

from __future__ import annotations

from typing import Any

from planvec.kernels import Pointer, jit, value_at
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
    Steps,
)
from planvec.planners.mcts.simulations.shared import Shared


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
