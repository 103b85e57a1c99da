"""The steps of Gymnasium's CartPole, MountainCar, Pendulum and Acrobot, written for compilation.

Every operation is the one of the `step` in `gymnasium.envs.classic_control`, in the same order and precision,
since another order would round differently.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from planvec.kernels.base import HAS_WEAK_SCALARS, Kernel
from planvec.kernels.random import uniform

# -- What the kernels share: their constants, and the states that they step ----------------------------------


def numbers(env: object, *names: str) -> tuple[float, ...]:
    """Return attributes of an environment as floats."""
    values = [getattr(env, name) for name in names]
    for name, value in zip(names, values, strict=True):
        if type(value) not in (int, float):
            raise ValueError(f"{name} is a {type(value).__name__}")
    return tuple(map(float, values))


# as an argument, since a compiler replaces pow(x, 2) by x * x, which rounds differently
_TWO = 2.0


def _observe_state(state: Any, constants: object) -> Any:
    return state[0]


@njit(error_model="numpy", forceinline=True)
def _are_moderate(numbers: tuple[float, ...]) -> bool:
    """Return whether numbers are finite and not large."""
    # Others make the environments raise, warn, or turn an angle for ever.
    are_moderate = True
    for number in numbers:
        are_moderate = are_moderate and -1e6 < number < 1e6
    return are_moderate


def _refuses(state: Any, ended: bool, constants: object) -> bool:
    return not _are_moderate(state[0])


def spread_physics(*limits: float) -> Callable[[np.ndarray, np.random.Generator, Any], None]:
    """Return a function for `Kernel.spread` that draws the field `physics` from a box around 0."""

    def spread(states: np.ndarray, random: np.random.Generator, env: object) -> None:
        states["physics"] = random.uniform(-1, 1, (len(states), len(limits))) * limits
        if "single" in (states.dtype.names or ()):
            states["single"] = random.random(len(states)) < 0.5

    return spread


# -- CartPole ------------------------------------------------------------------------------------------------


def _constants_cart_pole(env: Any) -> tuple[Any, ...]:
    names = ("gravity", "total_mass", "masspole", "length", "polemass_length", "force_mag", "tau")
    limits = ("theta_threshold_radians", "x_threshold")
    is_euler = env.kinematics_integrator == "euler"
    return *numbers(env, *names, *limits), is_euler, bool(env._sutton_barto_reward)


def _step_cart_pole(state: Any, action: object, constants: Any, random: object) -> Any:
    x, x_dot, theta, theta_dot = state[0]
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
    return ((x, x_dot, theta, theta_dot),), reward, terminated, 0.0


CART_POLE = Kernel(
    fields=("physics",),
    step=_step_cart_pole,
    observe=_observe_state,
    constants=_constants_cart_pole,
    refuses=_refuses,
    spread=spread_physics(3.0, 4.0, 0.3, 4.0),
)


# -- MountainCar and its continuous version ------------------------------------------------------------------


def _bounds(env: object) -> tuple[float, ...]:
    """Return the constants that both versions have."""
    return numbers(env, "min_position", "max_position", "max_speed", "goal_position", "goal_velocity")


def _constants_mountain_car(env: object) -> tuple[float, ...]:
    return *_bounds(env), *numbers(env, "force", "gravity")


def _step_mountain_car(state: Any, action: Any, constants: Any, random: object) -> Any:
    position, velocity = state[0]
    min_position, max_position, max_speed, goal_position, goal_velocity, force, gravity = constants
    velocity += (action - 1) * force + math.cos(3 * position) * (-gravity)
    velocity = min(max(velocity, -max_speed), max_speed)
    position += velocity
    position = min(max(position, min_position), max_position)
    if position == min_position and velocity < 0:
        velocity = 0.0
    terminated = position >= goal_position and velocity >= goal_velocity
    return ((position, velocity),), -1.0, terminated, 0.0


MOUNTAIN_CAR = Kernel(
    fields=("physics",),
    step=_step_mountain_car,
    observe=_observe_state,
    constants=_constants_mountain_car,
    refuses=_refuses,
    spread=spread_physics(1.3, 0.08),
)


def _continuous_constants(env: Any) -> tuple[Any, ...]:
    low, high = env.action_space.low[0], env.action_space.high[0]
    if (env.min_action, env.max_action) != (-1.0, 1.0) or low < -1 or high > 1:
        raise ValueError("actions are clipped to other bounds than those of the action space")
    return *_bounds(env), *numbers(env, "power"), _TWO, HAS_WEAK_SCALARS


def _continuous_step(state: Any, action: Any, constants: Any, random: object) -> Any:
    (force,) = action
    (position, velocity), single = state
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
    return ((position, velocity), True), reward, terminated, 0.0


CONTINUOUS_MOUNTAIN_CAR = Kernel(
    fields=("physics", "single"),
    step=_continuous_step,
    observe=_observe_state,
    constants=_continuous_constants,
    refuses=_refuses,
    spread=spread_physics(1.3, 0.08),
)


# -- Pendulum ------------------------------------------------------------------------------------------------


def _constants_pendulum(env: object) -> tuple[Any, ...]:
    g, m, length, max_speed, max_torque, dt = numbers(env, "g", "m", "l", "max_speed", "max_torque", "dt")
    pull, lever = 3 * g / (2 * length), 3.0 / (m * length**2)
    return pull, lever, max_speed, max_torque, dt, _TWO, HAS_WEAK_SCALARS


def _step_pendulum(state: Any, action: Any, constants: Any, random: object) -> Any:
    (angle, speed), _, _ = state
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
    return ((angle, speed), torque, True), -costs, False, 0.0


def _observe_pendulum(state: Any, constants: object) -> Any:
    (angle, speed), _, _ = state
    return math.cos(angle), math.sin(angle), speed


def _refuses_pendulum(state: Any, ended: bool, constants: object) -> bool:
    physics, torque, has_torque = state
    return not (_are_moderate(physics) and (has_torque or torque == 0))


PENDULUM = Kernel(
    fields=("physics", "torque", "has_torque"),
    step=_step_pendulum,
    observe=_observe_pendulum,
    constants=_constants_pendulum,
    refuses=_refuses_pendulum,
    spread=spread_physics(30.0, 9.0),
)


# -- Acrobot -------------------------------------------------------------------------------------------------


def _constants_acrobot(env: Any) -> tuple[Any, ...]:
    torques = tuple(map(float, env.AVAIL_TORQUE))
    if len(torques) != 3 or not all(type(torque) in (int, float) for torque in env.AVAIL_TORQUE):
        raise ValueError("other torques than one Python number for each action")
    links = ("LINK_MASS_1", "LINK_MASS_2", "LINK_LENGTH_1", "LINK_COM_POS_1", "LINK_COM_POS_2", "LINK_MOI")
    noise, dt = numbers(env, "torque_noise_max", "dt")
    return (
        torques,
        noise,
        dt,
        numbers(env, "MAX_VEL_1", "MAX_VEL_2"),
        env.book_or_nips == "nips",
        (*numbers(env, *links), _TWO),
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


def _step_acrobot(state: Any, action: object, constants: Any, random: Any) -> Any:
    (y0, y1, y2, y3), single = state
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
    return ((theta1, theta2, dtheta1, dtheta2), False), reward, terminated, 0.0


def _observe_acrobot(state: Any, constants: object) -> Any:
    (theta1, theta2, dtheta1, dtheta2), _ = state
    return math.cos(theta1), math.sin(theta1), math.cos(theta2), math.sin(theta2), dtheta1, dtheta2


def _refuses_acrobot(state: Any, ended: bool, constants: object) -> bool:
    physics, single = state
    # After a reset the state is float32, of which NumPy computes cosines by other formulas than C's library.
    return not _are_moderate(physics) or (ended and single)


ACROBOT = Kernel(
    fields=("physics", "single"),
    step=_step_acrobot,
    observe=_observe_acrobot,
    constants=_constants_acrobot,
    refuses=_refuses_acrobot,
    spread=spread_physics(4.0, 4.0, 15.0, 30.0),
)
