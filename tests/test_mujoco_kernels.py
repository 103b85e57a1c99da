"""Kernels of MuJoCo environments give Gymnasium's bits, or let the environment step itself."""

from __future__ import annotations

import contextlib
import functools
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest
from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv
from gymnasium.wrappers import TimeLimit
from numpy.typing import NDArray
from test_kernels import check_same, random_actions, start_states, walk

import planvec
from planvec import EnvError, PlanEnv, UnsupportedEnvError
from planvec.kernels import choice, has_kernel
from planvec.kernels.mujoco import stepper, tasks
from planvec.kernels.mujoco.stepper import MujocoKernel
from planvec.kernels.mujoco.task import Task, clip, single_squares, squares_between

NAMES = ("Ant", "HalfCheetah", "Hopper", "Humanoid", "Swimmer", "Walker2d")
CASES: list[tuple[str, dict[str, Any]]] = [
    *((f"{name}-v5", {}) for name in NAMES),
    *((f"{name}-v5", {"exclude_current_positions_from_observation": False}) for name in NAMES),
    ("HalfCheetah-v5", {"forward_reward_weight": 2, "ctrl_cost_weight": 3, "frame_skip": 2}),
    ("Hopper-v5", {"terminate_when_unhealthy": False, "healthy_state_range": (-2.0, 3.0)}),
    ("Walker2d-v5", {"healthy_reward": 3, "healthy_angle_range": (-0.1, 0.1)}),
    ("Ant-v5", {"include_cfrc_ext_in_observation": False, "main_body": "aux_1", "healthy_reward": 2}),
    ("Ant-v5", {"contact_force_range": (0, 0.3), "contact_cost_weight": 0.1, "ctrl_cost_weight": 1}),
    ("Humanoid-v5", {"include_cinert_in_observation": False, "include_cvel_in_observation": False}),
    ("Humanoid-v5", {"contact_cost_weight": 1e-3, "contact_cost_range": (0.5, 2)}),
]
OTHERS = ("HumanoidStandup", "InvertedPendulum", "Pusher")
CASES += [
    *((f"{name}-v5", {}) for name in OTHERS),
    ("HumanoidStandup-v5", {"include_cfrc_ext_in_observation": False, "impact_cost_range": (0.1, 0.2)}),
    ("Pusher-v5", {"reward_near_weight": 2, "reward_control_weight": 3}),
]
QUICK = ("HalfCheetah",)
"""The kernel of each class takes ten seconds to compile."""


def slow_unless_quick(name: str) -> list[Any]:
    return [] if name.partition("-")[0] in QUICK else [pytest.mark.slow]


each_case = pytest.mark.parametrize(
    ("env_id", "options"),
    [pytest.param(n, o, id=f"{n} {o}", marks=slow_unless_quick(n)) for n, o in CASES],
)
each_name = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=slow_unless_quick(name)) for name in NAMES + OTHERS]
)
NUM_ROWS = 40


@pytest.fixture(autouse=True)
def _log_of_mujoco_goes_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # it writes MUJOCO_LOG.TXT into the current directory


def pair(env_id: str, **options: Any) -> tuple[PlanEnv, PlanEnv]:
    """The same environment without and with a kernel."""
    plain = PlanEnv(env_id, env_kwargs=options, compiled=False)
    return plain, PlanEnv(env_id, env_kwargs=options, compiled=True, num_threads=2)


@functools.cache
def shared_pair(env_id: str) -> tuple[PlanEnv, PlanEnv]:
    """The same as `pair`, opened once for all tests that leave the environments as they are."""
    return pair(env_id)


def compare_walks(plain: PlanEnv, compiled: PlanEnv, length: int = 12, seed: int = 1) -> Any:
    """Check that steps have the same bits, and return the last results."""
    got = None
    for arguments, expected in walk(plain, np.random.default_rng(seed), length, NUM_ROWS):
        got = compiled.step_batch(**arguments)
        check_same(expected, got)
    return got


