"""The rows of a batch in compiled loops: what all threads share, and the parts that both loops have.

Letters: B rows, K numbers for the infos of a row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planvec.kernels.mujoco.compiling import inner
from planvec.kernels.mujoco.native import call, copy_bytes
from planvec.kernels.mujoco.records import elapsed_of, ends_of, load_physics, store_ends
from planvec.kernels.mujoco.simulation import QUIET
from planvec.kernels.mujoco.task_type import observe

REFUSED = 2  # result of a loop: the environment itself has to step the batch

Bytes = NDArray[np.uint8]


class Shared(NamedTuple):
    """Holds what all threads of a batch read."""

    frame_skip: int  # simulation steps of one step
    reads_forces: bool  # whether the forces on bodies are computed
    time_limit: int  # steps after which an episode is truncated
    num_rows: int  # B
    counter: NDArray[np.int64]  # `[1]`, the next row; written
    states: Bytes  # the bytes of B records


class Results(NamedTuple):
    """Holds the arrays to write."""

    new_states: Bytes  # the bytes of B records; empty: none
    observations: NDArray[np.float64]  # `[B, n]`; `[0, n]` for rollouts
    rewards: NDArray[np.float64]  # `[B]`
    terminated: NDArray[np.uint8]  # `[B]`
    truncated: NDArray[np.uint8]  # `[B]`
    num_steps: NDArray[np.int64]  # `[B]`
    extras: NDArray[np.float64]  # `[B, K]`; `[0, K]`: none are wanted


@inner
def simulate(physics: Any, shared: Any, action: Any) -> bool:
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


@inner
def refuse(shared: Any) -> int:
    """Leave no rows to other threads."""
    shared.counter[0] = shared.num_rows
    return REFUSED


@inner
def write_row(
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


@inner
def keep_row(records: Any, shared: Any, results: Any, row: int) -> None:
    """Write the results of a row whose episode has ended: its state does not change, and its reward is 0."""
    at = row * records.size
    if len(results.new_states):
        source, target = shared.states.ctypes.data + at, results.new_states.ctypes.data + at
        copy_bytes(target, source, records.size)
    terminated, truncated = ends_of(records, shared.states, at)
    write_row(records, shared, results, row, 0.0, terminated, truncated, 0)


@inner
def save_observation(records: Any, results: Any, row: int, observation: NDArray[np.float64]) -> None:
    """Write an observation into the new record of a row, if records hold it."""
    if records.observation >= 0 and len(results.new_states):
        target = results.new_states.ctypes.data + row * records.size + records.observation
        copy_bytes(target, observation.ctypes.data, 8 * len(observation))


@inner
def observe_ended(
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
