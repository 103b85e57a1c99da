"""MuJoCo: all of Gymnasium's environments, and models and classes of the user's own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest
from environments import Momentum
from gymnasium import spaces, wrappers
from gymnasium.envs.mujoco import MujocoEnv
from gymnasium.utils import EzPickle
from marks import slow_after
from mujoco_models import assert_exact, assert_steps, codec_of, model_file, states_of, walk_of

import planvec
from planvec import PlanEnv, UnsupportedEnvError
from planvec.codecs import codec_for
from planvec.codecs.mujoco.codec import PhysicsCodec, SimulationsCodec

pytestmark = pytest.mark.filterwarnings("ignore:.*environment .*-v4 is out of date:DeprecationWarning")

NAMES = (
    *("Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "InvertedDoublePendulum"),
    *("InvertedPendulum", "Pusher", "Reacher", "Swimmer", "Walker2d"),
)
IDS = [
    *(f"{name}-v5" for name in NAMES),
    # Gymnasium's own Pusher-v4 asks for mujoco<3.
    *(f"{name}-v4" for name in NAMES if name != "Pusher" or mujoco.__version__ < "3"),
]


@pytest.fixture(autouse=True)
def _log_of_mujoco_goes_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # it writes MUJOCO_LOG.TXT into the current directory


# -- Gymnasium's own environments ------------------------------------------------------------------


@pytest.mark.parametrize("env_id", IDS)
def test_restored_in_any_order_elsewhere_it_steps_as_gymnasium_does(env_id: str) -> None:
    assert_exact(lambda: gymnasium.make(env_id))


@pytest.mark.parametrize(
    ("env_id", "kwargs"),
    [
        ("Ant-v5", {"include_cfrc_ext_in_observation": False, "main_body": "front_left_leg"}),
        ("Ant-v5", {"exclude_current_positions_from_observation": False, "frame_skip": 2}),
        ("Ant-v4", {"use_contact_forces": True}),
        ("Humanoid-v5", {"include_cinert_in_observation": False, "include_cfrc_ext_in_observation": False}),
        ("Hopper-v5", {"terminate_when_unhealthy": False}),
        ("Swimmer-v5", {"frame_skip": 1}),
    ],
)
def test_options_of_the_environments_keep_it_exact(env_id: str, kwargs: dict[str, Any]) -> None:
    assert_exact(lambda: gymnasium.make(env_id, **kwargs))


@pytest.mark.parametrize("env_id", ["Ant-v5", "Humanoid-v5"])
def test_the_first_reward_after_a_restore_is_gymnasiums(env_id: str) -> None:
    walk = walk_of(lambda: gymnasium.make(env_id), 8)
    with PlanEnv(env_id) as env:
        before, _ = states_of(env, walk)
        for step, state in list(zip(walk, before, strict=True))[::-1]:
            env.reset(seed=77)
            env.step(env.action_space.sample())
            out = env.step_batch(step.action[None], state)
            assert out.rewards[0] == step.reward


def test_one_vector_is_all_that_half_cheetah_needs() -> None:
    with PlanEnv("HalfCheetah-v5") as env:
        assert env.state_dtype.names == ("physics", "elapsed_steps", "terminated", "truncated")
        base: Any = env.env.unwrapped
        size = mujoco.mj_stateSize(base.model, int(mujoco.mjtState.mjSTATE_INTEGRATION))
        assert env.state_dtype["physics"].shape == (size,)


@pytest.mark.parametrize("env_id", IDS)
def test_all_that_the_constructor_was_given_is_part_of_the_identity(env_id: str) -> None:
    env = gymnasium.make(env_id)
    codec = codec_of(env)
    assert type(codec) is PhysicsCodec
    numbers = {
        name
        for name, value in vars(env.unwrapped).items()
        if name.startswith("_") and isinstance(value, (bool, int, float, str, tuple))
    }
    assert numbers - {"_ezpickle_args", "_np_random_seed"} <= set(codec.constants)
    env.close()


@pytest.mark.parametrize(
    "wrap",
    [
        lambda env: wrappers.TimeLimit(env.env, 13),
        wrappers.NormalizeObservation,
        lambda env: wrappers.FrameStackObservation(env, 3),
        wrappers.RecordEpisodeStatistics,
        lambda env: wrappers.RescaleAction(wrappers.NormalizeReward(env), -2, 2),
        lambda env: wrappers.StickyAction(env, 0.4),
    ],
    ids=["limit", "normalize", "stack", "statistics", "rescale", "sticky"],
)
@pytest.mark.parametrize("env_id", slow_after(1, ["Hopper-v5", "Ant-v5"]))
def test_wrappers_around_it_are_restored(env_id: str, wrap: Callable[[Any], Any]) -> None:
    assert_exact(lambda: wrap(gymnasium.make(env_id)))


def test_workers_step_it_as_gymnasium_does() -> None:
    walk = walk_of(lambda: gymnasium.make("Ant-v5"))
    with planvec.make("Ant-v5", num_workers=2) as env:
        assert_steps(env, walk, *states_of(env, walk))


@pytest.mark.parametrize("env_id", ["Humanoid-v5", "HalfCheetah-v5"])
def test_a_restored_state_looks_as_it_did_when_it_was_reached(env_id: str) -> None:
    """By the scene, which is what a picture is drawn from, and needs no graphics."""
    env = gymnasium.make(env_id, render_mode="rgb_array")
    codec = codec_for(env)
    base: Any = env.unwrapped

    def scene() -> bytes:
        drawn = mujoco.MjvScene(base.model, maxgeom=200)
        option, camera = mujoco.MjvOption(), mujoco.MjvCamera()
        everything = mujoco.mjtCatBit.mjCAT_ALL
        mujoco.mjv_updateScene(base.model, base.data, option, None, camera, everything, drawn)
        parts = [(geom.pos, geom.mat, geom.size, geom.rgba) for geom in drawn.geoms[: drawn.ngeom]]
        lights = [(light.pos, light.dir) for light in drawn.lights[: drawn.nlight]]
        return b"".join(np.array(x).tobytes() for part in (*parts, *lights) for x in part)

    env.reset(seed=0)
    seen = []
    for _ in range(5):
        observation, *_ = env.step(env.action_space.sample())
        seen.append((codec.get(observation), scene()))
    assert len({picture for _, picture in seen}) == len(seen)
    for value, picture in seen[::-1]:
        codec.set(value)
        assert scene() == picture
    env.close()


# -- models of the user's own ----------------------------------------------------------------------


def test_a_model_file_of_ones_own_is_exact(tmp_path: Path) -> None:
    path = model_file(tmp_path)
    assert_exact(lambda: gymnasium.make("HalfCheetah-v5", xml_file=path))
    env = gymnasium.make("HalfCheetah-v5", xml_file=path)
    base: Any = env.unwrapped
    assert base.model.na == 1
    assert type(codec_of(env)) is PhysicsCodec
    env.close()


def test_workers_with_different_models_are_refused(tmp_path: Path) -> None:
    files = [model_file(tmp_path, mass) for mass in (1.0, 1.5)]
    with pytest.raises(planvec.WorkerStartError, match="made another environment than the first"):
        planvec.BatchEnv(
            [
                planvec.ExternalProcess(
                    lambda file=file: planvec.PlanEnv("HalfCheetah-v5", env_kwargs={"xml_file": file})  # type: ignore[misc]
                )
                for file in files
            ]
        )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("Hopper-v5", {}), ("Hopper-v5", {"healthy_reward": 2.0})),
        (("Hopper-v5", {}), ("Hopper-v5", {"frame_skip": 2})),
        (("Hopper-v5", {}), ("Hopper-v4", {})),
        (("InvertedDoublePendulum-v5", {}), ("InvertedDoublePendulum-v5", {"healthy_reward": 2.0})),
    ],
)
def test_environments_of_different_options_have_different_fingerprints(one: Any, other: Any) -> None:
    found = []
    for env_id, kwargs in (one, one, other):
        with PlanEnv(env_id, env_kwargs=kwargs) as env:
            found.append(env.stepper.description.fingerprint)
    assert found[0] == found[1] != found[2]


def test_a_model_whose_bodies_fall_asleep_is_refused(tmp_path: Path) -> None:
    path = model_file(tmp_path, sleep=True)
    can_sleep = hasattr(mujoco.mjtEnableBit, "mjENBL_SLEEP")  # older versions refuse the model themselves
    error, text = (
        (UnsupportedEnvError, "lets bodies sleep.*leave out") if can_sleep else (ValueError, "sleep")
    )
    with pytest.raises(error, match=text):
        PlanEnv("HalfCheetah-v5", env_kwargs={"xml_file": path})


# -- classes of the user's own ---------------------------------------------------------------------


class Cart(MujocoEnv):
    """A subclass with Python state: a target that moves, a history, and views into MuJoCo's memory."""

    def __init__(self, xml_file: str) -> None:
        super().__init__(xml_file, 2, spaces.Box(-np.inf, np.inf, (6,), np.float64))
        self.tip = self.data.site_xpos[1]  # a view
        self.pole = self.data.body("pole")  # an accessor
        self.rng = np.random.default_rng(3)

    def reset_model(self) -> Any:
        self.rng = np.random.default_rng(self.np_random.integers(1000))
        self.target = self.np_random.uniform(-1, 1)
        self.history: list[float] = []
        self.set_state(self.init_qpos, self.init_qvel + 0.1 * self.np_random.normal(size=self.model.nv))
        return self._observe()

    def _observe(self) -> Any:
        return np.array([*self.data.qpos[:2], *self.data.qvel[:2], self.target, len(self.history)])

    def step(self, action: Any) -> Any:
        before = self.tip[0] + self.pole.xpos[0] + self.data.sensordata[0]  # read before it simulates
        self.do_simulation(action, self.frame_skip)
        self.target += 0.1 * self.rng.normal() + 0.01 * self.np_random.normal()
        self.history = [*self.history, float(self.tip[0])][-5:]
        reward = self.tip[0] - before + sum(self.history) - abs(self.target)
        return (
            self._observe(),
            reward,
            bool(abs(self.data.qpos[1]) > 2),
            False,
            {"force": self.data.qfrc_actuator},
        )


