"""What HalfCheetah, Hopper, Walker2d and Swimmer compute around their simulation."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from planvec.kernels.mujoco.task import (
    Arrays,
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
)


def _num_hidden(env: Any, num_hidden: int) -> int:
    """Return the number of positions that are not observed."""
    hidden = num_hidden if env._exclude_current_positions_from_observation else 0
    check_observation(env, env.data.qpos.size + env.data.qvel.size - hidden)
    return hidden


# -- HalfCheetah and Swimmer ----------------------------------------------------------------------------


class _Forward(NamedTuple):
    forward_weight: float
    control_weight: float
    single: bool
    fused: bool
    duration: float
    hidden: int


def _forward_constants(env: Any, num_hidden: int) -> _Forward:
    check_terms(env.data.ctrl)
    kind_of_product(env._forward_reward_weight, np.float64(1), np.float64)
    return _Forward(
        number(env._forward_reward_weight),
        number(env._ctrl_cost_weight),
        is_single(env._ctrl_cost_weight),
        dot_is_fused(),
        number(env.dt),
        _num_hidden(env, num_hidden),
    )


def _cheetah_constants(env: Any) -> _Forward:
    return _forward_constants(env, 1)


def _x_before(arrays: Arrays, constants: Any) -> float:
    return float(arrays.qpos[0])


def _cheetah_outcome(arrays: Any, constants: Any, start: Any, action: Any, extras: Any) -> Any:
    after = arrays.qpos[0]
    velocity = (after - start) / constants.duration
    forward = constants.forward_weight * velocity
    control = control_cost(action, constants.control_weight, constants.single)
    extras[0] = after
    extras[1] = velocity
    extras[2] = forward
    extras[3] = -control
    return forward - control, False


def _observe(arrays: Any, constants: Any, observation: Any) -> None:
    at = copy_from(arrays.qpos, constants.hidden, observation, 0)
    copy_from(arrays.qvel, 0, observation, at)


def _cheetah_infos(env: Any) -> list[Info]:
    return [
        *(Info(name, np.float64) for name in ("x_position", "x_velocity", "reward_forward")),
        Info("reward_ctrl", control_kind(env._ctrl_cost_weight)),
    ]


HALF_CHEETAH = Task(_cheetah_constants, _x_before, _cheetah_outcome, _observe, _cheetah_infos, height=1)


def _swimmer_constants(env: Any) -> _Forward:
    return _forward_constants(env, 2)


def _xy_before(arrays: Any, constants: Any) -> Any:
    return arrays.qpos[0], arrays.qpos[1]


def _swimmer_outcome(arrays: Any, constants: Any, start: Any, action: Any, extras: Any) -> Any:
    x, y = arrays.qpos[0], arrays.qpos[1]
    velocity = (x - start[0]) / constants.duration
    forward = constants.forward_weight * velocity
    control = control_cost(action, constants.control_weight, constants.single)
    extras[0] = x
    extras[1] = y
    extras[2] = norm(x, y, constants.fused)
    extras[3] = velocity
    extras[4] = (y - start[1]) / constants.duration
    extras[5] = forward
    extras[6] = -control
    return forward - control, False


def _swimmer_infos(env: Any) -> list[Info]:
    names = ("x_position", "y_position", "distance_from_origin", "x_velocity", "y_velocity", "reward_forward")
    return [
        *(Info(name, np.float64) for name in names),
        Info("reward_ctrl", control_kind(env._ctrl_cost_weight)),
    ]


SWIMMER = Task(_swimmer_constants, _xy_before, _swimmer_outcome, _observe, _swimmer_infos)


# -- Hopper and Walker2d --------------------------------------------------------------------------------


class _Walking(NamedTuple):
    forward_weight: float
    control_weight: float
    single: bool
    healthy: float
    unhealthy: float
    ends: bool
    low_state: float
    high_state: float
    low_z: float
    high_z: float
    low_angle: float
    high_angle: float
    first_z: float
    duration: float
    hidden: int


def _walking_constants(env: Any, low_state: Any, high_state: Any) -> _Walking:
    check_terms(env.data.ctrl)
    kind_of_product(env._forward_reward_weight, np.float64(1), np.float64)
    low_z, high_z = env._healthy_z_range
    low_angle, high_angle = env._healthy_angle_range
    return _Walking(
        number(env._forward_reward_weight),
        number(env._ctrl_cost_weight),
        is_single(env._ctrl_cost_weight),
        number(True * env._healthy_reward),
        number(False * env._healthy_reward),
        flag(env._terminate_when_unhealthy),
        number(low_state),
        number(high_state),
        number(low_z),
        number(high_z),
        number(low_angle),
        number(high_angle),
        number(env.init_qpos[1]),
        number(env.dt),
        _num_hidden(env, 1),
    )


def _walker_constants(env: Any) -> _Walking:
    return _walking_constants(env, -math.inf, math.inf)


def _hopper_constants(env: Any) -> _Walking:
    return _walking_constants(env, *env._healthy_state_range)


@inner
def _walks(arrays: Any, constants: Any) -> bool:
    """Return whether a Walker2d is healthy."""
    z, angle = arrays.qpos[1], arrays.qpos[2]
    return bool(
        constants.low_z < z
        and z < constants.high_z
        and constants.low_angle < angle
        and angle < constants.high_angle
    )


@inner
def _hops(arrays: Any, constants: Any) -> bool:
    """Return whether a Hopper is healthy: its whole state is bounded, too."""
    is_healthy = _walks(arrays, constants)
    for index in range(2, len(arrays.qpos)):
        value = arrays.qpos[index]
        is_healthy = is_healthy and constants.low_state < value and value < constants.high_state
    for value in arrays.qvel:
        is_healthy = is_healthy and constants.low_state < value and value < constants.high_state
    return is_healthy


@inner
def _walking_outcome(
    arrays: Any, constants: Any, start: Any, action: Any, extras: Any, is_healthy: bool
) -> Any:
    after = arrays.qpos[0]
    velocity = (after - start) / constants.duration
    forward = constants.forward_weight * velocity
    survive = constants.healthy if is_healthy else constants.unhealthy
    control = control_cost(action, constants.control_weight, constants.single)
    extras[0] = after
    extras[1] = arrays.qpos[1] - constants.first_z
    extras[2] = velocity
    extras[3] = forward
    extras[4] = -control
    extras[5] = survive
    return forward + survive - control, constants.ends and not is_healthy


def _walker_outcome(arrays: Any, constants: Any, start: Any, action: Any, extras: Any) -> Any:
    return _walking_outcome(arrays, constants, start, action, extras, _walks(arrays, constants))


def _hopper_outcome(arrays: Any, constants: Any, start: Any, action: Any, extras: Any) -> Any:
    return _walking_outcome(arrays, constants, start, action, extras, _hops(arrays, constants))


def _observe_clipped(arrays: Any, constants: Any, observation: Any) -> None:
    at = copy_from(arrays.qpos, constants.hidden, observation, 0)
    for value in arrays.qvel:
        observation[at] = clip(value, -10.0, 10.0)
        at += 1


def _walking_infos(env: Any, true: Any) -> list[Info]:
    names = ("x_position", "z_distance_from_origin", "x_velocity", "reward_forward")
    return [
        *(Info(name, np.float64) for name in names),
        Info("reward_ctrl", control_kind(env._ctrl_cost_weight)),
        Info("reward_survive", type(true * env._healthy_reward)),
    ]


def _walker_infos(env: Any) -> list[Info]:
    return _walking_infos(env, np.bool_(True))


def _hopper_infos(env: Any) -> list[Info]:
    return _walking_infos(env, True)


WALKER = Task(_walker_constants, _x_before, _walker_outcome, _observe_clipped, _walker_infos, height=1)
HOPPER = Task(_hopper_constants, _x_before, _hopper_outcome, _observe_clipped, _hopper_infos, height=1)
