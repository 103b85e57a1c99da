"""A model of the tests' own, and the comparison of MuJoCo environments with Gymnasium's own loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from compare import assert_same, same_states, without_clock
from walks import Step, gymnasium_walk

from planvec import PlanEnv
from planvec.codecs import codec_for

NUM_STEPS = 60
CART = """
<mujoco>
  <option timestep="0.01"/>
  {flag}
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 1" contype="1" conaffinity="1"/>
    <body name="cart" pos="0 0 1">
      <joint name="slide" type="slide" axis="1 0 0" damping="0.1"/>
      <geom type="box" size="0.2 0.1 0.1" mass="{mass}"/>
      <body name="pole" pos="0 0 0.1">
        <joint name="hinge" type="hinge" axis="0 1 0"/>
        <geom type="capsule" fromto="0 0 0 0 0 0.6" size="0.03"/>
        <site name="tip" pos="0 0 0.6"/>
      </body>
    </body>
    <body name="ball" pos="1 0 0.3"><freejoint/><geom size="0.1" contype="1" conaffinity="1"/></body>
  </worldbody>
  <tendon><spatial name="rope"><site site="tip"/><site site="anchor"/></spatial></tendon>
  <actuator><general name="push" joint="slide" dyntype="filter" dynprm="0.05" gainprm="20" ctrlrange="-1 1"
    ctrllimited="true"/></actuator>
  <sensor><framepos objtype="site" objname="tip"/></sensor>
</mujoco>
"""
"""A cart and pole with what the stock models lack: an actuator with a state, a rope, a sensor."""


def model_file(directory: Path, mass: float = 1.0, sleep: bool = False) -> str:
    path = directory / f"cart-{mass}-{sleep}.xml"
    text = CART.replace('<body name="cart"', '<site name="anchor" pos="0 0 2"/><body name="cart"').format(
        mass=mass, flag='<option><flag sleep="enable"/></option>' if sleep else ""
    )
    path.write_text(text)
    return str(path)


def walk_of(make: Callable[[], Any], num_steps: int = NUM_STEPS) -> list[Step]:
    """Steps by nothing but `gymnasium.Env`."""
    return gymnasium_walk(make, num_steps, seed=5, action_seed=3)[2]


def states_of(env: Any, walk: list[Step]) -> tuple[Any, Any]:
    """The states before and after each step, walking with planvec."""
    before = np.empty(len(walk), env.state_dtype)
    after = before.copy()
    state = None
    for row, step in enumerate(walk):
        if step.seed is not None:
            start = env.reset(seed=step.seed)
            assert_same(start.observation, step.first_observation, "first observation")
            state = start.state
        before[row] = state
        state = env.step_batch(step.action[None], state).new_states[0]
        after[row] = state
    return before, after


def assert_steps(env: Any, walk: list[Step], before: Any, after: Any, num_steps: int = NUM_STEPS) -> None:
    """Restore in another order; every step must be Gymnasium's."""
    order = np.random.default_rng(0).permutation(num_steps)
    out = env.step_batch(np.stack([walk[row].action for row in order]), before[order])
    for row, number in enumerate(order):
        step = walk[number]
        assert_same(out.observations[row], step.observation, f"observation of step {number}")
        assert_same(out.rewards[row], np.float64(step.reward), f"reward of step {number}")
        flags = out.terminated[row], out.truncated[row]
        assert flags == (step.terminated, step.truncated)
        for key, value in without_clock(step.info).items():
            if key != "episode":
                assert_same(out.infos[key][row], value, f"info {key} of step {number}")
    assert same_states(out.new_states, after[order])
    assert_same(env.observe(out.new_states), out.observations, "observe")


def assert_exact(make: Callable[[], Any], num_steps: int = NUM_STEPS) -> None:
    walk = walk_of(make, num_steps)
    with PlanEnv(make) as one, PlanEnv(make) as other:
        before, after = states_of(one, walk)
        assert_steps(other, walk, before, after, num_steps)


def codec_of(env: Any) -> Any:
    """The codec of the unwrapped environment."""
    found: Any = codec_for(env)
    return found._codec
