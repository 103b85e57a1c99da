"""What Ant and Humanoid compute around their simulation."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from planvec.kernels.mujoco.task import (
    Info,
    Task,
    check_observation,
    check_terms,
    clip,
    control_cost,
    control_kind,
    copy_from,
    dot_is_fused,
    flag,
    inner,
    is_single,
    kind_of_product,
    norm,
    number,
    squares,
    squares_between,
)

# -- Ant ------------------------------------------------------------------------------------------------


class _Ant(NamedTuple):
    forward_weight: float
    control_weight: float
    single: bool
    contact_weight: float
    low_force: float
    high_force: float
    healthy: float
    unhealthy: float
    ends: bool
    low_z: float
    high_z: float
    duration: float
    body: int
    shows_forces: bool
    hidden: int
    fused: bool


def _ant_constants(env: Any) -> _Ant:
    data = env.data
    check_terms(data.ctrl, data.cfrc_ext)
    kind_of_product(env._forward_reward_weight, np.float64(1), np.float64)
    kind_of_product(env._contact_cost_weight, np.float64(1), np.float64)
    low_force, high_force = env._contact_force_range
    low_z, high_z = env._healthy_z_range
    hidden = 2 if env._exclude_current_positions_from_observation else 0
    shows_forces = bool(env._include_cfrc_ext_in_observation)
    num_forces = data.cfrc_ext[1:].size if shows_forces else 0
    check_observation(env, data.qpos.size + data.qvel.size - hidden + num_forces)
    return _Ant(
        number(env._forward_reward_weight),
        number(env._ctrl_cost_weight),
        is_single(env._ctrl_cost_weight),
        number(env._contact_cost_weight),
        number(low_force),
        number(high_force),
        number(np.bool_(True) * env._healthy_reward),
        number(np.bool_(False) * env._healthy_reward),
        flag(env._terminate_when_unhealthy),
        number(low_z),
        number(high_z),
        number(env.dt),
        3 * data.body(env._main_body).id,
        shows_forces,
        hidden,
        dot_is_fused(),
    )


def _body_before(arrays: Any, constants: Any) -> Any:
    return arrays.xpos[constants.body], arrays.xpos[constants.body + 1]


@inner
def _all_finite(numbers: Any) -> bool:
    is_finite = True
    for value in numbers:
        is_finite = is_finite and math.isfinite(value)
    return is_finite


def _ant_outcome(arrays: Any, constants: Any, start: Any, action: Any, extras: Any) -> Any:
    x_velocity = (arrays.xpos[constants.body] - start[0]) / constants.duration
    y_velocity = (arrays.xpos[constants.body + 1] - start[1]) / constants.duration
    z = arrays.qpos[2]
    is_finite = _all_finite(arrays.qpos) and _all_finite(arrays.qvel)
    is_healthy = is_finite and constants.low_z <= z and z <= constants.high_z
    forward = x_velocity * constants.forward_weight
    survive = constants.healthy if is_healthy else constants.unhealthy
    control = control_cost(action, constants.control_weight, constants.single)
    forces = squares_between(arrays.cfrc_ext, constants.low_force, constants.high_force)
    contact = constants.contact_weight * forces
    extras[0] = arrays.qpos[0]
    extras[1] = arrays.qpos[1]
    extras[2] = norm(arrays.qpos[0], arrays.qpos[1], constants.fused)
    extras[3] = x_velocity
    extras[4] = y_velocity
    extras[5] = forward
    extras[6] = -control
    extras[7] = -contact
    extras[8] = survive
    return forward + survive - (control + contact), constants.ends and not is_healthy


def _ant_observe(arrays: Any, constants: Any, observation: Any) -> None:
    at = copy_from(arrays.qpos, constants.hidden, observation, 0)
    at = copy_from(arrays.qvel, 0, observation, at)
    if constants.shows_forces:
        for index in range(6, len(arrays.cfrc_ext)):
            observation[at] = clip(arrays.cfrc_ext[index], constants.low_force, constants.high_force)
            at += 1


def _ant_infos(env: Any) -> list[Info]:
    names = ("x_position", "y_position", "distance_from_origin", "x_velocity", "y_velocity", "reward_forward")
    return [
        *(Info(name, np.float64) for name in names),
        Info("reward_ctrl", control_kind(env._ctrl_cost_weight)),
        Info("reward_contact", np.float64),
        Info("reward_survive", type(np.bool_(True) * env._healthy_reward)),
    ]


ANT = Task(_ant_constants, _body_before, _ant_outcome, _ant_observe, _ant_infos, reads_forces=True, height=2)


# -- Humanoid -------------------------------------------------------------------------------------------


class _Humanoid(NamedTuple):
    forward_weight: float
    control_weight: float
    contact_weight: float
    low_cost: float
    high_cost: float
    healthy: float
    unhealthy: float
    ends: bool
    low_z: float
    high_z: float
    duration: float
    mass: float
    hidden: int
    shows_inertia: bool
    shows_velocity: bool
    shows_actuators: bool
    shows_forces: bool
    fused: bool


def shown_arrays(env: Any) -> list[bool]:
    """Return which arrays are observed, after checking the size of the observation."""
    data = env.data
    sizes = {
        "cinert": data.cinert[1:].size,
        "cvel": data.cvel[1:].size,
        "qfrc_actuator": data.qvel.size - 6,
        "cfrc_ext": data.cfrc_ext[1:].size,
    }
    shown = [getattr(env, f"_include_{name}_in_observation") is True for name in sizes]
    hidden = 2 if env._exclude_current_positions_from_observation else 0
    sizes_shown = (size for size, is_shown in zip(sizes.values(), shown, strict=True) if is_shown)
    check_observation(env, data.qpos.size + data.qvel.size - hidden + sum(sizes_shown))
    return shown


def _humanoid_constants(env: Any) -> _Humanoid:
    check_terms(env.data.ctrl, env.data.cfrc_ext)
    for weight in (env._forward_reward_weight, env._ctrl_cost_weight, env._contact_cost_weight):
        kind_of_product(weight, np.float64(1), np.float64)
    low_cost, high_cost = env._contact_cost_range
    low_z, high_z = env._healthy_z_range
    inertia, velocity, actuators, forces = shown_arrays(env)
    return _Humanoid(
        number(env._forward_reward_weight),
        number(env._ctrl_cost_weight),
        number(env._contact_cost_weight),
        number(low_cost),
        number(high_cost),
        number(np.bool_(True) * env._healthy_reward),
        number(np.bool_(False) * env._healthy_reward),
        flag(env._terminate_when_unhealthy),
        number(low_z),
        number(high_z),
        number(env.dt),
        number(env.model.body_mass.sum()),
        2 if env._exclude_current_positions_from_observation else 0,
        inertia,
        velocity,
        actuators,
        forces,
        dot_is_fused(),
    )


def _center_of_mass(arrays: Any, constants: Any) -> Any:
    x, y = 0.0, 0.0  # added one by one, in the order of `np.einsum`
    for body, mass in enumerate(arrays.body_mass):
        x += mass * arrays.xipos[3 * body]
        y += mass * arrays.xipos[3 * body + 1]
    return x / constants.mass, y / constants.mass


_center = inner(_center_of_mass)


def _humanoid_outcome(arrays: Any, constants: Any, start: Any, action: Any, extras: Any) -> Any:
    x, y = _center(arrays, constants)
    x_velocity, y_velocity = (x - start[0]) / constants.duration, (y - start[1]) / constants.duration
    is_healthy = constants.low_z < arrays.qpos[2] and arrays.qpos[2] < constants.high_z
    forward = constants.forward_weight * x_velocity
    survive = constants.healthy if is_healthy else constants.unhealthy
    control = constants.control_weight * squares(arrays.ctrl)
    contact = constants.contact_weight * squares(arrays.cfrc_ext)
    contact = clip(contact, constants.low_cost, constants.high_cost)
    extras[0] = arrays.qpos[0]
    extras[1] = arrays.qpos[1]
    at = copy_from(arrays.ten_length, 0, extras, 2)
    at = copy_from(arrays.ten_velocity, 0, extras, at)
    extras[at] = norm(arrays.qpos[0], arrays.qpos[1], constants.fused)
    extras[at + 1] = x_velocity
    extras[at + 2] = y_velocity
    extras[at + 3] = survive
    extras[at + 4] = forward
    extras[at + 5] = -control
    extras[at + 6] = -contact
    return forward + survive - (control + contact), constants.ends and not is_healthy


def humanoid_observe(arrays: Any, constants: Any, observation: Any) -> None:
    """Write the observation of a humanoid; see `Task`."""
    at = copy_from(arrays.qpos, constants.hidden, observation, 0)
    at = copy_from(arrays.qvel, 0, observation, at)
    if constants.shows_inertia:
        at = copy_from(arrays.cinert, 10, observation, at)
    if constants.shows_velocity:
        at = copy_from(arrays.cvel, 6, observation, at)
    if constants.shows_actuators:
        at = copy_from(arrays.qfrc_actuator, 6, observation, at)
    if constants.shows_forces:
        copy_from(arrays.cfrc_ext, 6, observation, at)


def _humanoid_infos(env: Any) -> list[Info]:
    num_tendons = env.data.ten_length.size
    survive = type(np.bool_(True) * env._healthy_reward)
    return [
        *(Info(name, np.float64) for name in ("x_position", "y_position")),
        *(Info(name, num_tendons) for name in ("tendon_length", "tendon_velocity")),
        *(Info(name, np.float64) for name in ("distance_from_origin", "x_velocity", "y_velocity")),
        Info("reward_survive", survive),
        *(Info(name, np.float64) for name in ("reward_forward", "reward_ctrl", "reward_contact")),
    ]


HUMANOID = Task(
    _humanoid_constants,
    _center_of_mass,
    _humanoid_outcome,
    humanoid_observe,
    _humanoid_infos,
    reads_forces=True,
    height=2,
)
