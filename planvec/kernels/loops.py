"""Compiled loops over the rows of a batch. They are compiled once for each kernel.

They do what `planvec.stepping.row_loop` does. All records are bytes; `planvec.kernels.access` knows where
the fields are. Several threads may run a loop over different rows at the same time.

Letters: B rows, H steps of a rollout, A numbers of an action.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from planvec.kernels.access import (
    begin_state,
    elapsed_of,
    ends_of,
    generator_in,
    generator_out,
    has_ended,
    load_action,
    load_state,
    random_action,
    record_size,
    refuses,
    reseed,
    store_ends,
    store_observation,
    store_state,
    take_step,
)
from planvec.kernels.memory import store
from planvec.kernels.random import NUM_WORDS, philox_block

__all__ = ["REFUSED", "roll_rows", "step_rows"]

REFUSED = 1
"""Result of a loop that met a state which the environment itself has to handle; 0 if there was none."""

Bytes = NDArray[np.uint8]


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
    rewards: NDArray[np.float64],
    terminated: NDArray[np.uint8],
    truncated: NDArray[np.uint8],
    num_steps: NDArray[np.int64],
) -> int:
    """Write the results of a row whose episode has ended: its state does not change, and its reward is 0."""
    state = load_state(kernel, states, source)
    if refuses(kernel, state, True, constants):
        return REFUSED
    for index in range(record_size(kernel)):
        new_states[target + index] = states[source + index]
    store_observation(kernel, observations, row, state, constants)
    rewards[row], num_steps[row] = 0.0, 0
    terminated[row], truncated[row] = ends_of(kernel, states, source)
    return 0


@njit(cache=True, nogil=True, error_model="numpy")
def step_rows(
    kernel: Any,
    constants: Any,
    first: int,
    last: int,
    states: Bytes,
    actions: Bytes,
    dt: Any,
    seeds: NDArray[np.uint64],
    time_limit: int,
    new_states: Bytes,
    has_new_states: bool,
    observations: Any,
    rewards: NDArray[np.float64],
    terminated: NDArray[np.uint8],
    truncated: NDArray[np.uint8],
    num_steps: NDArray[np.int64],
    extras: NDArray[np.float64],
    has_extras: bool,
) -> int:
    """Step rows.

    Args:
        kernel: A `KernelType`.
        constants: The constants of the kernel.
        first: The first row.
        last: The row after the last one.
        states: The bytes of B states.
        actions: The bytes of the actions.
        dt: `[B]` int64, how often an action is repeated. None: once, for which another loop is compiled.
        seeds: `[B]`; empty: none.
        time_limit: Steps after which an episode is truncated.
        new_states: Written: the bytes of B states, or of one.
        has_new_states: Whether there is room for B states.
        observations: Written: the bytes of each array of the observations.
        rewards: `[B]`, written.
        terminated: `[B]`, written.
        truncated: `[B]`, written.
        num_steps: `[B]`, written.
        extras: `[B]` or `[1]`, written.
        has_extras: Whether there is room for B numbers.

    Returns:
        0 or `REFUSED`.
    """
    random, pool = np.zeros(NUM_WORDS, np.uint64), np.zeros(4, np.uint32)
    has_seeds = len(seeds) > 0
    for row in range(first, last):
        source = row * record_size(kernel)
        target = source if has_new_states else 0
        if has_ended(kernel, states, source):
            status = _absorb(
                kernel,
                constants,
                row,
                states,
                source,
                new_states,
                target,
                observations,
                rewards,
                terminated,
                truncated,
                num_steps,
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
        store_observation(kernel, observations, row, state, constants)
        # `store`, because indexing would test whether each index is negative.
        store(rewards, row * 8, np.float64, reward)
        store(num_steps, row * 8, np.int64, count)
        store(terminated, row, np.uint8, is_terminated)
        store(truncated, row, np.uint8, is_truncated)
        if has_extras:
            extras[row] = extra
    return 0


BLOCK = 64
"""Number of random actions of a row that come from one section of Philox; see `ActionStreams`."""


@njit(cache=True, nogil=True, error_model="numpy")
def _draw(
    uniforms: NDArray[np.float64],
    block: NDArray[np.float64],
    seed: np.uint64,
    stream_row: int,
    step: int,
    held: int,
) -> int:
    """Draw the random numbers of an action.

    Args:
        uniforms: `[A]`, written.
        block: `[4]`, four numbers of the sequence, read and written.
        seed: Seed of all streams.
        stream_row: Index of the row in the whole batch.
        step: The step.
        held: The number of the four numbers in `block`, within the row and the section; -1: none.

    Returns:
        The new value of `held`.
    """
    size = len(uniforms)
    within = step % BLOCK * size
    if within == 0:
        held = -1  # another section
    for index in range(size):
        four, place = (within + index) // 4, (within + index) % 4
        if four != held:
            counter = np.uint64(stream_row) * np.uint64(BLOCK * size // 4) + np.uint64(four)
            philox_block(seed, np.uint64(step // BLOCK), counter, block)
            held = four
        uniforms[index] = block[place]
    return held


@njit(cache=True, nogil=True, error_model="numpy")
def roll_rows(
    kernel: Any,
    constants: Any,
    first: int,
    last: int,
    states: Bytes,
    actions: Bytes,
    horizon: int,
    discount: float,
    seeds: NDArray[np.uint64],
    time_limit: int,
    action_seed: np.uint64,
    first_row: int,
    low: NDArray[np.float64],
    size: NDArray[np.float64],
    lowest: NDArray[np.float64],
    highest: NDArray[np.float64],
    new_states: Bytes,
    rewards: NDArray[np.float64],
    terminated: NDArray[np.uint8],
    truncated: NDArray[np.uint8],
    num_steps: NDArray[np.int64],
) -> int:
    """Roll out rows. Arguments that `step_rows` has, too, are described there.

    Args:
        kernel: A `KernelType`.
        constants: The constants of the kernel.
        first: The first row.
        last: The row after the last one.
        states: The bytes of B states.
        actions: The bytes of the actions, those of a row one after another; empty: random ones.
        horizon: H.
        discount: Factor per step.
        seeds: `[B]`; empty: none.
        time_limit: Steps after which an episode is truncated.
        action_seed: Seed of the random actions.
        first_row: Index of the first row in the whole batch.
        low: `[A]`, see `random_action`.
        size: `[A]`.
        lowest: `[A]`.
        highest: `[A]`.
        new_states: Written: the bytes of B states.
        rewards: `[B]`, written: the returns.
        terminated: `[B]`, written.
        truncated: `[B]`, written.
        num_steps: `[B]`, written.

    Returns:
        0 or `REFUSED`.
    """
    random, pool = np.zeros(NUM_WORDS, np.uint64), np.zeros(4, np.uint32)
    uniforms, block = np.zeros(len(low)), np.zeros(4)
    has_seeds, has_actions = len(seeds) > 0, len(actions) > 0
    for row in range(first, last):
        at = row * record_size(kernel)
        if has_ended(kernel, states, at):
            for index in range(at, at + record_size(kernel)):
                new_states[index] = states[index]
            rewards[row], num_steps[row] = 0.0, 0
            terminated[row], truncated[row] = ends_of(kernel, states, at)
            continue
        state = begin_state(kernel, states, at, new_states, at)
        generator_in(kernel, random, states, at)
        if has_seeds:
            reseed(kernel, random, seeds[row], pool)
        elapsed = elapsed_of(kernel, states, at)
        left = time_limit - elapsed
        wanted = min(horizon, left)
        total, weight, count, held, is_terminated = 0.0, 1.0, 0, -1, False
        while True:
            if refuses(kernel, state, False, constants):
                return REFUSED
            if has_actions:
                action = load_action(kernel, actions, row * horizon + count)
            else:
                held = _draw(uniforms, block, action_seed, first_row + row, count, held)
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
        rewards[row], num_steps[row] = total, count
        terminated[row], truncated[row] = is_terminated, is_truncated
    return 0
