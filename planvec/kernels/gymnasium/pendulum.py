"""The step of Gymnasium's Pendulum, written for compilation.

Every operation is the one of `gymnasium.envs.classic_control.PendulumEnv.step`, in the same order and
precision, since another order would round differently.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from planvec.kernels.base import HAS_WEAK_SCALARS, Kernel
from planvec.kernels.gymnasium.physics import is_moderate, numbers, spread_physics


def _constants(env: Any) -> tuple[Any, ...]:
    g, m, length, max_speed, max_torque, dt = numbers(env, "g", "m", "l", "max_speed", "max_torque", "dt")
    pull, lever = 3 * g / (2 * length), 3.0 / (m * length**2)
    two = 2.0  # as an argument, since a compiler replaces pow(x, 2) by x * x, which rounds differently
    return pull, lever, max_speed, max_torque, dt, two, HAS_WEAK_SCALARS


def _step(state: Any, action: Any, constants: Any, random: Any) -> Any:
    angle, speed, _, _ = state
    (torque,) = action
    pull, lever, max_speed, max_torque, dt, two, in_single_precision = constants
    torque = min(max(torque, np.float32(-max_torque)), np.float32(max_torque))
    normalized = ((angle + math.pi) % (2 * math.pi)) - math.pi
    if in_single_precision:  # NumPy multiplies a Python float by a float32
        effort: Any = np.float64(np.float32(0.001) * np.float32(torque ** np.float32(two)))
        push: Any = np.float64(np.float32(lever) * torque)
    else:
        effort = 0.001 * math.pow(np.float64(torque), two)
        push = lever * np.float64(torque)
    costs = math.pow(normalized, two) + 0.1 * math.pow(speed, two) + effort
    speed = speed + (pull * math.sin(angle) + push) * dt
    speed = min(max(speed, -max_speed), max_speed)
    angle = angle + speed * dt
    return (angle, speed, torque, True), -costs, False, 0.0


def _observe(state: Any, constants: Any) -> Any:
    angle, speed, _, _ = state
    return math.cos(angle), math.sin(angle), speed


def _refuses(state: Any, ended: bool, constants: Any) -> bool:
    angle, speed, torque, has_torque = state
    return not (is_moderate(angle) and is_moderate(speed) and (has_torque or torque == 0))


PENDULUM = Kernel(
    fields=("physics", "torque", "has_torque"),
    step=_step,
    observe=_observe,
    constants=_constants,
    refuses=_refuses,
    spread=spread_physics(30.0, 9.0),
)
