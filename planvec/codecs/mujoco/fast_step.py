"""Faster steps for Gymnasium's own MuJoCo environments, with the same results bit for bit.

A part of Gymnasium's step of Ant is not simulation: it clips forces twice, computes health twice, and looks
up attributes through several layers. Without the steps here, HalfCheetah, Hopper, Ant and Humanoid take a
fifth longer wherever no kernel steps them: below wrappers, and in vector environments. They look up the
arrays of the simulation once, when an environment is opened, and compute the same sums in the same order.
Weights, ranges and masses are looked up in every step, because the user may change them. If the simulation
itself or what is observed was replaced, the environment's own step is taken.

A step is installed only if it gives the results of the environment's own step (`install_fast_step`). A
Gymnasium that computes something else is used as it is.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from math import isfinite, sqrt
from operator import attrgetter, is_not
from types import FunctionType
from typing import Any
from weakref import WeakSet

import mujoco
import numpy as np

from planvec.codecs.base import Outcome, Step
from planvec.codecs.compare import digest

_log = logging.getLogger("planvec")
_installed: WeakSet[Callable[..., Outcome]] = WeakSet()  # the steps that `install_fast_step` has installed
_add = np.add.reduce
_square = np.square
_concatenate = np.concatenate


def install_fast_step(env: Any) -> None:
    """Replace `env.step` by a faster one, if there is one for exactly its class; resets the environment."""
    # An environment with `render_mode="human"` keeps its own step, which draws. So does one whose step was
    # replaced by somebody else, or whose faster step raises or gives other results, as it may with another
    # version of Gymnasium.
    if isinstance(env.step, FunctionType) and env.step in _installed:
        del env.step  # installed by an earlier call: what it looked up may have changed since
    make_step = _MAKERS.get((type(env).__module__, type(env).__name__))  # a Gymnasium may lack some classes
    if make_step is None or env.render_mode == "human" or not inspect.ismethod(env.step):
        return
    try:
        fast_step = make_step(env)
        if not _gives_the_same(env, fast_step):
            return
    except Exception:  # another version of Gymnasium may have other attributes
        _log.debug("%s keeps its own step: the faster one failed", type(env).__name__, exc_info=True)
        return
    # what tells that the simulation, or what is observed, is another one than now
    flags = [name for name in vars(env) if name.startswith(("_include_", "_exclude_", "_main_body"))]
    present = attrgetter("model", "data", *flags)
    expected = present(env)

    def step(action: object) -> Outcome:
        if any(map(is_not, present(env), expected)):
            outcome: Outcome = type(env).step(env, action)
            return outcome
        return fast_step(action)

    env.step = step
    _installed.add(step)


def _gives_the_same(env: Any, step: Step) -> bool:
    """Return whether a step gives the results of the environment's own step, from a few states."""
    space, model, data = env.action_space, env.model, env.data
    rng, before = np.random.default_rng(0), mujoco.MjData(model)
    env.reset(seed=0)
    for number in range(12):
        if number == 6:
            data.qpos[1:3] += 10.0  # the body is lifted or turned upside down: it is not healthy
        action = rng.standard_normal(space.shape).clip(space.low, space.high).astype(space.dtype)
        mujoco.mj_copyData(before, model, data)
        expected = env.step(action)
        mujoco.mj_copyData(data, model, before)
        got = step(action)
        if digest((got, [*got[4]])) != digest((expected, [*expected[4]])):  # the infos in their order, too
            return False
    return True


def _simulation(env: Any, reads_forces: bool = False) -> Callable[[Any], None]:
    """Return a function that simulates one step with an action."""
    model, data, control = env.model, env.data, env.data.ctrl
    shape = control.shape

    def run(action: object) -> None:
        if getattr(action, "shape", None) != shape:
            # Gymnasium checks such an action: it raises an error or broadcasts it.
            env.do_simulation(action, env.frame_skip)
            return
        control[:] = action
        # Both functions are looked up as Gymnasium does: a program may replace them.
        mujoco.mj_step(model, data, nstep=env.frame_skip)
        if reads_forces:
            mujoco.mj_rnePostConstraint(model, data)

    return run


def _positions(env: Any, num_hidden: int) -> Any:
    """Return the joint positions that are observed, as a view."""
    return env.data.qpos[num_hidden if env._exclude_current_positions_from_observation else 0 :]


def _runner(env: Any) -> Step:
    """Return the step of HalfCheetah, Walker2d and Hopper. The last two differ in what is healthy."""
    simulate, options, qpos = _simulation(env), env.model.opt, env.data.qpos
    velocities, positions, has_health = env.data.qvel, _positions(env, 1), hasattr(env, "_healthy_reward")

    def step(action: Any) -> Outcome:
        before = qpos[0]
        simulate(action)
        after = qpos[0]
        velocity = (after - before) / (options.timestep * env.frame_skip)
        forward = env._forward_reward_weight * velocity
        control = env._ctrl_cost_weight * _add(_square(action))
        rewards = {"x_velocity": velocity, "reward_forward": forward, "reward_ctrl": -control}
        if not has_health:
            observation = _concatenate((positions, velocities))
            return observation, forward - control, False, False, {"x_position": after, **rewards}
        observation, is_healthy = _concatenate((positions, velocities.clip(-10, 10))), env.is_healthy
        survive = is_healthy * env._healthy_reward
        is_over = (not is_healthy) and env._terminate_when_unhealthy
        height = qpos[1] - env.init_qpos[1]
        info = {"x_position": after, "z_distance_from_origin": height, **rewards, "reward_survive": survive}
        return observation, forward + survive - control, is_over, False, info

    return step


