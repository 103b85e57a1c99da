"""What HumanoidStandup, InvertedPendulum and Pusher compute around their simulation."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from planvec.kernels.mujoco.legged import humanoid_observe, shown_arrays
from planvec.kernels.mujoco.task import (
    Info,
    Task,
    check_observation,
    check_terms,
    clip,
    copy_from,
    dot_is_fused,
    inner,
    is_single,
    kind_of_product,
    norm3,
    number,
    single_squares,
    squares,
)


def _nothing_before(arrays: Any, constants: Any) -> float:
    return 0.0


# -- HumanoidStandup ------------------------------------------------------------------------------------


class _Standup(NamedTuple):
    control_weight: float
    impact_weight: float
    low_impact: float
    high_impact: float
    timestep: float
    first_z: float
    hidden: int
    shows_inertia: bool
    shows_velocity: bool
    shows_actuators: bool
    shows_forces: bool


def _standup_constants(env: Any) -> _Standup:
    check_terms(env.data.ctrl, env.data.cfrc_ext)
    for weight in (env._ctrl_cost_weight, env._impact_cost_weight):
        kind_of_product(weight, np.float64(1), np.float64)
    low_impact, high_impact = env._impact_cost_range
    inertia, velocity, actuators, forces = shown_arrays(env)
    return _Standup(
        number(env._ctrl_cost_weight),
        number(env._impact_cost_weight),
        number(low_impact),
        number(high_impact),
        number(env.model.opt.timestep),
        number(env.init_qpos[2]),
        2 if env._exclude_current_positions_from_observation else 0,
        inertia,
        velocity,
        actuators,
        forces,
    )


def _standup_outcome(arrays: Any, constants: Any, start: Any, action: Any, extras: Any) -> Any:
    height = arrays.qpos[2] / constants.timestep
    control = constants.control_weight * squares(arrays.ctrl)
    impact = constants.impact_weight * squares(arrays.cfrc_ext)
    impact = clip(impact, constants.low_impact, constants.high_impact)
    extras[0] = arrays.qpos[0]
    extras[1] = arrays.qpos[1]
    extras[2] = arrays.qpos[2] - constants.first_z
    at = copy_from(arrays.ten_length, 0, extras, 3)
    at = copy_from(arrays.ten_velocity, 0, extras, at)
    extras[at] = height
    extras[at + 1] = -control
    extras[at + 2] = -impact
    return height - control - impact + 1.0, False


def _standup_infos(env: Any) -> list[Info]:
    num_tendons = env.data.ten_length.size
    return [
        *(Info(name, np.float64) for name in ("x_position", "y_position", "z_distance_from_origin")),
        *(Info(name, num_tendons) for name in ("tendon_length", "tendon_velocity")),
        *(Info(name, np.float64) for name in ("reward_linup", "reward_quadctrl", "reward_impact")),
    ]


HUMANOID_STANDUP = Task(
    _standup_constants,
    _nothing_before,
    _standup_outcome,
    humanoid_observe,
    _standup_infos,
    reads_forces=True,
    height=2,
)


# -- InvertedPendulum -----------------------------------------------------------------------------------


class _Pendulum(NamedTuple):
    limit: float


def _pendulum_constants(env: Any) -> _Pendulum:
    check_observation(env, env.data.qpos.size + env.data.qvel.size)
    return _Pendulum(0.2)


@inner
def _stands(arrays: Any, limit: float) -> bool:
    is_finite = True
    for value in arrays.qpos:
        is_finite = is_finite and math.isfinite(value)
    for value in arrays.qvel:
        is_finite = is_finite and math.isfinite(value)
    return is_finite and not abs(arrays.qpos[1]) > limit


def _pendulum_outcome(arrays: Any, constants: Any, start: Any, action: Any, extras: Any) -> Any:
    reward = 1.0 if _stands(arrays, constants.limit) else 0.0
    extras[0] = reward
    return reward, reward == 0.0


def _pendulum_observe(arrays: Any, constants: Any, observation: Any) -> None:
    at = copy_from(arrays.qpos, 0, observation, 0)
    copy_from(arrays.qvel, 0, observation, at)


def _pendulum_infos(env: Any) -> list[Info]:
    return [Info("reward_survive", int)]


INVERTED_PENDULUM = Task(
    _pendulum_constants, _nothing_before, _pendulum_outcome, _pendulum_observe, _pendulum_infos
)


# -- Pusher ---------------------------------------------------------------------------------------------


class _Pusher(NamedTuple):
    near_weight: float
    distance_weight: float
    control_weight: float
    single: bool
    tips: int
    thing: int
    goal: int
    fused: bool


def _pusher_constants(env: Any) -> _Pusher:
    check_observation(env, 23)
    check_terms(env.data.ctrl)
    for weight in (env._reward_near_weight, env._reward_dist_weight):
        kind_of_product(weight, np.float64(1), np.float64)
    tips, thing, goal = (3 * int(env.data.body(name).id) for name in ("tips_arm", "object", "goal"))
    return _Pusher(
        number(env._reward_near_weight),
        number(env._reward_dist_weight),
        number(env._reward_control_weight),
        is_single(env._reward_control_weight),
        tips,
        thing,
        goal,
        dot_is_fused(),
    )


@inner
def _distance(positions: Any, first: int, second: int, fused: bool) -> float:
    """Return the distance of two bodies, whose positions begin at these indices."""
    return norm3(
        positions[first] - positions[second],
        positions[first + 1] - positions[second + 1],
        positions[first + 2] - positions[second + 2],
        fused,
    )


def _pusher_outcome(arrays: Any, constants: Any, start: Any, action: Any, extras: Any) -> Any:
    near = -_distance(arrays.xpos, constants.thing, constants.tips, constants.fused) * constants.near_weight
    far = (
        -_distance(arrays.xpos, constants.thing, constants.goal, constants.fused) * constants.distance_weight
    )
    total = -single_squares(action)
    control = float(total) * constants.control_weight
    if constants.single:
        control = float(total * np.float32(constants.control_weight))
    extras[0] = far
    extras[1] = control
    extras[2] = near
    return far + control + near, False


def _pusher_observe(arrays: Any, constants: Any, observation: Any) -> None:
    for index in range(7):
        observation[index] = arrays.qpos[index]
        observation[7 + index] = arrays.qvel[index]
    at = 14
    for body in (constants.tips, constants.thing, constants.goal):
        for axis in range(3):
            observation[at] = arrays.xpos[body + axis]
            at += 1


def _pusher_infos(env: Any) -> list[Info]:
    control = kind_of_product(np.float32(1), env._reward_control_weight, np.float32, np.float64)
    return [Info("reward_dist", np.float64), Info("reward_ctrl", control), Info("reward_near", np.float64)]


PUSHER = Task(_pusher_constants, _nothing_before, _pusher_outcome, _pusher_observe, _pusher_infos)
