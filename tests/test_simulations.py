"""MuJoCo simulations in environments of any class: held by other objects, stepped in other ways, changed."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest
from gymnasium import spaces
from marks import slow_after
from mujoco_models import assert_exact, assert_steps, codec_of, states_of, walk_of

import planvec
from planvec.codecs.mujoco.codec import SimulationsCodec

BOX = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 .1"/>
    <body name="box" pos="0 0 .3"><freejoint/><geom name="box" type="box" size=".1 .1 .1" mass="1"/>
      <site name="face" pos="0 0 .1"/></body>
  </worldbody>
  <sensor><accelerometer site="face"/><touch site="face"/></sensor>
</mujoco>
"""
"""A box that falls on a floor."""


@pytest.fixture(autouse=True)
def _log_of_mujoco_goes_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # it writes MUJOCO_LOG.TXT into the current directory


class Physics:
    """Holds a simulation, as simulators' own classes do."""

    def __init__(self) -> None:
        self.model = mujoco.MjModel.from_xml_string(BOX)
        self.data = mujoco.MjData(self.model)


class Box(gymnasium.Env[Any, Any]):
    """Pushes a box. What it adds to the observation differs between the subclasses."""

    action_space = spaces.Box(-1, 1, (3,), np.float64)
    observation_space = spaces.Box(-np.inf, np.inf, (15,), np.float64)

    def __init__(self) -> None:
        self.physics = Physics()
        self.position = self.physics.data.qpos[:3]  # a view
        self.random = np.random.RandomState(0)
        self.num_steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.random = np.random.RandomState(seed)
        self.num_steps = 0
        mujoco.mj_resetData(self.physics.model, self.physics.data)
        self.physics.data.qvel[:] = self.random.normal(size=6)
        mujoco.mj_forward(self.physics.model, self.physics.data)
        return self._observe(0.0), {}

    def step(self, action: Any) -> Any:
        self.num_steps += 1
        extra = self.before_step()
        self.physics.data.xfrc_applied[1, :3] = 20 * action + self.random.normal(size=3)
        self.simulate()
        return self._observe(extra), float(extra + self.position[0]), self.num_steps == 40, False, {}

    def before_step(self) -> float:
        return 0.0

    def simulate(self) -> None:
        mujoco.mj_step(self.physics.model, self.physics.data, 3)

    def _observe(self, extra: float) -> Any:
        data = self.physics.data
        return np.array([*data.qpos, *data.qvel, extra, self.num_steps])


class SteppedInHalves(Box):
    """Steps as dm_control does: the second half of a step comes first."""

    def simulate(self) -> None:
        mujoco.mj_step2(self.physics.model, self.physics.data)
        mujoco.mj_step1(self.physics.model, self.physics.data)


class ReadsContacts(Box):
    """Reads how deep the box is in the floor, before it simulates."""

    def before_step(self) -> float:
        data = self.physics.data
        return float(sum(contact.dist for contact in data.contact[: data.ncon])) + data.ncon


class ReadsContactsByName(Box):
    """Does the same through a name that its code does not show."""

    def before_step(self) -> float:
        data = self.physics.data
        return float(getattr(data, "".join(("nc", "on"))))


class ReadsSensors(Box):
    """Reads what the sensors measured in the last substep."""

    def before_step(self) -> float:
        return float(self.physics.data.sensordata.sum())


class TurnsGravity(Box):
    """Changes its model after some steps, and its friction in every episode."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        result = super().reset(seed=seed)
        self.physics.model.geom_friction[:, 0] = self.random.uniform(0.1, 1)
        self.physics.model.opt.gravity[2] = -9.81
        return result

    def step(self, action: Any) -> Any:
        if self.num_steps == 17:
            self.physics.model.opt.gravity[2] = -3
            self.physics.model.opt.timestep = 0.02
        return super().step(action)


class KeepsTimestep(TurnsGravity):
    """The time step stays changed from one episode to the next, unless planvec restores it."""


class TwoBoxes(Box):
    """Holds a second simulation, which follows the first one."""

    def __init__(self) -> None:
        super().__init__()
        self.shadow = Physics()

    def before_step(self) -> float:
        data = self.shadow.data
        data.qvel[:3] += self.physics.data.qvel[:3]
        mujoco.mj_step(self.shadow.model, data)
        return float(data.qpos[0])


class KeepsViews(Box):
    """Makes views of the simulation's memory in a reset, and in a step."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.height = self.physics.data.qpos[2:3]
        self.late: Any = np.zeros(1)
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        if self.num_steps == 20:
            self.late = self.physics.data.qvel[:6:2]
        return super().step(action)

    def before_step(self) -> float:
        return float(self.height[0] + self.late.sum())