def _ant(env: Any) -> Step:
    data, options, simulate = env.data, env.model.opt, _simulation(env, True)
    qpos, qvel, contacts = data.qpos, data.qvel, data.cfrc_ext.reshape(-1)
    shows_forces = env._include_cfrc_ext_in_observation
    observed, xy, body = (_positions(env, 2), qvel), qpos[:2], data.body(env._main_body).xpos

    def step(action: Any) -> Outcome:
        x, y = body[0], body[1]
        simulate(action)
        dt = options.timestep * env.frame_skip
        x_velocity = (body[0] - x) / dt
        forces = contacts.clip(*env._contact_force_range)
        is_finite = np.bool_(all(map(isfinite, (*qpos.tolist(), *qvel.tolist()))))
        low_z, high_z = env._healthy_z_range
        is_healthy = is_finite and low_z <= qpos[2] <= high_z
        forward, survive = x_velocity * env._forward_reward_weight, is_healthy * env._healthy_reward
        control = env._ctrl_cost_weight * _add(_square(action))
        contact = env._contact_cost_weight * _add(_square(forces))
        observation = _concatenate((*observed, forces[6:]) if shows_forces else observed)
        reward = forward + survive - (control + contact)
        results = observation, reward, (not is_healthy) and env._terminate_when_unhealthy, False
        return *results, {
            "x_position": qpos[0],
            "y_position": qpos[1],
            "distance_from_origin": np.float64(sqrt(xy.dot(xy))),  # as np.linalg.norm
            "x_velocity": x_velocity,
            "y_velocity": (body[1] - y) / dt,
            "reward_forward": forward,
            "reward_ctrl": -control,
            "reward_contact": -contact,
            "reward_survive": survive,
        }

    return step


def _humanoid(env: Any) -> Step:
    data, options, simulate = env.data, env.model.opt, _simulation(env, True)
    qpos, ctrl, contacts = data.qpos, data.ctrl, data.cfrc_ext.reshape(-1)
    xy, (x_bodies, y_bodies, _), masses = qpos[:2], data.xipos.T, env.model.body_mass
    lengths, velocities = data.ten_length, data.ten_velocity
    arrays = {name: getattr(data, name)[1:].reshape(-1) for name in ("cinert", "cvel")}
    arrays |= {"qfrc_actuator": data.qfrc_actuator[6:], "cfrc_ext": data.cfrc_ext[1:].reshape(-1)}
    shown = [name for name in arrays if getattr(env, f"_include_{name}_in_observation") is True]
    observed = [_positions(env, 2), data.qvel, *(arrays[name] for name in shown)]

    def center_of_mass() -> Any:
        x = y = 0.0  # added one by one, in the order of `np.einsum`
        total_mass = masses.sum()
        for mass, x_body, y_body in zip(masses.tolist(), x_bodies.tolist(), y_bodies.tolist(), strict=True):
            x += mass * x_body
            y += mass * y_body
        return x / total_mass, y / total_mass

    def step(action: object) -> Outcome:
        x, y = center_of_mass()
        simulate(action)
        x_after, y_after = center_of_mass()
        dt = options.timestep * env.frame_skip
        x_velocity = (x_after - x) / dt
        low_z, high_z = env._healthy_z_range
        is_healthy = low_z < qpos[2] < high_z
        forward, survive = env._forward_reward_weight * x_velocity, is_healthy * env._healthy_reward
        control = env._ctrl_cost_weight * _add(_square(ctrl))
        contact = env._contact_cost_weight * _add(_square(contacts))
        low, high = env._contact_cost_range
        contact = contact if low < contact < high else np.clip(contact, low, high)
        reward = forward + survive - (control + contact)
        is_over = (not is_healthy) and env._terminate_when_unhealthy
        results = _concatenate(observed), reward, is_over, False
        return *results, {
            "x_position": qpos[0],
            "y_position": qpos[1],
            "tendon_length": lengths.copy(),
            "tendon_velocity": velocities.copy(),
            "distance_from_origin": np.float64(sqrt(xy.dot(xy))),  # as np.linalg.norm
            "x_velocity": x_velocity,
            "y_velocity": (y_after - y) / dt,
            "reward_survive": survive,
            "reward_forward": forward,
            "reward_ctrl": -control,
            "reward_contact": -contact,
        }

    return step


# module and name of a class -> the maker of its faster step
_MAKERS: dict[tuple[str, str], Callable[[Any], Step]] = {
    ("gymnasium.envs.mujoco.ant_v5", "AntEnv"): _ant,
    ("gymnasium.envs.mujoco.half_cheetah_v5", "HalfCheetahEnv"): _runner,
    ("gymnasium.envs.mujoco.hopper_v5", "HopperEnv"): _runner,
    ("gymnasium.envs.mujoco.humanoid_v5", "HumanoidEnv"): _humanoid,
    ("gymnasium.envs.mujoco.walker2d_v5", "Walker2dEnv"): _runner,
}