class EzCart(Cart, EzPickle):
    """The same, pickled as its constructor's arguments."""

    def __init__(self, xml_file: str) -> None:
        EzPickle.__init__(self, xml_file)
        super().__init__(xml_file)


class RandomCart(Cart):
    """Another mass in every episode."""

    def reset_model(self) -> Any:
        self.model.body_mass[1] = self.np_random.uniform(0.5, 5)
        return super().reset_model()


class RebuiltCart(Cart):
    """Another simulation in every episode."""

    def reset_model(self) -> Any:
        self.model, self.data = self._initialize_simulation()
        return super().reset_model()


class Gust(gymnasium.Wrapper):
    """A wrapper that holds the simulation itself, and pushes bodies in it."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.data = env.unwrapped.data
        self.strength = 0.0

    def reset(self, **kwargs: Any) -> Any:
        self.strength = 1.0
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        self.strength = -0.9 * self.strength
        self.data.xfrc_applied[1, 0] = self.strength * self.data.qpos[0]
        return super().step(action)


@pytest.mark.parametrize("env_class", [Cart, EzCart])
def test_a_class_of_ones_own_is_exact(env_class: type[Cart], tmp_path: Path) -> None:
    path = model_file(tmp_path)
    assert_exact(lambda: wrappers.TimeLimit(env_class(path), 25))
    assert type(codec_of(env_class(path))) is SimulationsCodec


def test_a_class_of_ones_own_is_exact_in_workers(tmp_path: Path) -> None:
    path = model_file(tmp_path)
    walk = walk_of(lambda: EzCart(path))
    with planvec.make(lambda: EzCart(path), num_workers=2) as env:
        assert_steps(env, walk, *states_of(env, walk))


@pytest.mark.parametrize("wrap", [Momentum, Gust])
@pytest.mark.parametrize("env_id", slow_after(1, ["HalfCheetah-v5", "Ant-v5"]))
def test_wrappers_that_planvec_does_not_know_are_exact(env_id: str, wrap: Callable[[Any], Any]) -> None:
    assert_exact(lambda: wrap(gymnasium.make(env_id)))


def test_reseeding_reaches_the_generators_of_a_class_of_ones_own(tmp_path: Path) -> None:
    path = model_file(tmp_path)
    with PlanEnv(lambda: Cart(path)) as env:
        env.reset(seed=0)
        actions = np.zeros((3, 1), np.float32)
        out = env.step_batch(actions, seeds=np.array([1, 1, 2], np.uint64))
        assert out.rewards[0] == out.rewards[1] != out.rewards[2]


def test_what_a_class_changes_in_its_model_is_restored(tmp_path: Path) -> None:
    path = model_file(tmp_path)
    assert_exact(lambda: RandomCart(path))


def test_a_class_that_makes_another_simulation_is_refused(tmp_path: Path) -> None:
    path = model_file(tmp_path)
    with pytest.raises(UnsupportedEnvError, match=r"RebuiltCart\.data holds .*MjData.* made after"):
        PlanEnv(lambda: RebuiltCart(path))
    walk = walk_of(lambda: RebuiltCart(path), 12)
    with PlanEnv(lambda: RebuiltCart(path), codec="replay") as env:
        assert_steps(env, walk, *states_of(env, walk), 12)


def test_a_copy_of_the_attributes_is_refused_since_it_lacks_the_physics() -> None:
    with pytest.raises(UnsupportedEnvError, match="keeps something that could not be saved"):
        PlanEnv("Ant-v5", codec="copied")


def test_replay_of_it_is_exact() -> None:
    walk = walk_of(lambda: gymnasium.make("Hopper-v5"), 12)
    with PlanEnv("Hopper-v5", codec="replay") as env:
        assert_steps(env, walk, *states_of(env, walk), 12)


def test_mujoco_is_imported_only_for_its_environments() -> None:
    code = (
        "import sys, planvec\n"
        "planvec.PlanEnv('CartPole-v1').close()\n"
        "print(sorted(n for n in sys.modules if re.match('mujoco|gymnasium.envs.mujoco', n)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", f"import re\n{code}"],
        capture_output=True,
        text=True,
        check=True,
        env=dict(os.environ),
    )
    assert re.fullmatch(r"\[\]\s*", found.stdout), found.stdout
