"""The step of Gymnasium's CartPole, written for compilation.

Every operation is the one of `gymnasium.envs.classic_control.CartPoleEnv.step`, in the same order and
precision, since another order would round differently.
"""

from __future__ import annotations

import math
from typing import Any

from planvec.kernels.base import Kernel
from planvec.kernels.gymnasium.physics import is_moderate, numbers, spread_physics


def _constants(env: Any) -> tuple[Any, ...]:
    names = ("gravity", "total_mass", "masspole", "length", "polemass_length", "force_mag", "tau")
    limits = ("theta_threshold_radians", "x_threshold")
    is_euler = env.kinematics_integrator == "euler"
    return *numbers(env, *names, *limits), is_euler, bool(env._sutton_barto_reward)


def _step(state: Any, action: Any, constants: Any, random: Any) -> Any:
    x, x_dot, theta, theta_dot = state
    gravity, total_mass, masspole, length, polemass_length, force_mag, tau = constants[:7]
    theta_threshold, x_threshold, is_euler, is_sutton_barto = constants[7:]
    force = force_mag if action == 1 else -force_mag
    costheta, sintheta = math.cos(theta), math.sin(theta)
    temp = (force + polemass_length * (theta_dot * theta_dot) * sintheta) / total_mass
    thetaacc = (gravity * sintheta - costheta * temp) / (
        length * (4.0 / 3.0 - masspole * (costheta * costheta) / total_mass)
    )
    xacc = temp - polemass_length * thetaacc * costheta / total_mass
    if is_euler:
        x = x + tau * x_dot
        x_dot = x_dot + tau * xacc
        theta = theta + tau * theta_dot
        theta_dot = theta_dot + tau * thetaacc
    else:
        x_dot = x_dot + tau * xacc
        x = x + tau * x_dot
        theta_dot = theta_dot + tau * thetaacc
        theta = theta + tau * theta_dot
    terminated = x < -x_threshold or x > x_threshold or theta < -theta_threshold or theta > theta_threshold
    reward = 1.0
    if is_sutton_barto:
        reward = -1.0 if terminated else 0.0
    return (x, x_dot, theta, theta_dot), reward, terminated, 0.0


def _observe(state: Any, constants: Any) -> Any:
    return state


def _refuses(state: Any, ended: bool, constants: Any) -> bool:
    x, x_dot, theta, theta_dot = state
    return not (is_moderate(x) and is_moderate(x_dot) and is_moderate(theta) and is_moderate(theta_dot))


CART_POLE = Kernel(
    fields=("physics",),
    step=_step,
    observe=_observe,
    constants=_constants,
    refuses=_refuses,
    spread=spread_physics(3.0, 4.0, 0.3, 4.0),
)
