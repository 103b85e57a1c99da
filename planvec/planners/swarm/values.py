"""Compiled comparison of the returns of walkers. Letters: B walkers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.kernels import jit
from planvec.planners.swarm.arrays import FLOATS, WALKERS


@jit((WALKERS, FLOATS), cache=True)
def extrapolate_returns(walkers: NDArray[Any], values: NDArray[np.float64]) -> None:
    """Write the returns, extrapolated to the age of the oldest walker."""
    # Walkers draw how long they repeat an action, so that they differ in age. Without extrapolation, young
    # walkers would look good where steps cost and bad where steps pay. For each step that a walker is
    # younger, it is credited the mean reward per step of all walkers that have not terminated. A walker that
    # has terminated collects no more rewards, and is credited nothing.
    # `walkers`: `[B]` of `WALKER_DTYPE`. `values`: `[B]`. Written.
    total, total_steps, oldest = 0.0, 0, 0
    for index in range(len(walkers)):
        walker = walkers[index]
        values[index] = walker.total
        oldest = max(oldest, walker.num_steps)
        if not walker.terminated:
            total += walker.total
            total_steps += walker.num_steps
    if total_steps == 0:
        return
    mean_reward = total / total_steps
    for index in range(len(walkers)):
        if not walkers[index].terminated:
            values[index] += mean_reward * (oldest - walkers[index].num_steps)


@jit(cache=True, allocates=True)
def find_dead(walkers: NDArray[Any], values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which walkers `[B]` have terminated with a loss."""
    # A termination may be a crash or a goal. The flag does not tell them apart, but the returns do: a
    # terminated walker is dead unless its value is above the mean of the walkers that go on, at the same age.
    # In CartPole it loses +1 per step and falls behind; in MountainCar it saves -1 per step and gets ahead;
    # in FrozenLake a hole is no better than walking on, and the goal is. Where all have terminated, those
    # below the mean are dead. Truncation is not death, since the time limit does not depend on the actions.
    # `walkers`: `[B]` of `WALKER_DTYPE`. `values`: `[B]`, those of `extrapolate_returns`.
    dead = np.zeros(len(walkers), np.bool_)
    num_terminated = 0
    for walker in walkers:
        num_terminated += walker.terminated
    if num_terminated == 0:
        return dead
    has_running = num_terminated < len(walkers)
    total, count, lowest, highest = 0.0, 0, math.inf, -math.inf
    for index in range(len(walkers)):
        if not has_running or not walkers[index].terminated:
            total += values[index]
            count += 1
            lowest, highest = min(lowest, values[index]), max(highest, values[index])
    # The mean of equal numbers may be rounded beyond all of them.
    mean = min(max(total / count, lowest), highest)
    for index in range(len(walkers)):
        is_behind = values[index] <= mean if has_running else values[index] < mean
        dead[index] = walkers[index].terminated and is_behind
    return dead
