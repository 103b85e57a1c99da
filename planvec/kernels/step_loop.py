"""The compiled loop over the steps of a batch. It is compiled once for each kernel.

It does what `planvec.stepping.row_loop` does. All records are bytes; `planvec.kernels.access` knows where the
fields are. Several threads may run it over different rows at the same time.

Letters: B rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from planvec.kernels.access import (
    begin_state,
    copy_record,
    elapsed_of,
    ends_of,
    generator_in,
    generator_out,
    has_ended,
    load_action,
    load_state,
    record_size,
    refuses,
    reseed,
    store_ends,
    store_observation,
    store_state,
    take_step,
)
from planvec.kernels.decorator import jit
from planvec.kernels.memory import store
from planvec.kernels.random import NUM_WORDS

# result of a loop that met a state which the environment itself has to handle; 0 if there was none
REFUSED = 1

MAX_REPEATS = 10**6  # largest number of steps of a row in one loop, which Ctrl-C cannot interrupt

Bytes = NDArray[np.uint8]
# rewards, `terminated`, `truncated`, numbers of steps: `[B]` each
Results = tuple[NDArray[np.float64], NDArray[np.uint8], NDArray[np.uint8], NDArray[np.int64]]


@jit(cache=True, allocates=True)
def keep_ended(
    kernel: Any,
    constants: Any,
    is_observed: bool,
    row: int,
    states: Bytes,
    source: int,
    new_states: Bytes,
    target: int,
    results: Results,
) -> int:
    """Write the results of a row whose episode has ended: its state does not change, and its reward is 0."""
    if refuses(kernel, load_state(kernel, states, source), is_observed, constants):
        return REFUSED
    rewards, terminated, truncated, num_steps = results
    copy_record(kernel, states, source, new_states, target)
    was_terminated, was_truncated = ends_of(kernel, states, source)
    elapsed = elapsed_of(kernel, states, source)
    store_ends(kernel, new_states, target, elapsed, was_terminated, was_truncated)
    rewards[row], num_steps[row] = 0.0, 0
    terminated[row], truncated[row] = was_terminated, was_truncated
    return 0


@njit(cache=True, nogil=True, error_model="numpy", inline="never")
def _absorb(
    kernel: Any,
    constants: Any,
    row: int,
    states: Bytes,
    source: int,
    new_states: Bytes,
    target: int,
    observations: Any,
    results: Results,
) -> int:
    """Write the results and the observation of a row whose episode has ended."""
    status = keep_ended(kernel, constants, True, row, states, source, new_states, target, results)
    if observations is not None and status == 0:
        state = load_state(kernel, states, source)
        store_observation(kernel, observations, row, state, constants)
    return status


@jit(cache=True, allocates=True)
def step_rows(
    kernel: Any,
    constants: Any,
    first: int,
    last: int,
    states: Bytes,  # the bytes of B states
    actions: Bytes,  # the bytes of the actions
    dt: Any,  # `[B]` int64, how often an action is repeated. None: once, for which another loop is compiled.
    seeds: NDArray[np.uint64],  # `[B]`; empty: none
    time_limit: int,
    new_states: Bytes,  # Written: the bytes of B states, or of one
    has_new_states: bool,
    observations: Any,
    results: Results,  # Written: rewards, flags and numbers of steps, each `[B]`
    extras: NDArray[np.float64],  # `[B]` or `[1]`, written
    has_extras: bool,
) -> int:
    """Step rows."""
    # `observations`: Written: the bytes of each array of the observations. None: not wanted, for which
    # another loop is compiled.
    # Returns 0 or `REFUSED`.
    rewards, terminated, truncated, num_steps = results
    random, pool = np.zeros(NUM_WORDS, np.uint64), np.zeros(4, np.uint32)
    has_seeds = len(seeds) > 0
    for row in range(first, last):
        source = row * record_size(kernel)
        target = source if has_new_states else 0
        if has_ended(kernel, states, source):
            status = _absorb(
                kernel, constants, row, states, source, new_states, target, observations, results
            )
            if status != 0:
                return status
            continue
        state = begin_state(kernel, states, source, new_states, target)
        generator_in(kernel, random, states, source)
        if has_seeds:
            reseed(kernel, random, seeds[row], pool)
        action, elapsed = load_action(kernel, actions, row), elapsed_of(kernel, states, source)
        left = time_limit - elapsed
        if refuses(kernel, state, False, constants):
            return REFUSED
        state, reward, is_terminated, extra = take_step(kernel, state, action, constants, random)
        count = 1
        if dt is not None:
            wanted = min(dt[row], left)
            if wanted > MAX_REPEATS:
                return REFUSED
            while count < wanted and not is_terminated:
                if refuses(kernel, state, False, constants):
                    return REFUSED
                state, more, is_terminated, extra = take_step(kernel, state, action, constants, random)
                reward += more
                count += 1
        is_truncated = count >= left
        store_state(kernel, new_states, target, state)
        generator_out(kernel, random, new_states, target)
        store_ends(kernel, new_states, target, elapsed + count, is_terminated, is_truncated)
        if observations is not None:
            store_observation(kernel, observations, row, state, constants)
        # `store`, because indexing would test whether each index is negative.
        store(rewards, row * 8, np.float64, reward)
        store(num_steps, row * 8, np.int64, count)
        store(terminated, row, np.uint8, is_terminated)
        store(truncated, row, np.uint8, is_truncated)
        if has_extras:
            extras[row] = extra
    return 0