class Decorated(ReadsContacts):
    """Reads the contacts in a function that only a decorator holds."""

    def before_step(self) -> float:
        return float(TABLE["read"][0](self.physics.data))


def decorated(function: Any) -> Any:
    @functools.wraps(function)
    def inner(*args: Any) -> Any:
        return function(*args)

    return inner


TABLE = {"read": [decorated(lambda data: data.ncon)]}


class ScratchModel(Box):
    """Changes a second model, which has no simulation."""

    def __init__(self) -> None:
        super().__init__()
        self.scratch = mujoco.MjModel.from_xml_string(BOX)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.scratch.body_mass[1] = 1
        return super().reset(seed=seed)

    def before_step(self) -> float:
        self.scratch.body_mass[1] *= 1.01
        return float(self.scratch.body_mass[1])


BOXES = (
    *(Box, SteppedInHalves, ReadsContacts, ReadsContactsByName, ReadsSensors, TurnsGravity, KeepsTimestep),
    *(TwoBoxes, KeepsViews, Decorated, ScratchModel),
)


@pytest.mark.parametrize("env_class", slow_after(2, BOXES))
def test_a_simulation_is_found_wherever_it_is_and_restored_exactly(env_class: type[Box]) -> None:
    assert_exact(env_class, 100)
    assert type(codec_of(env_class())) is SimulationsCodec


@pytest.mark.parametrize("env_class", slow_after(1, [SteppedInHalves, TurnsGravity]))
def test_it_is_exact_in_workers(env_class: type[Box]) -> None:
    walk = walk_of(env_class)
    with planvec.make(env_class, num_workers=2) as env:
        assert_steps(env, walk, *states_of(env, walk))


def test_states_are_small() -> None:
    """With a generator of 2.5 KB, whose state follows from its seed, and forces that are mostly zero."""
    with planvec.PlanEnv(SteppedInHalves) as env:
        assert len(bytes(env.reset(seed=3).state)) < 1500


def test_large_fields_of_the_model_are_not_compared() -> None:
    """Meshes and textures take many megabytes. Whoever changes them is on their own."""
    from planvec.codecs.mujoco.codec import ModelFields

    model = mujoco.MjModel.from_xml_string(BOX)
    fields = ModelFields(model)
    assert fields.get() == b""
    model.geom_rgba[0] = 0.25
    model.opt.wind[0] = 1
    model.opt.iterations = 7
    changes = fields.get()
    fields.set(b"")
    assert fields.get() == b""
    assert model.opt.iterations != 7
    fields.set(changes)
    assert (model.geom_rgba[0] == 0.25).all()
    assert (model.opt.wind[0], model.opt.iterations) == (1, 7)
    assert fields.get() == changes


class ScriptedBox(Box):
    """Is another environment in every process."""

    def __init__(self) -> None:
        super().__init__()
        self.physics.model.body_mass[1] = os.getpid()


def test_workers_whose_models_differ_are_refused() -> None:
    with (
        pytest.raises(planvec.PlanvecError, match="another environment than the first"),
        planvec.make(ScriptedBox, num_workers=2),
    ):
        pass


class ReadsForces(Box):
    """Reads the forces of the contacts before it simulates."""

    def before_step(self) -> float:
        force = np.zeros(6)
        if self.physics.data.ncon:
            mujoco.mj_contactForce(self.physics.model, self.physics.data, 0, force)
        return float(force[0])


def test_code_that_reads_the_forces_of_contacts_is_refused() -> None:
    with pytest.raises(planvec.UnsupportedEnvError, match=r'reads mj_contactForce.*codec="replay"'):
        planvec.PlanEnv(ReadsForces)
    walk = walk_of(ReadsForces, 12)
    with planvec.PlanEnv(ReadsForces, codec="replay") as env:
        assert_steps(env, walk, *states_of(env, walk), 12)


TETRAHEDRON = "0 0 0 .2 0 0 0 .2 0 0 0 .2"


class StretchesMesh(Box):
    """Changes a mesh in every episode."""

    def __init__(self) -> None:
        super().__init__()
        mesh = f'<asset><mesh name="mesh" vertex="{TETRAHEDRON}"/></asset><worldbody>'
        text = BOX.replace("<worldbody>", mesh).replace(
            'type="box" size=".1 .1 .1"', 'type="mesh" mesh="mesh"'
        )
        self.physics.model = mujoco.MjModel.from_xml_string(text)
        self.physics.data = mujoco.MjData(self.physics.model)
        self.position = self.physics.data.qpos[:3]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.physics.model.mesh_vert[:] *= 1.5
        return super().reset(seed=seed)


def test_an_environment_that_changes_its_meshes_is_refused() -> None:
    with pytest.raises(planvec.UnsupportedEnvError, match="changes the meshes"):
        planvec.PlanEnv(StretchesMesh)
