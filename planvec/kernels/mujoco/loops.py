"""The compiled loops over steps and rollouts of a batch. They are compiled once for each task.

They do what `planvec.stepping.row_loop` does. Threads run a loop at the same time, each with a simulation of
its own, and take the next row from a common counter. A loop returns after a number of steps, so that Ctrl-C
is seen, and is called again.

Letters: B rows, H steps of a rollout, A numbers of an action, K numbers for the infos of a row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from planvec.kernels.mujoco.native import call, copy_bytes, next_number
from planvec.kernels.mujoco.records import (
    elapsed_of,
    ends_of,
    load_physics,
    save_physics,
    store_ends,
)
from planvec.kernels.mujoco.simulation import QUIET
from planvec.kernels.mujoco.task_type import before, observe, outcome
from planvec.kernels.random import philox_block

__all__ = ["DONE", "MAX_STEPS", "MORE", "REFUSED", "Draws", "Results", "Shared", "roll_rows", "step_rows"]

DONE, MORE, REFUSED = 0, 1, 2
"""Results of a loop: no rows are left; rows may be left; the environment itself has to step the batch."""
MAX_STEPS = 10_000
"""Largest number of steps of a row, which Ctrl-C cannot interrupt."""
_QUOTA = 200
"""Steps after which a loop returns at the end of a row."""
BLOCK = 64
"""Number of random actions of a row that come from one section of Philox; see `ActionStreams`."""

Bytes = NDArray[np.uint8]


class Shared(NamedTuple):
    """Holds what all threads of a batch read.

    Attributes:
        frame_skip: Simulation steps of one step.
        reads_forces: Whether the forces on bodies are computed.
        time_limit: Steps after which an episode is truncated.
        num_rows: B.
        counter: `[1]`, the next row; written.
        states: The bytes of B records.
    """

    frame_skip: int
    reads_forces: bool
    time_limit: int
    num_rows: int
    counter: NDArray[np.int64]
    states: Bytes


class Results(NamedTuple):
    """Holds the arrays to write.

    Attributes:
        new_states: The bytes of B records; empty: none.
        observations: `[B, n]`; `[0, n]` for rollouts.
        rewards: `[B]`.
        terminated: `[B]`.
        truncated: `[B]`.
        num_steps: `[B]`.
        extras: `[B, K]`; `[0, K]`: none are wanted.
    """

    new_states: Bytes
    observations: NDArray[np.float64]
    rewards: NDArray[np.float64]
    terminated: NDArray[np.uint8]
    truncated: NDArray[np.uint8]
    num_steps: NDArray[np.int64]
    extras: NDArray[np.float64]


class Draws(NamedTuple):
    """Describes random actions; see `ActionRange`.

    Attributes:
        seed: Seed of all streams.
        first_row: Index of the first row in the whole batch.
        low: `[A]`.
        size: `[A]`.
        lowest: `[A]`.
        highest: `[A]`.
    """

    seed: np.uint64
    first_row: int
    low: NDArray[np.float64]
    size: NDArray[np.float64]
    lowest: NDArray[np.float64]
    highest: NDArray[np.float64]


@njit(error_model="numpy")
def _simulate(physics: Any, shared: Any, action: Any) -> bool:
    """Simulate one step. Returns whether the simulation is stable."""
    control = physics.arrays.ctrl
    for index in range(len(control)):
        control[index] = action[index]
    for _ in range(shared.frame_skip):
        call(physics.step, physics.model, physics.data)
    if shared.reads_forces:
        call(physics.compute_forces, physics.model, physics.data)
    is_stable = True
    for number in physics.warnings:
        is_stable = is_stable and number == QUIET
    return is_stable


@njit(error_model="numpy")
def _refuse(shared: Any) -> int:
    """Leave no rows to other threads."""
    shared.counter[0] = shared.num_rows
    return REFUSED


@njit(error_model="numpy")
def _write(
    records: Any,
    shared: Any,
    results: Any,
    row: int,
    reward: float,
    terminated: bool,
    truncated: bool,
    count: int,
) -> None:
    """Write the numbers of a row, and its flags into its new record."""
    results.rewards[row], results.num_steps[row] = reward, count
    results.terminated[row], results.truncated[row] = terminated, truncated
    if len(results.new_states):
        at = row * records.size
        elapsed = elapsed_of(records, shared.states, at) + count
        store_ends(records, results.new_states, at, elapsed, terminated, truncated)


@njit(error_model="numpy")
def _keep(records: Any, shared: Any, results: Any, row: int) -> None:
    """Write the results of a row whose episode has ended: its state does not change, and its reward is 0."""
    at = row * records.size
    if len(results.new_states):
        source, target = shared.states.ctypes.data + at, results.new_states.ctypes.data + at
        copy_bytes(target, source, records.size)
    terminated, truncated = ends_of(records, shared.states, at)
    _write(records, shared, results, row, 0.0, terminated, truncated, 0)


@njit(error_model="numpy")
def _save_observation(records: Any, results: Any, row: int, observation: NDArray[np.float64]) -> None:
    """Write an observation into the new record of a row, if records hold it."""
    if records.observation >= 0 and len(results.new_states):
        target = results.new_states.ctypes.data + row * records.size + records.observation
        copy_bytes(target, observation.ctypes.data, 8 * len(observation))


@njit(error_model="numpy")
def _observe_ended(
    task: Any, physics: Any, records: Any, constants: Any, shared: Any, results: Any, row: int, scratch: Any
) -> None:
    """Write the observation of a row whose episode has ended."""
    at, observation = row * records.size, results.observations[row]
    if records.observation >= 0:
        source = shared.states.ctypes.data + at + records.observation
        copy_bytes(observation.ctypes.data, source, 8 * len(observation))
    else:
        load_physics(physics, records, shared.states, at, scratch)
        observe(task, physics.arrays, constants, observation)


@njit(cache=True, nogil=True, error_model="numpy")
def step_rows(
    task: Any,
    physics: Any,
    records: Any,
    constants: Any,
    shared: Any,
    results: Any,
    actions: NDArray[np.float32],
    dt: NDArray[np.int64],
) -> int:
    """Step rows.

    Args:
        task: A `TaskType`.
        physics: The simulation of this thread.
        records: The offsets in records.
        constants: The constants of the task.
        shared: The batch.
        results: The arrays to write.
        actions: `[B, A]`.
        dt: `[B]`, how often an action is repeated.

    Returns:
        `DONE`, `MORE` or `REFUSED`.
    """
    scratch, extras = np.empty(records.num_physics), np.zeros(results.extras.shape[1])
    num_steps = 0
    while num_steps < _QUOTA:
        row = next_number(shared.counter)
        if row >= shared.num_rows:
            return DONE
        at, terminated = row * records.size, False
        if True in ends_of(records, shared.states, at):
            _keep(records, shared, results, row)
            _observe_ended(task, physics, records, constants, shared, results, row, scratch)
            continue
        left = shared.time_limit - elapsed_of(records, shared.states, at)
        wanted, count, total = min(dt[row], left), 0, 0.0
        if wanted > MAX_STEPS:
            return _refuse(shared)
        load_physics(physics, records, shared.states, at, scratch)
        while count == 0 or (count < wanted and not terminated):
            start = before(task, physics.arrays, constants)
            if not _simulate(physics, shared, actions[row]):
                return _refuse(shared)
            reward, terminated = outcome(task, physics.arrays, constants, start, actions[row], extras)
            total = reward if count == 0 else total + reward
            count += 1
        observation = results.observations[row]
        observe(task, physics.arrays, constants, observation)
        if len(results.new_states):
            save_physics(physics, records, results.new_states, at, scratch)
        _save_observation(records, results, row, observation)
        if len(results.extras):
            results.extras[row] = extras
        _write(records, shared, results, row, total, terminated, count >= left, count)
        num_steps += count
    return MORE


@njit(error_model="numpy")
def _draw(draws: Any, action: Any, uniforms: Any, block: Any, row: int, step: int, held: int) -> int:
    """Draw a random action, as `planvec.kernels.rollout_loop` does.

    Args:
        draws: The random actions.
        action: `[A]`, written.
        uniforms: `[A]`, scratch.
        block: `[4]`, four numbers of the sequence, read and written.
        row: The row.
        step: The step of its rollout.
        held: The number of the four numbers in `block`, within the row and the section; -1: none.

    Returns:
        The new value of `held`.
    """
    size = len(action)
    within = step % BLOCK * size
    if within == 0:
        held = -1  # another section
    for index in range(size):
        four, place = (within + index) // 4, (within + index) % 4
        if four != held:
            counter = np.uint64(draws.first_row + row) * np.uint64(BLOCK * size // 4) + np.uint64(four)
            philox_block(draws.seed, np.uint64(step // BLOCK), counter, block)
            held = four
        uniforms[index] = block[place]
    for index in range(size):
        drawn = np.float32(draws.low[index] + draws.size[index] * uniforms[index])
        drawn = max(drawn, np.float32(draws.lowest[index]))
        action[index] = min(drawn, np.float32(draws.highest[index]))
    return held


@njit(cache=True, nogil=True, error_model="numpy")
def roll_rows(
    task: Any,
    physics: Any,
    records: Any,
    constants: Any,
    shared: Any,
    results: Any,
    actions: NDArray[np.float32],
    horizon: int,
    discount: float,
    draws: Any,
) -> int:
    """Roll out rows. Arguments that `step_rows` has, too, are described there.

    Args:
        task: A `TaskType`.
        physics: The simulation of this thread.
        records: The offsets in records.
        constants: The constants of the task.
        shared: The batch.
        results: The arrays to write.
        actions: `[B * H, A]`; `[0, A]`: random ones.
        horizon: H.
        discount: Factor per step.
        draws: The random actions.

    Returns:
        `DONE`, `MORE` or `REFUSED`.
    """
    scratch, extras = np.empty(records.num_physics), np.zeros(results.extras.shape[1])
    drawn, uniforms, block = np.zeros(actions.shape[1], np.float32), np.zeros(actions.shape[1]), np.zeros(4)
    observation = np.zeros(results.observations.shape[1])
    num_steps = 0
    while num_steps < _QUOTA:
        row = next_number(shared.counter)
        if row >= shared.num_rows:
            return DONE
        at, terminated, held = row * records.size, False, -1
        if True in ends_of(records, shared.states, at):
            _keep(records, shared, results, row)
            continue
        left = shared.time_limit - elapsed_of(records, shared.states, at)
        wanted, count, total, weight = min(horizon, left), 0, 0.0, 1.0
        if wanted > MAX_STEPS:
            return _refuse(shared)
        load_physics(physics, records, shared.states, at, scratch)
        while count == 0 or (count < wanted and not terminated):
            action = drawn
            if len(actions):
                action = actions[row * horizon + count]
            else:
                held = _draw(draws, drawn, uniforms, block, row, count, held)
            start = before(task, physics.arrays, constants)
            if not _simulate(physics, shared, action):
                return _refuse(shared)
            reward, terminated = outcome(task, physics.arrays, constants, start, action, extras)
            total += weight * reward
            weight *= discount
            count += 1
        save_physics(physics, records, results.new_states, at, scratch)
        if records.observation >= 0:
            observe(task, physics.arrays, constants, observation)
            _save_observation(records, results, row, observation)
        _write(records, shared, results, row, total, terminated, count >= left, count)
        num_steps += count
    return MORE
