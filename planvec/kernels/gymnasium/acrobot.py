"""The step of Gymnasium's Acrobot, written for compilation.

Every operation is the one of `gymnasium.envs.classic_control.AcrobotEnv.step`, in the same order and
precision, since another order would round differently.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from planvec.kernels.base import Kernel
from planvec.kernels.gymnasium.physics import is_moderate, numbers, spread_physics
from planvec.kernels.random import uniform


def _constants(env: Any) -> tuple[Any, ...]:
    torques = tuple(map(float, env.AVAIL_TORQUE))
    if len(torques) != 3 or not all(type(torque) in (int, float) for torque in env.AVAIL_TORQUE):
        raise ValueError("other torques than one Python number for each action")
    links = ("LINK_MASS_1", "LINK_MASS_2", "LINK_LENGTH_1", "LINK_COM_POS_1", "LINK_COM_POS_2", "LINK_MOI")
    noise, dt = numbers(env, "torque_noise_max", "dt")
    two = 2.0  # as an argument, since a compiler replaces pow(x, 2) by x * x, which rounds differently
    return (
        torques,
        noise,
        dt,
        numbers(env, "MAX_VEL_1", "MAX_VEL_2"),
        env.book_or_nips == "nips",
        (*numbers(env, *links), two),
    )


@njit(error_model="numpy", cache=True)
def _derivatives(
    theta1: float, theta2: float, dtheta1: float, dtheta2: float, torque: float, is_nips: bool, links: Any
) -> tuple[float, float, float, float]:
    """Return the derivatives of the state, as `AcrobotEnv._dsdt`."""
    m1, m2, l1, lc1, lc2, moment, two = links
    g = 9.8
    d1 = m1 * lc1**two + m2 * (l1**two + lc2**two + 2 * l1 * lc2 * math.cos(theta2)) + moment + moment
    d2 = m2 * (lc2**two + l1 * lc2 * math.cos(theta2)) + moment
    phi2 = m2 * lc2 * g * math.cos(theta1 + theta2 - math.pi / 2.0)
    phi1 = (
        -m2 * l1 * lc2 * dtheta2**two * math.sin(theta2)
        - 2 * m2 * l1 * lc2 * dtheta2 * dtheta1 * math.sin(theta2)
        + (m1 * lc1 + m2 * l1) * g * math.cos(theta1 - math.pi / 2)
        + phi2
    )
    inertia = m2 * lc2**two + moment - d2**two / d1
    if is_nips:
        ddtheta2 = (torque + d2 / d1 * phi1 - phi2) / inertia
    else:
        ddtheta2 = (
            torque + d2 / d1 * phi1 - m2 * l1 * lc2 * dtheta1**two * math.sin(theta2) - phi2
        ) / inertia
    ddtheta1 = -(d2 * ddtheta2 + phi1) / d1
    return dtheta1, dtheta2, ddtheta1, ddtheta2


@njit(error_model="numpy", cache=True)
def _wrapped(angle: float) -> float:
    """Return the angle in [-pi, pi], as `acrobot.wrap`."""
    turn = math.pi - -math.pi
    while angle > math.pi:
        angle = angle - turn
    while angle < -math.pi:
        angle = angle + turn
    return angle


@njit(error_model="numpy", cache=True)
def _bounded(value: float, limit: float) -> float:
    """Return the value in [-limit, limit], as `acrobot.bound`."""
    value = -limit if -limit > value else value
    return limit if limit < value else value


def _step(state: Any, action: Any, constants: Any, random: Any) -> Any:
    y0, y1, y2, y3, single = state
    if single:  # the state after a reset
        y0, y1 = np.float64(np.float32(y0)), np.float64(np.float32(y1))
        y2, y3 = np.float64(np.float32(y2)), np.float64(np.float32(y3))
    torques, noise, dt, limits, is_nips, links = constants
    torque = torques[action]
    if noise > 0:
        torque += uniform(random, -noise, noise)
    half = dt / 2.0
    a0, a1, a2, a3 = _derivatives(y0, y1, y2, y3, torque, is_nips, links)
    b0, b1, b2, b3 = _derivatives(
        y0 + half * a0, y1 + half * a1, y2 + half * a2, y3 + half * a3, torque, is_nips, links
    )
    c0, c1, c2, c3 = _derivatives(
        y0 + half * b0, y1 + half * b1, y2 + half * b2, y3 + half * b3, torque, is_nips, links
    )
    d0, d1, d2, d3 = _derivatives(
        y0 + dt * c0, y1 + dt * c1, y2 + dt * c2, y3 + dt * c3, torque, is_nips, links
    )
    sixth = dt / 6.0
    theta1 = _wrapped(y0 + sixth * (a0 + 2 * b0 + 2 * c0 + d0))
    theta2 = _wrapped(y1 + sixth * (a1 + 2 * b1 + 2 * c1 + d1))
    dtheta1 = _bounded(y2 + sixth * (a2 + 2 * b2 + 2 * c2 + d2), limits[0])
    dtheta2 = _bounded(y3 + sixth * (a3 + 2 * b3 + 2 * c3 + d3), limits[1])
    terminated = -math.cos(theta1) - math.cos(theta2 + theta1) > 1.0
    reward = 0.0 if terminated else -1.0
    return (theta1, theta2, dtheta1, dtheta2, False), reward, terminated, 0.0


def _observe(state: Any, constants: Any) -> Any:
    theta1, theta2, dtheta1, dtheta2, _ = state
    return math.cos(theta1), math.sin(theta1), math.cos(theta2), math.sin(theta2), dtheta1, dtheta2


def _refuses(state: Any, ended: bool, constants: Any) -> bool:
    y0, y1, y2, y3, single = state
    are_moderate = is_moderate(y0) and is_moderate(y1) and is_moderate(y2) and is_moderate(y3)
    # After a reset the state is float32, of which NumPy computes cosines by other formulas than C's library.
    return not are_moderate or (ended and single)


ACROBOT = Kernel(
    fields=("physics", "single"),
    step=_step,
    observe=_observe,
    constants=_constants,
    refuses=_refuses,
    spread=spread_physics(4.0, 4.0, 15.0, 30.0),
)