@pytest.fixture
def kernel_calls(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each batch was stepped by a kernel, in order."""
    calls: list[bool] = []
    step, rollout = MujocoKernel.step, MujocoKernel.rollout

    def counted_step(self: Any, *arguments: Any) -> Any:
        columns = step(self, *arguments)
        calls.append(columns is not None)
        return columns

    def counted_rollout(self: Any, *arguments: Any) -> bool:
        calls.append(rollout(self, *arguments))
        return calls[-1]

    monkeypatch.setattr(MujocoKernel, "step", counted_step)
    monkeypatch.setattr(MujocoKernel, "rollout", counted_rollout)
    return calls


def used(calls: list[bool]) -> bool:
    """Return whether the kernel has stepped all batches since the last call."""
    result = bool(calls) and all(calls)
    calls.clear()
    return result


@each_case
def test_steps_have_the_bits_of_the_environment(
    env_id: str, options: dict[str, Any], kernel_calls: list[bool]
) -> None:
    plain, compiled = pair(env_id, **options) if options else shared_pair(env_id)
    kernel_calls.clear()
    compare_walks(plain, compiled, 20)
    assert used(kernel_calls)


@each_name
def test_rollouts_have_the_bits_of_the_environment(name: str, kernel_calls: list[bool]) -> None:
    plain, compiled = shared_pair(f"{name}-v5")
    kernel_calls.clear()
    rng = np.random.default_rng(2)
    states = start_states(plain, 24)
    for keywords in (
        {"horizon": 70, "action_seed": 2**64 - 1},
        {"horizon": 20, "action_seed": 5, "seeds": np.arange(24), "discount": 0.95},
        {"actions": random_actions(plain, rng, len(states), 12)},
    ):
        expected: Any = plain.rollout_batch(states, **keywords)  # type: ignore[call-overload]
        check_same(expected, compiled.rollout_batch(states, **keywords))  # type: ignore[call-overload]
        states = expected.final_states
    assert used(kernel_calls)


@each_name
def test_infos_have_the_types_of_the_environment(name: str) -> None:
    """A single step returns Python objects, not arrays."""
    plain, compiled = shared_pair(f"{name}-v5")
    action = random_actions(plain, np.random.default_rng(0), 1)[0]
    for env in (plain, compiled):
        env.reset(seed=3)
    expected, got = plain.step(action)[4], compiled.step(action)[4]
    assert list(expected) == list(got)
    for key, value in expected.items():
        assert type(value) is type(got[key]), key
        assert np.asarray(value).tobytes() == np.asarray(got[key]).tobytes(), key


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Ant", "Hopper"])
def test_time_limits_truncate_and_absorb(name: str) -> None:
    plain, compiled = (
        PlanEnv(lambda: TimeLimit(gymnasium.make(f"{name}-v5").unwrapped, 7), compiled=flag)
        for flag in (False, True)
    )
    got = compare_walks(plain, compiled)
    assert got.truncated.any()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Ant", "Hopper"])
def test_ended_rows_keep_their_state(name: str) -> None:
    plain, compiled = shared_pair(f"{name}-v5")
    states = start_states(plain, 12)
    states["terminated"][::3] = True
    states["truncated"][1::3] = True
    actions = random_actions(plain, np.random.default_rng(0), 12)
    expected, got = plain.step_batch(actions, states), compiled.step_batch(actions, states)
    check_same(expected, got)
    assert got.new_states[::3].tobytes() == states[::3].tobytes()
    check_same(
        plain.rollout_batch(states, 5, action_seed=0), compiled.rollout_batch(states, 5, action_seed=0)
    )


@pytest.mark.slow
def test_results_do_not_depend_on_the_number_of_threads() -> None:
    one, three = (PlanEnv("Ant-v5", compiled=True, num_threads=number) for number in (1, 3))
    rng = np.random.default_rng(4)
    states = np.resize(start_states(one, 20), 300)
    actions, dt = random_actions(one, rng, len(states)), rng.integers(1, 5, len(states))
    check_same(one.step_batch(actions, states, dt), three.step_batch(actions, states, dt))
    check_same(one.rollout_batch(states, 10, action_seed=1), three.rollout_batch(states, 10, action_seed=1))


@pytest.mark.slow
def test_states_move_between_kernels_rows_and_workers() -> None:
    plain, compiled = shared_pair("Humanoid-v5")
    with (
        planvec.make("Humanoid-v5", num_workers=2) as workers,
        planvec.make("Humanoid-v5", num_workers=2, compiled=True) as both,
    ):
        states = start_states(plain, 12)
        for number in range(5):
            actions = random_actions(plain, np.random.default_rng(number), len(states))
            expected = plain.step_batch(actions, states)
            for env in (compiled, workers, both):
                check_same(expected, env.step_batch(actions, states))
            states = (compiled if number % 2 else plain).step_batch(actions, states).new_states


@pytest.mark.slow
def test_a_kernel_takes_every_form_of_arguments() -> None:
    plain, compiled = shared_pair("Ant-v5")
    states = start_states(plain, 20)
    actions = random_actions(plain, np.random.default_rng(6), len(states))
    read_only = states.copy()
    read_only.flags.writeable = False
    fixed_actions = actions.copy()
    fixed_actions.flags.writeable = False
    for keywords in (
        {"states": read_only, "actions": fixed_actions},
        {"states": states[::2], "actions": actions[::2]},
        {"states": states[::-1], "on_error": "mask"},
        {"states": states, "return_state": False},
        {"states": states[0], "dt": 3},
        {"states": states[:1], "actions": actions[:1]},
        {"states": states[:0], "actions": actions[:0]},
        {"states": states, "seeds": np.arange(len(states))},
        {"states": states, "actions": actions.astype(np.float64)},
    ):
        arguments: dict[str, Any] = {"actions": actions, **keywords}
        expected, got = plain.step_batch(**arguments), compiled.step_batch(**arguments)
        if expected.new_states is None:
            assert got.new_states is None
            expected, got = expected._replace(new_states=()), got._replace(new_states=())
        check_same(expected, got)


@pytest.mark.slow
def test_infos_are_those_that_were_asked_for() -> None:
    for keys in (None, (), ("tendon_length",), ("reward_ctrl", "absent")):
        plain, compiled = (PlanEnv("Humanoid-v5", info_keys=keys, compiled=flag) for flag in (False, True))
        states = start_states(plain, 8)
        states["terminated"][::3] = True
        actions = random_actions(plain, np.random.default_rng(0), 8)
        check_same(plain.step_batch(actions, states), compiled.step_batch(actions, states))


CHANGES: dict[str, Any] = {
    "_forward_reward_weight": 10.0,
    "_ctrl_cost_weight": np.float64(5.0),
    "_healthy_reward": -3,
    "_contact_cost_weight": 0.3,
    "_contact_force_range": (-0.2, 0.2),
    "_contact_cost_range": (0.5, 2.0),
    "_healthy_z_range": (0.9, 6.0),
    "_terminate_when_unhealthy": False,
    "_main_body": 3,
    "frame_skip": 3,
}
"""Attributes that a user may change in an environment that is open, and their new values."""


@each_name
def test_a_changed_attribute_counts(name: str, kernel_calls: list[bool]) -> None:
    plain, compiled = pair(f"{name}-v5")
    first_positions = {"init_qpos": np.linspace(0.0, 1.5, plain.env.unwrapped.model.nq)}
    for attribute, value in (CHANGES | first_positions).items():
        if hasattr(plain.env.unwrapped, attribute):
            kernel_calls.clear()
            for env in (plain, compiled):
                setattr(env.env.unwrapped, attribute, value)
            compare_walks(plain, compiled, 3)
            assert used(kernel_calls), attribute


@each_name
def test_a_changed_model_counts(name: str, kernel_calls: list[bool]) -> None:
    plain, compiled = pair(f"{name}-v5")
    kernel_calls.clear()
    for env in (plain, compiled):
        model = env.env.unwrapped.model
        model.body_mass[:] *= 1.5
        model.opt.timestep *= 0.5
        model.opt.gravity[2] = -3.0
        model.geom_friction[:] *= 0.7
    compare_walks(plain, compiled, 6)
    assert used(kernel_calls)


def _replace_data(env: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    env.data = mujoco.MjData(env.model)


def _hide_no_positions(env: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    env._exclude_current_positions_from_observation = False


def _set_no_number(env: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    env._ctrl_cost_weight = np.array([0.5])


@pytest.mark.parametrize(
    "change",
    [
        _replace_data,
        _hide_no_positions,
        _set_no_number,
    ],
)
def test_an_environment_that_was_changed_otherwise_steps_itself(
    change: Callable[[Any, pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
    kernel_calls: list[bool],
) -> None:
    env = PlanEnv("HalfCheetah-v5", compiled=True)
    states = start_states(env, 4)
    actions = random_actions(env, np.random.default_rng(0), 4)
    kernel_calls.clear()
    change(env.env.unwrapped, monkeypatch)
    with contextlib.suppress(EnvError):  # what the environment does itself
        env.step_batch(actions, states)
    with contextlib.suppress(EnvError):
        env.rollout_batch(states, 2, action_seed=0)
    assert kernel_calls == [False, False]


@pytest.mark.slow
def test_a_callback_of_mujoco_takes_part_in_steps(kernel_calls: list[bool]) -> None:
    plain, compiled = shared_pair("Hopper-v5")
    kernel_calls.clear()

    def push(model: Any, data: Any) -> None:
        data.qfrc_applied[0] = 3.0

    try:
        mujoco.set_mjcb_passive(push)
        compare_walks(plain, compiled, 2)
    finally:
        mujoco.set_mjcb_passive(None)
    assert kernel_calls == [False, False]


@each_name
def test_unstable_states_are_stepped_by_the_environment(
    name: str, kernel_calls: list[bool], capfd: pytest.CaptureFixture[str]
) -> None:
    plain, compiled = shared_pair(f"{name}-v5")
    kernel_calls.clear()
    actions = random_actions(plain, np.random.default_rng(0), 6)
    first_velocity = 1 + plain.env.unwrapped.model.nq
    for index, value in ((1, np.nan), (first_velocity, np.inf), (first_velocity + 1, 1e12)):
        states = start_states(plain, 6)
        states["physics"][3, index] = value
        check_same(plain.step_batch(actions, states), compiled.step_batch(actions, states))
        check_same(
            plain.rollout_batch(states, 3, action_seed=0), compiled.rollout_batch(states, 3, action_seed=0)
        )
    assert kernel_calls == [False] * 6
    capfd.readouterr()
    # A simulation that was unstable steps the next rows as any other one does.
    compare_walks(plain, compiled, 3)
    assert used(kernel_calls[6:])


@pytest.mark.slow
def test_a_kernel_prints_no_warnings_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    compiled = PlanEnv("Hopper-v5", compiled=True)
    states = start_states(compiled, 4)
    states["physics"][:, 1] = np.nan
    capfd.readouterr()
    kernel = compiled.stepper.kernel._kernel
    assert isinstance(kernel, MujocoKernel)
    assert not kernel.rollout(*_rollout_request(compiled, states))
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""
    assert not Path("MUJOCO_LOG.TXT").exists()


def _rollout_request(env: PlanEnv, states: NDArray[Any]) -> tuple[Any, Any]:
    request = planvec.rows.RolloutBatch(states, 2, None, 0)
    return request, request.new_outputs(env.stepper.description)


@pytest.mark.parametrize("name", ["Ant", "HalfCheetah", pytest.param("Humanoid", marks=pytest.mark.slow)])
def test_edited_states_have_the_bits_of_the_environment(name: str, kernel_calls: list[bool]) -> None:
    """Applied forces, warm starts, times and positions that no episode reaches."""
    plain, compiled = shared_pair(f"{name}-v5")
    kernel_calls.clear()
    rng = np.random.default_rng(3)
    states = start_states(plain, 30)
    physics = states["physics"]
    is_edited = rng.random(physics[:, 1:].shape) < 0.2
    physics[:, 1:] += 0.3 * rng.standard_normal(is_edited.shape) * is_edited
    physics[:, 0] = 1e3 * rng.random(30)
    states["physics"] = physics
    states["elapsed_steps"][::7] = 999
    states["elapsed_steps"][1::7] = 2**31 - 2
    for number in range(4):
        actions = random_actions(plain, rng, 30)
        expected = plain.step_batch(actions, states, dt=1 + number)
        check_same(expected, compiled.step_batch(actions, states, dt=1 + number))
        states = expected.new_states
    assert used(kernel_calls)


@pytest.mark.slow
def test_states_of_an_environment_that_renders_hold_the_picture() -> None:
    plain, compiled = (
        PlanEnv("Humanoid-v5", render_mode="rgb_array", compiled=flag) for flag in (False, True)
    )
    compare_walks(plain, compiled, 4)


@pytest.mark.slow
def test_a_model_of_the_users_own_is_stepped_by_the_kernel(tmp_path: Path) -> None:
    assets = Path(str(sys.modules["gymnasium.envs.mujoco"].__file__)).parent / "assets"
    ball = '<body name="ball" pos="2 0 1"><freejoint/><geom type="sphere" size="0.2"/></body></worldbody>'
    model = tmp_path / "ant_and_ball.xml"
    model.write_text((assets / "ant.xml").read_text().replace("</worldbody>", ball))
    plain, compiled = pair("Ant-v5", xml_file=str(model))
    compare_walks(plain, compiled, 4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["integrator", "solver", "cone", "jacobian"])
def test_an_option_that_mujoco_does_not_know_is_left_to_the_environment(name: str) -> None:
    """MuJoCo's own functions end the process, where its Python module raises."""
    plain, compiled = PlanEnv("Hopper-v5", compiled=False), PlanEnv("Hopper-v5", compiled=True)
    results = []
    for env in (plain, compiled):
        states = np.repeat(env.reset(seed=0).state, 2)
        setattr(env.env.unwrapped.model.opt, name, 9)  # type: ignore[attr-defined]
        try:
            results.append(env.step_batch(np.zeros((2, 3), np.float32), states).new_states.tobytes())
        except EnvError as error:
            results.append(str(error))
    assert results[0] == results[1]


def test_a_subclass_has_no_kernel() -> None:
    class Other(HalfCheetahEnv):
        """Steps otherwise, perhaps."""

    with pytest.raises(UnsupportedEnvError, match="none for Other"):
        PlanEnv(Other, compiled=True)


@pytest.mark.parametrize("how", ["step", "method", "class", "property", "mujoco"])
def test_an_environment_that_was_changed_before_it_is_opened_has_no_kernel(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    env: Any = gymnasium.make("HalfCheetah-v5").unwrapped
    step, base, simulate = env.step, HalfCheetahEnv.__mro__[1], mujoco.mj_step
    if how == "step":
        env.step = lambda action: step(action)
    elif how == "method":
        env.control_cost = lambda action: 0.0
    elif how == "class":
        monkeypatch.setattr(base, "do_simulation", lambda self, *rest: None)
    elif how == "property":
        monkeypatch.setattr(base, "dt", property(lambda self: 1.0))
    else:
        monkeypatch.setattr(mujoco, "mj_step", lambda *rest, **named: simulate(*rest, **named))
    with pytest.raises(UnsupportedEnvError, match="was replaced"):
        PlanEnv(env, compiled=True)


def test_a_kernel_that_gives_other_bits_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    prepare = stepper.Simulation.prepare

    def disturbed(self: Any) -> None:
        prepare(self)
        self._model.opt.timestep = 0.0100001

    env = PlanEnv("HalfCheetah-v5")
    monkeypatch.setattr(stepper.Simulation, "prepare", disturbed)
    with caplog.at_level(logging.WARNING, "planvec"):
        env.stepper.kernel.load()
    assert not env.stepper.kernel.is_used
    assert "not used" in caplog.text


@pytest.mark.slow
def test_more_memory_than_the_environment_has_is_left_to_the_environment(
    monkeypatch: pytest.MonkeyPatch, kernel_calls: list[bool]
) -> None:
    env = PlanEnv("Ant-v5", compiled=True)
    kernel = env.stepper.kernel._kernel
    assert isinstance(kernel, MujocoKernel)
    simulation = kernel._simulations[0]
    assert simulation.data.narena > 4 * env.env.unwrapped.model.narena
    kernel_calls.clear()
    monkeypatch.setattr(stepper.Simulation, "has_exceeded_memory", True)
    env.step_batch(env.action_space.sample()[None], env.get_state())
    assert kernel_calls == [False]


@pytest.mark.slow
def test_make_starts_no_workers_and_uses_the_kernel_once_it_saves_time() -> None:
    with planvec.make("HalfCheetah-v5") as env:
        assert env.num_workers == 0
        states = np.repeat(env.reset(seed=0).state, 2000)
        actions = np.zeros((2000, 6), np.float32)
        expected = env.step_batch(actions, states)
        for _ in range(30):
            got = env.step_batch(actions, states)
        check_same(expected, got)


def test_neither_numba_nor_a_kernel_is_loaded_before_it_is_needed() -> None:
    code = (
        "import sys, planvec; assert not {'numba', 'mujoco'} & set(sys.modules)\n"
        "env = planvec.PlanEnv('HalfCheetah-v5'); env.step(env.action_space.sample())\n"
        "assert 'numba' not in sys.modules and 'planvec.kernels.mujoco' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_a_kernel_is_shared_by_a_forked_child_with_threads_of_its_own() -> None:
    code = (
        "import os, numpy as np, planvec\n"
        "env = planvec.PlanEnv('Swimmer-v5', compiled=True, num_threads=2)\n"
        "states = np.repeat(env.reset(seed=0).state, 200)\n"
        "actions = np.full((200, 2), 0.5, np.float32)\n"
        "expected = env.step_batch(actions, states).new_states.tobytes()\n"
        "child = os.fork()\n"
        "same = env.step_batch(actions, states).new_states.tobytes() == expected\n"
        "if not child: os._exit(not same)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)


def test_every_class_that_is_known_to_have_a_kernel_has_a_task() -> None:
    for name in NAMES + OTHERS:
        env_class = type(gymnasium.make(f"{name}-v5").unwrapped)
        assert has_kernel(env_class)
        assert isinstance(getattr(tasks, choice._KERNELS[env_class.__name__][1]), Task)
    assert sum("mujoco" in module for module, _ in choice._KERNELS.values()) == len(NAMES + OTHERS)


def _vectors() -> Iterator[NDArray[np.float64]]:
    rng = np.random.default_rng(0)
    for size in (*range(1, 40), 84, 127, 128):
        yield rng.standard_normal(size) * 10.0 ** rng.integers(-3, 4, size)


def test_sums_have_the_bits_of_numpy() -> None:
    for vector in _vectors():
        single = vector.astype(np.float32)
        assert single_squares(single) == np.sum(np.square(single))
        assert squares_between(vector, -1.0, 2.0) == np.sum(np.square(np.clip(vector, -1.0, 2.0)))


@pytest.mark.parametrize("value", [np.nan, -0.0, 0.0, np.inf, -np.inf, 0.5, 3.0])
def test_limits_are_those_of_numpy(value: float) -> None:
    for low, high in ((0.0, 1.0), (-1.0, 0.0), (-np.inf, np.inf), (2.0, 1.0)):
        expected = np.clip(value, low, high)
        assert np.float64(clip(value, low, high)).tobytes() == np.float64(expected).tobytes()
