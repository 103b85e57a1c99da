"""The compiled loops over steps and rollouts of a batch. They are compiled once for each task.

They do what `planvec.stepping.row_loop` does. Threads run a loop at the same time, each with a simulation of
its own, and take the next row from a common counter. A loop returns after a number of steps, so that Ctrl-C
is seen, and is called again.

Letters: B rows, H steps of a rollout, A numbers of an action.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.kernels.decorator import jit
from planvec.kernels.mujoco.batch import (
    keep_row,
    observe_ended,
    refuse,
    save_observation,
    simulate,
    write_row,
)
from planvec.kernels.mujoco.draws import draw_action
from planvec.kernels.mujoco.native import next_number
from planvec.kernels.mujoco.records import elapsed_of, ends_of, load_physics, save_physics
from planvec.kernels.mujoco.task_type import before, observe, outcome

DONE, MORE = 0, 1  # Results of a loop: no rows are left; rows may be left. Another one is `REFUSED`.
MAX_STEPS = 10_000  # largest number of steps of a row, which Ctrl-C cannot interrupt
_QUOTA = 200  # steps after which a loop returns at the end of a row


@jit(cache=True, allocates=True)
def step_rows(
    task: Any,
    physics: Any,
    records: Any,
    constants: Any,
    shared: Any,
    results: Any,
    actions: NDArray[np.float32],  # `[B, A]`
    dt: NDArray[np.int64],  # `[B]`, how often an action is repeated
) -> int:
    """Step rows."""
    # Returns `DONE`, `MORE` or `REFUSED`.
    scratch, extras = np.empty(records.num_physics), np.zeros(results.extras.shape[1])
    num_steps = 0
    while num_steps < _QUOTA:
        row = next_number(shared.counter)
        if row >= shared.num_rows:
            return DONE
        at, terminated = row * records.size, False
        if True in ends_of(records, shared.states, at):
            keep_row(records, shared, results, row)
            observe_ended(task, physics, records, constants, shared, results, row, scratch)
            continue
        left = shared.time_limit - elapsed_of(records, shared.states, at)
        wanted, count, total = min(dt[row], left), 0, 0.0
        if wanted > MAX_STEPS:
            return refuse(shared)
        load_physics(physics, records, shared.states, at, scratch)
        while count == 0 or (count < wanted and not terminated):
            start = before(task, physics.arrays, constants)
            if not simulate(physics, shared, actions[row]):
                return refuse(shared)
            reward, terminated = outcome(task, physics.arrays, constants, start, actions[row], extras)
            total = reward if count == 0 else total + reward
            count += 1
        observation = results.observations[row]
        observe(task, physics.arrays, constants, observation)
        if len(results.new_states):
            save_physics(physics, records, results.new_states, at, scratch)
        save_observation(records, results, row, observation)
        if len(results.extras):
            results.extras[row] = extras
        write_row(records, shared, results, row, total, terminated, count >= left, count)
        num_steps += count
    return MORE


@jit(cache=True, allocates=True)
def roll_rows(
    task: Any,
    physics: Any,
    records: Any,
    constants: Any,
    shared: Any,
    results: Any,
    actions: NDArray[np.float32],  # `[B * H, A]`; `[0, A]`: random ones
    horizon: int,
    discount: float,
    draws: Any,
) -> int:
    """Roll out rows. Arguments that `step_rows` has, too, are described there."""
    # Returns `DONE`, `MORE` or `REFUSED`.
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
            keep_row(records, shared, results, row)
            continue
        left = shared.time_limit - elapsed_of(records, shared.states, at)
        wanted, count, total, weight = min(horizon, left), 0, 0.0, 1.0
        if wanted > MAX_STEPS:
            return refuse(shared)
        load_physics(physics, records, shared.states, at, scratch)
        while count == 0 or (count < wanted and not terminated):
            action = drawn
            if len(actions):
                action = actions[row * horizon + count]
            else:
                held = draw_action(draws, drawn, uniforms, block, row, count, held)
            start = before(task, physics.arrays, constants)
            if not simulate(physics, shared, action):
                return refuse(shared)
            reward, terminated = outcome(task, physics.arrays, constants, start, action, extras)
            total += weight * reward
            weight *= discount
            count += 1
        save_physics(physics, records, results.new_states, at, scratch)
        if records.observation >= 0:
            observe(task, physics.arrays, constants, observation)
            save_observation(records, results, row, observation)
        write_row(records, shared, results, row, total, terminated, count >= left, count)
        num_steps += count
    return MORE
