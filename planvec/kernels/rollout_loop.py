"""The compiled loop over the rollouts of a batch. It is compiled once for each kernel.

It does what `planvec.stepping.row_loop` does, and draws the random actions of `planvec.rows.random_actions`.

Letters: B rows, H steps of a rollout, A numbers of an action.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.kernels.access import (
    action_size,
    begin_state,
    elapsed_of,
    generator_in,
    generator_out,
    has_ended,
    load_action,
    random_action,
    record_size,
    refuses,
    reseed,
    store_ends,
    store_state,
    take_step,
)
from planvec.kernels.decorator import jit
from planvec.kernels.random import NUM_WORDS
from planvec.kernels.step_loop import MAX_REPEATS, REFUSED, Bytes, Results, keep_ended
from planvec.kernels.uniforms import draw_uniforms


@jit(cache=True, allocates=True)
def roll_rows(
    kernel: Any,
    constants: Any,
    first: int,
    last: int,
    states: Bytes,  # the bytes of B states
    actions: Bytes,  # the bytes of the actions, those of a row one after another; empty: random ones
    horizon: int,
    discount: float,
    seeds: NDArray[np.uint64],  # `[B]`; empty: none
    time_limit: int,
    action_seed: np.uint64,
    first_row: int,
    low: NDArray[np.float64],  # `[A]`, see `random_action`
    size: NDArray[np.float64],  # `[A]`
    lowest: NDArray[np.float64],  # `[A]`
    highest: NDArray[np.float64],  # `[A]`
    new_states: Bytes,  # Written: the bytes of B states
    results: Results,  # Written: returns, flags and numbers of steps, each `[B]`
) -> int:
    """Roll out rows. Arguments that `step_rows` has, too, are described there."""
    # Returns 0 or `REFUSED`.
    returns, terminated, truncated, num_steps = results
    random, pool = np.zeros(NUM_WORDS, np.uint64), np.zeros(4, np.uint32)
    uniforms, block = np.zeros(len(low)), np.zeros(4)
    has_seeds, has_actions = len(seeds) > 0, len(actions) > 0
    for row in range(first, last):
        at = row * record_size(kernel)
        if has_ended(kernel, states, at):
            status = keep_ended(kernel, constants, False, row, states, at, new_states, at, results)
            if status != 0:
                return status
            continue
        state = begin_state(kernel, states, at, new_states, at)
        generator_in(kernel, random, states, at)
        if has_seeds:
            reseed(kernel, random, seeds[row], pool)
        elapsed = elapsed_of(kernel, states, at)
        left = time_limit - elapsed
        wanted = min(horizon, left)
        if wanted > MAX_REPEATS:
            return REFUSED
        total, weight, count, held, is_terminated = 0.0, 1.0, 0, -1, False
        while True:
            if refuses(kernel, state, False, constants):
                return REFUSED
            if has_actions:
                action = load_action(kernel, actions, row * horizon + count)
            else:
                held = draw_uniforms(
                    action_size(kernel), uniforms, block, action_seed, first_row + row, count, held
                )
                action = random_action(kernel, uniforms, low, size, lowest, highest)
            state, reward, is_terminated, _ = take_step(kernel, state, action, constants, random)
            total += weight * reward
            weight *= discount
            count += 1
            if is_terminated or count >= wanted:
                break
        is_truncated = count >= left
        store_state(kernel, new_states, at, state)
        generator_out(kernel, random, new_states, at)
        store_ends(kernel, new_states, at, elapsed + count, is_terminated, is_truncated)
        returns[row], num_steps[row] = total, count
        terminated[row], truncated[row] = is_terminated, is_truncated
    return 0
