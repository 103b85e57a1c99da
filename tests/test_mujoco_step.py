"""The faster steps of MuJoCo environments give Gymnasium's bits, or are not used."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest
from compare import assert_same
from gymnasium.envs.mujoco.ant_v5 import AntEnv
from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv

from planvec import PlanEnv
from planvec.codecs.mujoco.fast_step import install_fast_step

NUM_STEPS = 240
EPISODE = 80
HEALTH = ("Ant-v5", "Hopper-v5", "Humanoid-v5", "Walker2d-v5")
COVERED = ("HalfCheetah-v5", *HEALTH)
SHOW_ALL = {"exclude_current_positions_from_observation": False}
REWARDS = {"forward_reward_weight": 2, "ctrl_cost_weight": 0.3}
SURVIVAL = {"healthy_reward": 3, "healthy_z_range": (0.5, 0.8), "terminate_when_unhealthy": False}
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    *((env_id, {}) for env_id in COVERED),
    *((env_id, {**SHOW_ALL, **REWARDS, "frame_skip": 2}) for env_id in COVERED),
    *((env_id, {**SURVIVAL, "reset_noise_scale": 0.05}) for env_id in HEALTH),
    ("Ant-v5", {"include_cfrc_ext_in_observation": False, "main_body": "aux_1", "contact_cost_weight": 0.1}),
    ("Ant-v5", {"contact_force_range": (0, 0.3), "healthy_z_range": (-1.0, 9.0)}),
    ("Hopper-v5", {"healthy_state_range": (-2.0, 3.0), "healthy_angle_range": (-1.0, 1.0)}),
    ("Walker2d-v5", {"healthy_angle_range": (-0.1, 0.1)}),
    ("Humanoid-v5", {"include_cinert_in_observation": False, "include_cvel_in_observation": False}),
    (
        "Humanoid-v5",
        {"include_qfrc_actuator_in_observation": False, "include_cfrc_ext_in_observation": False},
    ),
    ("Humanoid-v5", {"contact_cost_weight": 1e-3, "contact_cost_range": (0.5, 2)}),
]


@pytest.fixture(autouse=True)
def _log_of_mujoco_goes_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # it writes MUJOCO_LOG.TXT into the current directory


needs_fast_steps = pytest.mark.skipif(
    not hasattr(mujoco, "mj_copyData"),
    reason="this MuJoCo lacks mj_copyData: no fast steps",
)


def make(env_id: str, **options: Any) -> Any:
    return gymnasium.make(env_id, **options).unwrapped


def make_fast(env_id: str, **options: Any) -> Any:
    env = make(env_id, **options)
    install_fast_step(env)
    assert is_fast(env)
    return env


def is_fast(env: Any) -> bool:
    return not inspect.ismethod(env.step)


def assert_same_step(fast: Any, own: Any, action: Any) -> Any:
    got, expected = fast.step(action), own.step(action)
    assert_same(got, expected)
    assert list(got[4]) == list(expected[4])
    values, wanted = (*got[:4], *got[4].values()), (*expected[:4], *expected[4].values())
    assert [type(value) for value in values] == [type(value) for value in wanted]
    assert got[0].dtype == expected[0].dtype
    return expected


@pytest.mark.parametrize(("env_id", "options"), OPTIONS)
@needs_fast_steps
def test_a_fast_step_gives_gymnasiums_bits(env_id: str, options: dict[str, Any]) -> None:
    """On the ground, in the air, and after its end as well."""
    fast, own = make_fast(env_id, **options), make(env_id, **options)
    own.action_space.seed(3)
    num_unhealthy = num_contacts = 0
    for number in range(NUM_STEPS):
        if number % EPISODE == 0:
            first = [env.reset(seed=number)[0] for env in (fast, own)]
            assert_same(*first)
        if number % EPISODE == EPISODE - 20:
            for env in (fast, own):
                env.data.qpos[1:3] += 10.0
        info = assert_same_step(fast, own, own.action_space.sample())[4]
        num_unhealthy += not info.get("reward_survive", True)
        num_contacts += own.data.ncon > 0
    assert num_contacts > 0
    assert (num_unhealthy > 0) == (env_id in HEALTH)
    fast.close()
    own.close()


@pytest.mark.parametrize("env_id", COVERED)
@needs_fast_steps
def test_planvec_steps_it_fast_and_as_gymnasium_does(env_id: str) -> None:
    own = gymnasium.make(env_id)
    rng = np.random.default_rng(0)
    with PlanEnv(env_id) as env:
        assert is_fast(env.env.unwrapped)
        state = env.reset(seed=7).state
        own.reset(seed=7)
        for _ in range(20):
            action = rng.uniform(env.action_space.low, env.action_space.high).astype(np.float32)
            out = env.step_batch(action[None], state)
            observation, reward, terminated, _, info = own.step(action)
            assert_same(out.observations[0], observation)
            assert_same(out.rewards[0], np.float64(reward))
            for key, value in info.items():
                assert_same(out.infos[key][0], value, key)
            state = out.new_states[0]
            if terminated:
                break
    own.close()


@pytest.mark.parametrize("env_id", COVERED)
def test_leaving_the_info_out_changes_nothing_else(env_id: str) -> None:
    rng = np.random.default_rng(0)
    with PlanEnv(env_id) as whole, PlanEnv(env_id, info_keys=()) as bare:
        space = whole.action_space
        states = np.repeat(whole.reset(seed=1).state, 8)
        actions = rng.uniform(space.low, space.high, (8, 4, *space.shape)).astype(np.float32)
        returns = np.zeros(8)
        start = states
        for number in range(4):
            out, other = (env.step_batch(actions[:, number], states) for env in (whole, bare))
            assert set(other.infos) == {"num_steps"}
            for got, expected in zip(other[:5], out[:5], strict=True):
                assert got.tobytes() == expected.tobytes()
            returns += out.rewards
            states = out.new_states
        assert_same(whole.rollout_batch(start, actions=actions).returns, returns)


@pytest.mark.parametrize("position", [np.nan, np.inf, -np.inf, 1e200, 1e9])
@needs_fast_steps
def test_what_is_not_finite_is_not_healthy(position: float, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate = mujoco.mj_step
    is_planted = False

    def broken(model: Any, data: Any, nstep: int) -> None:
        simulate(model, data, nstep=nstep)
        if is_planted:
            data.qpos[8] = position

    monkeypatch.setattr(mujoco, "mj_step", broken)
    fast, own = make_fast("Ant-v5"), make("Ant-v5")
    is_planted = True
    for env in (fast, own):
        env.reset(seed=0)
    expected = assert_same_step(fast, own, np.zeros(8, np.float32))
    assert expected[2] == (not np.isfinite(position))


def test_a_class_that_computes_something_else_is_stepped_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AntEnv, "control_cost", lambda self, action: 10 * np.abs(action).max())
    own = gymnasium.make("Ant-v5")
    own.reset(seed=0)
    action = np.full(8, 0.5, np.float32)
    *_, info = own.step(action)
    assert info["reward_ctrl"] == -5
    with PlanEnv("Ant-v5") as env:
        assert not is_fast(env.env.unwrapped)
        env.reset(seed=0)
        assert env.step(action)[4]["reward_ctrl"] == -5


def test_a_class_that_names_its_weights_otherwise_is_stepped_by_itself() -> None:
    env = make("Ant-v5")
    del env._contact_force_range
    install_fast_step(env)
    assert not is_fast(env)


class OtherCheetah(HalfCheetahEnv):
    """A subclass may compute anything."""


def test_only_exactly_that_class_gets_a_fast_step() -> None:
    env = OtherCheetah()
    install_fast_step(env)
    assert not is_fast(env)


def test_a_step_that_the_user_has_put_in_place_stays() -> None:
    env = make("HalfCheetah-v5")
    env.step = step = lambda action: (np.zeros(17), 0.0, False, False, {})
    install_fast_step(env)
    assert env.step is step


def test_an_environment_that_is_watched_draws_every_step() -> None:
    env = make("HalfCheetah-v5")
    env.render_mode = "human"
    install_fast_step(env)
    assert not is_fast(env)


@needs_fast_steps
def test_a_second_opening_looks_the_weights_up_again() -> None:
    fast, own = make_fast("HalfCheetah-v5"), make("HalfCheetah-v5", ctrl_cost_weight=7.0)
    fast._ctrl_cost_weight = 7.0
    install_fast_step(fast)
    assert is_fast(fast)
    for env in (fast, own):
        env.reset(seed=0)
    assert_same_step(fast, own, np.full(6, 0.5, np.float32))


@needs_fast_steps
def test_an_action_of_another_form_is_treated_as_gymnasium_does() -> None:
    fast, own = make_fast("HalfCheetah-v5"), make("HalfCheetah-v5")
    for env in (fast, own):
        env.reset(seed=0)
    assert_same_step(fast, own, [0.1, -0.2, 0.3, 0.4, 0.5, -0.6])
    assert_same_step(fast, own, np.full(6, 0.25))
    for wrong in (np.zeros(1, np.float32), np.float32(0.5), np.zeros((1, 6))):
        with pytest.raises(ValueError, match="Action dimension mismatch"):
            fast.step(wrong)


def test_installing_a_fast_step_leaves_the_actions_that_a_user_samples() -> None:
    fast, own = make("Ant-v5"), make("Ant-v5")
    for env in (fast, own):
        env.action_space.seed(5)
    install_fast_step(fast)
    assert_same(fast.action_space.sample(), own.action_space.sample())


CHANGES: dict[str, Any] = {
    "_forward_reward_weight": 10.0,
    "_ctrl_cost_weight": 5.0,
    "_healthy_reward": 50.0,
    "_contact_cost_weight": 0.3,
    "_contact_force_range": (-0.2, 0.2),
    "_contact_cost_range": (0.5, 2.0),
    "_healthy_z_range": (5.0, 6.0),
    "_terminate_when_unhealthy": False,
    "_exclude_current_positions_from_observation": False,
    "_include_cfrc_ext_in_observation": False,
    "_main_body": 3,
    "frame_skip": 3,
}
"""Attributes that a user may change in an environment that is open, and their new values."""


@pytest.mark.parametrize("env_id", COVERED)
@needs_fast_steps
def test_a_changed_attribute_counts_from_the_next_step_on(env_id: str) -> None:
    for name, value in CHANGES.items():
        own, fast = make(env_id), make_fast(env_id)
        if not hasattr(own, name):
            continue
        own.reset(seed=1)
        fast.reset(seed=1)
        for number in range(8):
            if number == 3:
                for env in (own, fast):
                    setattr(env, name, value)
            action = np.full(own.action_space.shape, 0.3, np.float32)
            assert_same(fast.step(action), own.step(action), f"{name}, step {number}")


@pytest.mark.parametrize("env_id", COVERED)
@needs_fast_steps
def test_a_changed_model_counts_from_the_next_step_on(env_id: str) -> None:
    own, fast = make(env_id), make_fast(env_id)
    own.reset(seed=1)
    fast.reset(seed=1)
    for number in range(9):
        for env in (own, fast):
            if number == 3:
                env.model.body_mass[:] *= 1.5
                env.model.opt.timestep *= 0.5
            if number == 6:  # another simulation of the same model
                env.data = mujoco.MjData(env.model)
        action = np.full(own.action_space.shape, 0.3, np.float32)
        assert_same(fast.step(action), own.step(action), f"step {number}")
