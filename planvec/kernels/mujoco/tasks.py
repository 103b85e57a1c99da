"""What Gymnasium's MuJoCo environments compute around their simulation; see `Task`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.kernels.mujoco.task import (
    Arrays,
    Task,
    clip,
    control_kind,
    copy_from,
    inner,
    norm,
    norm3,
    push_kind,
    single_squares,
    squares,
    squares_between,
    survive_kind,
    write,
)


@inner
def _control_cost(action: NDArray[np.float32], constants: Any) -> Any:
    """Return `weight * np.sum(np.square(action))`."""
    total = single_squares(action)
    if constants.single:
        return float(np.float32(constants.control_weight) * total)
    return constants.control_weight * float(total)


@inner
def _all_finite(numbers: NDArray[np.float64]) -> bool:
    is_finite = True
    for value in numbers:
        is_finite = is_finite and math.isfinite(value)
    return is_finite


@inner
def _are_within(numbers: NDArray[np.float64], first: int, low: float, high: float) -> bool:
    """Return whether all numbers from an index on lie between two limits."""
    are_within = True
    for index in range(first, len(numbers)):
        are_within = are_within and low < numbers[index] and numbers[index] < high
    return are_within


# -- HalfCheetah and Swimmer ---------------------------------------------------------------------------------


def _cheetah_outcome(arrays: Arrays, constants: Any, start: Any, action: Any, extras: Any) -> Any:
    x = arrays.qpos[0]
    velocity = (x - start[0]) / constants.duration
    forward = constants.forward_weight * velocity
    control = _control_cost(action, constants)
    write(extras, 0, (x, velocity, forward, -control))
    return forward - control, False


HALF_CHEETAH = Task(
    reads=("forward_weight", "control_weight", "single", "duration"),
    outcome=_cheetah_outcome,
    infos=("x_position", "x_velocity", "reward_forward", "reward_ctrl"),
    kinds={"reward_ctrl": control_kind},
    num_hidden=1,
    height=1,
)


def _swimmer_outcome(arrays: Arrays, constants: Any, start: Any, action: Any, extras: Any) -> Any:
    x, y = arrays.qpos[0], arrays.qpos[1]
    x_velocity, y_velocity = (x - start[0]) / constants.duration, (y - start[1]) / constants.duration
    forward = constants.forward_weight * x_velocity
    control = _control_cost(action, constants)
    distance = norm(x, y, constants.fused)
    write(extras, 0, (x, y, distance, x_velocity, y_velocity, forward, -control))
    return forward - control, False


SWIMMER = Task(
    reads=("forward_weight", "control_weight", "single", "duration", "fused"),
    outcome=_swimmer_outcome,
    infos=(
        *("x_position", "y_position", "distance_from_origin", "x_velocity", "y_velocity"),
        *("reward_forward", "reward_ctrl"),
    ),
    kinds={"reward_ctrl": control_kind},
    num_hidden=2,
)


# -- Hopper and Walker2d -------------------------------------------------------------------------------------


def _walker_outcome(arrays: Arrays, constants: Any, start: Any, action: Any, extras: Any) -> Any:
    x, z, angle = arrays.qpos[0], arrays.qpos[1], arrays.qpos[2]
    (low_z, high_z), (low_angle, high_angle) = constants.z_range, constants.angle_range
    is_healthy = low_z < z and z < high_z and low_angle < angle and angle < high_angle
    if constants.bounds_state:
        low, high = constants.state_range
        is_healthy = is_healthy and _are_within(arrays.qpos, 2, low, high)
        is_healthy = is_healthy and _are_within(arrays.qvel, 0, low, high)
    velocity = (x - start[0]) / constants.duration
    forward = constants.forward_weight * velocity
    survive = constants.healthy if is_healthy else constants.unhealthy
    control = _control_cost(action, constants)
    write(extras, 0, (x, z - constants.first_height, velocity, forward, -control, survive))
    return forward + survive - control, constants.ends and not is_healthy


_WALKER_READS = (
    *("forward_weight", "control_weight", "single", "healthy", "unhealthy", "ends", "z_range", "angle_range"),
    *("duration", "speed_limit"),
)
_WALKER_INFOS = (
    *("x_position", "z_distance_from_origin", "x_velocity"),
    *("reward_forward", "reward_ctrl", "reward_survive"),
)
WALKER = Task(
    reads=_WALKER_READS,
    outcome=_walker_outcome,
    infos=_WALKER_INFOS,
    kinds={"reward_ctrl": control_kind, "reward_survive": survive_kind},
    num_hidden=1,
    height=1,
)
HOPPER = Task(
    reads=(*_WALKER_READS, "bounds_state", "state_range"),
    outcome=_walker_outcome,
    infos=_WALKER_INFOS,
    # whether a Hopper is healthy is a Python bool
    kinds={"reward_ctrl": control_kind, "reward_survive": lambda env: type(True * env._healthy_reward)},
    num_hidden=1,
    height=1,
)


# -- Ant -----------------------------------------------------------------------------------------------------


def _body_position(arrays: Arrays, constants: Any) -> Any:
    return arrays.xpos[constants.body], arrays.xpos[constants.body + 1]


def _ant_outcome(arrays: Arrays, constants: Any, start: Any, action: Any, extras: Any) -> Any:
    x_velocity = (arrays.xpos[constants.body] - start[0]) / constants.duration
    y_velocity = (arrays.xpos[constants.body + 1] - start[1]) / constants.duration
    x, y, z = arrays.qpos[0], arrays.qpos[1], arrays.qpos[2]
    (low_z, high_z), (low_force, high_force) = constants.z_range, constants.force_range
    is_healthy = _all_finite(arrays.qpos) and _all_finite(arrays.qvel) and low_z <= z and z <= high_z
    forward = x_velocity * constants.forward_weight
    survive = constants.healthy if is_healthy else constants.unhealthy
    control = _control_cost(action, constants)
    contact = constants.contact_weight * squares_between(arrays.cfrc_ext, low_force, high_force)
    at = write(extras, 0, (x, y, norm(x, y, constants.fused), x_velocity, y_velocity))
    write(extras, at, (forward, -control, -contact, survive))
    return forward + survive - (control + contact), constants.ends and not is_healthy


ANT = Task(
    reads=(
        *("forward_weight", "control_weight", "single", "contact_weight", "force_range"),
        *("healthy", "unhealthy", "ends", "z_range", "duration", "body", "fused"),
    ),
    outcome=_ant_outcome,
    infos=(
        *("x_position", "y_position", "distance_from_origin", "x_velocity", "y_velocity"),
        *("reward_forward", "reward_ctrl", "reward_contact", "reward_survive"),
    ),
    kinds={"reward_ctrl": control_kind, "reward_survive": survive_kind},
    before=_body_position,
    num_hidden=2,
    reads_forces=True,
    height=2,
)


# -- Humanoid and HumanoidStandup ----------------------------------------------------------------------------


def _center_of_mass(arrays: Arrays, constants: Any) -> Any:
    x, y = 0.0, 0.0  # added one by one, in the order of `np.einsum`
    for body, mass in enumerate(arrays.body_mass):
        x += mass * arrays.xipos[3 * body]
        y += mass * arrays.xipos[3 * body + 1]
    return x / constants.mass, y / constants.mass


_center = inner(_center_of_mass)


def _humanoid_outcome(arrays: Arrays, constants: Any, start: Any, action: object, extras: Any) -> Any:
    x, y = _center(arrays, constants)
    x_velocity, y_velocity = (x - start[0]) / constants.duration, (y - start[1]) / constants.duration
    (low_z, high_z), (low_cost, high_cost) = constants.z_range, constants.cost_range
    is_healthy = low_z < arrays.qpos[2] and arrays.qpos[2] < high_z
    forward = constants.forward_weight * x_velocity
    survive = constants.healthy if is_healthy else constants.unhealthy
    control = constants.control_weight * squares(arrays.ctrl)
    contact = clip(constants.contact_weight * squares(arrays.cfrc_ext), low_cost, high_cost)
    at = write(extras, 0, (arrays.qpos[0], arrays.qpos[1]))
    at = copy_from(arrays.ten_length, 0, extras, at)
    at = copy_from(arrays.ten_velocity, 0, extras, at)
    distance = norm(arrays.qpos[0], arrays.qpos[1], constants.fused)
    write(extras, at, (distance, x_velocity, y_velocity, survive, forward, -control, -contact))
    return forward + survive - (control + contact), constants.ends and not is_healthy


def _num_tendons(env: Any) -> int:
    return int(env.data.ten_length.size)


HUMANOID = Task(
    reads=(
        *("forward_weight", "control_weight", "contact_weight", "cost_range", "healthy", "unhealthy", "ends"),
        *("z_range", "duration", "mass", "fused"),
    ),
    outcome=_humanoid_outcome,
    infos=(
        *("x_position", "y_position", "tendon_length", "tendon_velocity", "distance_from_origin"),
        *("x_velocity", "y_velocity", "reward_survive", "reward_forward", "reward_ctrl", "reward_contact"),
    ),
    kinds={"tendon_length": _num_tendons, "tendon_velocity": _num_tendons, "reward_survive": survive_kind},
    before=_center_of_mass,
    num_hidden=2,
    reads_forces=True,
    height=2,
)


def _standup_outcome(arrays: Arrays, constants: Any, start: object, action: object, extras: Any) -> Any:
    x, y, z = arrays.qpos[0], arrays.qpos[1], arrays.qpos[2]
    low_impact, high_impact = constants.impact_range
    height = z / constants.timestep
    control = constants.control_weight * squares(arrays.ctrl)
    impact = clip(constants.impact_weight * squares(arrays.cfrc_ext), low_impact, high_impact)
    at = write(extras, 0, (x, y, z - constants.first_height))
    at = copy_from(arrays.ten_length, 0, extras, at)
    at = copy_from(arrays.ten_velocity, 0, extras, at)
    write(extras, at, (height, -control, -impact))
    return height - control - impact + 1.0, False


HUMANOID_STANDUP = Task(
    reads=("control_weight", "impact_weight", "impact_range", "timestep"),
    outcome=_standup_outcome,
    infos=(
        *("x_position", "y_position", "z_distance_from_origin", "tendon_length", "tendon_velocity"),
        *("reward_linup", "reward_quadctrl", "reward_impact"),
    ),
    kinds={"tendon_length": _num_tendons, "tendon_velocity": _num_tendons},
    num_hidden=2,
    reads_forces=True,
    height=2,
)


# -- InvertedPendulum ----------------------------------------------------------------------------------------


def _pendulum_outcome(arrays: Arrays, constants: object, start: object, action: object, extras: Any) -> Any:
    is_finite = _all_finite(arrays.qpos) and _all_finite(arrays.qvel)
    reward = 1.0 if is_finite and not abs(arrays.qpos[1]) > 0.2 else 0.0
    write(extras, 0, (reward,))
    return reward, reward == 0.0


INVERTED_PENDULUM = Task(
    outcome=_pendulum_outcome, infos=("reward_survive",), kinds={"reward_survive": lambda env: int}
)


# -- Pusher --------------------------------------------------------------------------------------------------


@inner
def _distance(positions: NDArray[np.float64], first: int, second: int, fused: bool) -> float:
    """Return the distance of two bodies, whose positions begin at these indices."""
    return norm3(
        positions[first] - positions[second],
        positions[first + 1] - positions[second + 1],
        positions[first + 2] - positions[second + 2],
        fused,
    )


def _pusher_outcome(arrays: Arrays, constants: Any, start: object, action: Any, extras: Any) -> Any:
    tips, thing, goal = constants.bodies
    near = -_distance(arrays.xpos, thing, tips, constants.fused) * constants.near_weight
    far = -_distance(arrays.xpos, thing, goal, constants.fused) * constants.distance_weight
    total = -single_squares(action)
    control = float(total) * constants.push_weight
    if constants.push_single:
        control = float(total * np.float32(constants.push_weight))
    write(extras, 0, (far, control, near))
    return far + control + near, False


def _pusher_observe(arrays: Arrays, constants: Any, observation: Any) -> None:
    for index in range(7):
        observation[index] = arrays.qpos[index]
        observation[7 + index] = arrays.qvel[index]
    at = 14
    for body in constants.bodies:
        for axis in range(3):
            observation[at] = arrays.xpos[body + axis]
            at += 1


PUSHER = Task(
    reads=("near_weight", "distance_weight", "push_weight", "push_single", "bodies", "fused"),
    outcome=_pusher_outcome,
    observe=_pusher_observe,
    infos=("reward_dist", "reward_ctrl", "reward_near"),
    kinds={"reward_ctrl": push_kind},
)
