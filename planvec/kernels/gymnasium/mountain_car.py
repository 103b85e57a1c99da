"""The steps of Gymnasium's MountainCar and its continuous version, written for compilation.

Every operation is the one of `gymnasium.envs.classic_control`, in the same order and precision, since another
order would round differently.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from planvec.kernels.base import HAS_WEAK_SCALARS, Kernel
from planvec.kernels.gymnasium.physics import is_moderate, numbers, spread_physics


def _bounds(env: Any) -> tuple[float, ...]:
    """Return the constants that both versions have."""
    return numbers(env, "min_position", "max_position", "max_speed", "goal_position", "goal_velocity")


def _constants(env: Any) -> tuple[float, ...]:
    return *_bounds(env), *numbers(env, "force", "gravity")


def _step(state: Any, action: Any, constants: Any, random: Any) -> Any:
    position, velocity = state
    min_position, max_position, max_speed, goal_position, goal_velocity, force, gravity = constants
    velocity += (action - 1) * force + math.cos(3 * position) * (-gravity)
    velocity = min(max(velocity, -max_speed), max_speed)
    position += velocity
    position = min(max(position, min_position), max_position)
    if position == min_position and velocity < 0:
        velocity = 0.0
    terminated = position >= goal_position and velocity >= goal_velocity
    return (position, velocity), -1.0, terminated, 0.0


def _observe(state: Any, constants: Any) -> Any:
    return state


def _refuses(state: Any, ended: bool, constants: Any) -> bool:
    return not (is_moderate(state[0]) and is_moderate(state[1]))


MOUNTAIN_CAR = Kernel(
    fields=("physics",),
    step=_step,
    observe=_observe,
    constants=_constants,
    refuses=_refuses,
    spread=spread_physics(1.3, 0.08),
)


def _continuous_constants(env: Any) -> tuple[Any, ...]:
    low, high = env.action_space.low[0], env.action_space.high[0]
    if (env.min_action, env.max_action) != (-1.0, 1.0) or low < -1 or high > 1:
        raise ValueError("actions are clipped to other bounds than those of the action space")
    two = 2.0  # as an argument, since a compiler replaces pow(x, 2) by x * x, which rounds differently
    return *_bounds(env), *numbers(env, "power"), two, HAS_WEAK_SCALARS


def _continuous_step(state: Any, action: Any, constants: Any, random: Any) -> Any:
    (force,) = action
    position, velocity, single = state
    min_position, max_position, max_speed, goal_position, goal_velocity, power, two = constants[:7]
    in_single_precision = constants[7]
    # The state is float64 after a reset and float32 after a step. NumPy 2 computes with Python floats in the
    # precision of the array.
    push = force * np.float32(power)
    if single:  # users may have edited a state: the codec rounds what it restores
        position, velocity = np.float64(np.float32(position)), np.float64(np.float32(velocity))
    if in_single_precision and single:
        position_32, velocity_32 = np.float32(position), np.float32(velocity)
        angle = np.float32(3) * position_32  # numba's float() would keep it in single precision
        velocity_32 += push - np.float32(0.0025 * math.cos(np.float64(angle)))
        if velocity_32 > np.float32(max_speed):
            velocity_32 = np.float32(max_speed)
        if velocity_32 < np.float32(-max_speed):
            velocity_32 = np.float32(-max_speed)
        position_32 += velocity_32
        if position_32 > np.float32(max_position):
            position_32 = np.float32(max_position)
        if position_32 < np.float32(min_position):
            position_32 = np.float32(min_position)
        if position_32 == np.float32(min_position) and velocity_32 < 0:
            velocity_32 = np.float32(0)
        terminated = position_32 >= np.float32(goal_position) and velocity_32 >= np.float32(goal_velocity)
        position, velocity = np.float64(position_32), np.float64(velocity_32)
    else:
        if in_single_precision:
            velocity += np.float64(push - np.float32(0.0025 * math.cos(3 * position)))
        else:
            velocity += np.float64(force) * power - 0.0025 * math.cos(3 * position)
        velocity = max_speed if velocity > max_speed else velocity
        velocity = -max_speed if velocity < -max_speed else velocity
        position += velocity
        position = max_position if position > max_position else position
        position = min_position if position < min_position else position
        if position == min_position and velocity < 0:
            velocity = 0.0
        terminated = position >= goal_position and velocity >= goal_velocity
        position, velocity = np.float64(np.float32(position)), np.float64(np.float32(velocity))
    reward = 100.0 if terminated else 0.0
    reward -= math.pow(np.float64(force), two) * 0.1
    return (position, velocity, True), reward, terminated, 0.0


def _continuous_observe(state: Any, constants: Any) -> Any:
    position, velocity, _ = state
    return position, velocity


CONTINUOUS_MOUNTAIN_CAR = Kernel(
    fields=("physics", "single"),
    step=_continuous_step,
    observe=_continuous_observe,
    constants=_continuous_constants,
    refuses=_refuses,
    spread=spread_physics(1.3, 0.08),
)
