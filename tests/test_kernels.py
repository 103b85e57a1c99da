"""Kernels give the bits of the environments, and are used only where they do."""

from __future__ import annotations

import dataclasses
import logging
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import FrameStackObservation, RecordEpisodeStatistics, TimeLimit
from marks import slow_after
from numpy.typing import NDArray

import planvec
from planvec import EnvError, InvalidBatchError, PlanEnv, Transitions, UnsupportedEnvError
from planvec.codecs import same
from planvec.codecs.selection import GYMNASIUM
from planvec.kernels import choice
from planvec.kernels import random as compiled_random
from planvec.kernels.base import Kernel
from planvec.kernels.digests import code_digest
from planvec.kernels.gymnasium import classic_control
from planvec.rows import actions_of, leaves

CASES: list[tuple[str, dict[str, Any]]] = [
    ("CartPole-v1", {}),
    ("CartPole-v1", {"sutton_barto_reward": True}),
    ("MountainCar-v0", {}),
    ("MountainCar-v0", {"goal_velocity": 0.01}),
    ("MountainCarContinuous-v0", {}),
    ("Pendulum-v1", {}),
    ("Pendulum-v1", {"g": 9.81}),
    ("Acrobot-v1", {}),
    ("FrozenLake-v1", {}),
    ("FrozenLake-v1", {"is_slippery": False}),
    *([("FrozenLake-v1", {"success_rate": 0.7})] if GYMNASIUM >= (1, 2) else []),
    ("FrozenLake-v1", {"desc": ["SFHG", "FFFF"]}),
    ("FrozenLake8x8-v1", {}),
    ("CliffWalking-v1", {}),
    ("CliffWalking-v1", {"is_slippery": True}),
    ("Taxi-v4", {}),
    ("Taxi-v4", {"fickle_passenger": True}),
    ("Taxi-v4", {"is_rainy": True, "fickle_passenger": True}),
    ("Blackjack-v1", {}),
    ("Blackjack-v1", {"natural": True}),
    ("Blackjack-v1", {"sab": True}),
]
QUICK = ("CartPole-v1", "FrozenLake-v1")
"""The kernels of the other cases take a minute to compile."""
each_case = pytest.mark.parametrize(
    ("env_id", "options"),
    [pytest.param(n, o, id=f"{n} {o}", marks=[pytest.mark.slow] * (n not in QUICK)) for n, o in CASES],
)
NUM_ROWS = 200


def pair(env_id: str, **options: Any) -> tuple[PlanEnv, PlanEnv]:
    """The same environment without and with a kernel."""
    plain = PlanEnv(lambda: gymnasium.make(env_id, **options), compiled=False)
    return plain, PlanEnv(lambda: gymnasium.make(env_id, **options), compiled=True)


def random_actions(env: PlanEnv, rng: np.random.Generator, *shape: int) -> NDArray[Any]:
    return actions_of(env.action_space, rng.random((*shape, *(env.action_space.shape or ()))))


def start_states(env: PlanEnv, num_rows: int = NUM_ROWS) -> NDArray[Any]:
    states = np.empty(num_rows, env.state_dtype)
    for row in range(num_rows):
        states[row] = env.reset(seed=row).state
    return states


def check_same(expected: Any, got: Any) -> None:
    """Check that two results have the same bits in every field."""
    for name, first, second in zip(expected._fields, expected, got, strict=True):
        if name == "infos":
            assert same(first, second), name
        else:
            for one, other in zip(leaves(first), leaves(second), strict=True):
                assert one.dtype == other.dtype, name
                assert one.tobytes() == other.tobytes(), name


def walk(
    plain: PlanEnv, rng: np.random.Generator, length: int, num_rows: int = NUM_ROWS
) -> Iterator[tuple[dict[str, Any], Transitions]]:
    """Random steps with repeats, seeds and ends; the arguments of each and the results of the environment."""
    starts = states = start_states(plain, num_rows)
    for number in range(length):
        arguments: dict[str, Any] = {
            "actions": random_actions(plain, rng, len(states)),
            "states": states,
            "dt": rng.integers(1, 6, len(states)) if number % 2 else 1 + number % 3,
            "seeds": rng.integers(0, 2**64, len(states), dtype=np.uint64) if number % 3 else None,
        }
        out = plain.step_batch(**arguments)
        yield arguments, out
        assert out.new_states is not None
        restarts = (out.terminated | out.truncated) & (rng.random(len(states)) < 0.7)
        states = np.where(restarts, starts, out.new_states)


@each_case
def test_steps_have_the_bits_of_the_environment(env_id: str, options: dict[str, Any]) -> None:
    plain, compiled = pair(env_id, **options)
    for arguments, expected in walk(plain, np.random.default_rng(1), 30):
        check_same(expected, compiled.step_batch(**arguments))


@each_case
def test_rollouts_have_the_bits_of_the_environment(env_id: str, options: dict[str, Any]) -> None:
    plain, compiled = pair(env_id, **options)
    rng = np.random.default_rng(2)
    states = start_states(plain)
    seeds = rng.integers(0, 2**64, len(states), dtype=np.uint64)
    for keywords in (
        {"horizon": 150, "action_seed": 5},
        {"horizon": 70, "action_seed": 2**64 - 1, "seeds": seeds, "discount": 0.95},
        {"actions": random_actions(plain, rng, len(states), 20), "seeds": seeds},
    ):
        expected: Any = plain.rollout_batch(states, **keywords)  # type: ignore[call-overload]
        check_same(expected, compiled.rollout_batch(states, **keywords))  # type: ignore[call-overload]
        states = expected.final_states


def test_time_limits_truncate_and_absorb_in_kernels() -> None:
    plain = PlanEnv(lambda: TimeLimit(gymnasium.make("CartPole-v1").unwrapped, 7), compiled=False)
    compiled = PlanEnv(lambda: TimeLimit(gymnasium.make("CartPole-v1").unwrapped, 7), compiled=True)
    for arguments, expected in walk(plain, np.random.default_rng(3), 12):
        got = compiled.step_batch(**arguments)
        check_same(expected, got)
    assert got.truncated.any()


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    one, four = (PlanEnv("FrozenLake-v1", compiled=True, num_threads=number) for number in (1, 4))
    rng = np.random.default_rng(4)
    states = np.resize(start_states(one, 50), 20_000)
    actions, dt = rng.integers(0, 4, len(states)), rng.integers(1, 9, len(states))
    seeds = rng.integers(0, 2**63, len(states))
    check_same(
        one.step_batch(actions, states, dt, seeds=seeds), four.step_batch(actions, states, dt, seeds=seeds)
    )
    check_same(
        one.rollout_batch(states, 30, action_seed=1, seeds=seeds),
        four.rollout_batch(states, 30, action_seed=1, seeds=seeds),
    )


@pytest.mark.slow
def test_states_move_between_kernels_rows_and_workers() -> None:
    plain, compiled = pair("Taxi-v4", is_rainy=True)
    rng = np.random.default_rng(5)
    with (
        planvec.make("Taxi-v4", num_workers=2, env_kwargs={"is_rainy": True}) as workers,
        planvec.make("Taxi-v4", num_workers=2, env_kwargs={"is_rainy": True}, compiled=True) as both,
    ):
        states = start_states(plain)
        for _ in range(8):
            actions = rng.integers(0, 6, len(states))
            expected = plain.step_batch(actions, states)
            for env in (compiled, workers, both):
                check_same(expected, env.step_batch(actions, states))
            assert expected.new_states is not None
            states = expected.new_states


@pytest.mark.parametrize("env_id", ["CartPole-v1", pytest.param("Blackjack-v1", marks=pytest.mark.slow)])
def test_a_kernel_takes_every_form_of_arguments(env_id: str) -> None:
    plain, compiled = pair(env_id)
    states = start_states(plain)
    actions = random_actions(plain, np.random.default_rng(6), len(states))
    read_only = states.copy()
    read_only.flags.writeable = False
    for keywords in (
        {"states": read_only},
        {"states": states[::2], "actions": actions[::2]},
        {"states": states[::-1], "on_error": "mask"},
        {"states": states, "return_state": False},
        {"states": states[0], "dt": 3},
        {"states": states[:1], "actions": actions[:1]},
        {"states": states[:0], "actions": actions[:0]},
        {"states": states, "seeds": np.arange(2 * len(states))[::2]},
    ):
        arguments: dict[str, Any] = {"actions": actions, **keywords}
        expected, got = plain.step_batch(**arguments), compiled.step_batch(**arguments)
        if expected.new_states is None:
            assert got.new_states is None
            expected, got = expected._replace(new_states=()), got._replace(new_states=())
        check_same(expected, got)


@pytest.mark.slow
def test_infos_are_those_that_were_asked_for() -> None:
    for keys in (None, (), ("prob",), ("action_mask", "absent")):
        plain, compiled = (PlanEnv("Taxi-v4", info_keys=keys, compiled=flag) for flag in (False, True))
        states = start_states(plain, 20)
        states["terminated"][::3] = True
        actions = np.arange(20) % 6
        check_same(plain.step_batch(actions, states), compiled.step_batch(actions, states))


def test_states_that_a_kernel_refuses_are_handled_by_the_environment() -> None:
    plain, compiled = pair("FrozenLake-v1")
    states = start_states(plain, 3)
    states["cell"][1] = 99
    for env in (plain, compiled):
        with pytest.raises(EnvError, match="99") as error:
            env.step_batch([0, 0, 0], states)
        assert error.value.row == 1
    # NumPy observes a state right after a reset, which is float32, by other formulas than C's library.
    plain, compiled = pair("Acrobot-v1")
    states = start_states(plain)
    states["truncated"] = True
    actions = np.zeros(len(states), np.int64)
    check_same(plain.step_batch(actions, states), compiled.step_batch(actions, states))


def test_attributes_that_are_changed_after_opening_count() -> None:
    plain, compiled = pair("CartPole-v1")
    states, actions = start_states(plain), np.zeros(NUM_ROWS, np.int64)
    before = compiled.step_batch(actions, states)
    for env in (plain, compiled):
        env.env.unwrapped.gravity = 3.0  # type: ignore[attr-defined]
    after = compiled.step_batch(actions, states)
    assert not np.array_equal(before.observations, after.observations)
    check_same(plain.step_batch(actions, states), after)


def broken(kernel: Any) -> Any:
    """A kernel whose rewards differ in one bit."""

    def step(state: Any, action: Any, constants: Any, random: Any) -> Any:
        after, reward, terminated, extra = inner(state, action, constants, random)
        return after, reward * (1.0 + 2.3e-16), terminated, extra

    from numba import njit

    inner = njit(kernel.step)
    return dataclasses.replace(kernel, step=step)


def test_a_kernel_that_differs_in_one_bit_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(classic_control, "MOUNTAIN_CAR", broken(classic_control.MOUNTAIN_CAR))
    with pytest.raises(UnsupportedEnvError, match=r"compiled: .*rewards\[\d+\]"):
        PlanEnv("MountainCar-v0", compiled=True)
    env = PlanEnv("MountainCar-v0")
    with caplog.at_level(logging.WARNING, "planvec"):
        env.stepper.kernel.load()
    assert "rewards" in caplog.text
    assert env.step_batch([0, 1], np.repeat(env.get_state(), 2)).rewards.tolist() == [-1.0, -1.0]
    assert "not used" in env.stepper.kernel.status


@pytest.mark.slow
def test_a_kernel_that_refuses_everything_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = dataclasses.replace(classic_control.MOUNTAIN_CAR, refuses=lambda state, ended, constants: True)
    monkeypatch.setattr(classic_control, "MOUNTAIN_CAR", refusing)
    with pytest.raises(UnsupportedEnvError, match="it refuses the states of step 0"):
        PlanEnv("MountainCar-v0", compiled=True)


def shaped(self: Any, action: Any) -> Any:
    """A step with another reward at the goal."""
    observation, reward, terminated, *rest = type(self).original_step(self, action)
    return observation, 100.0 if terminated else reward, terminated, *rest


def test_no_kernel_replaces_a_step_that_somebody_has_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    env_class = type(gymnasium.make("MountainCar-v0").unwrapped)
    env = gymnasium.make("MountainCar-v0")
    env.unwrapped.step = lambda action: env_class.step(env.unwrapped, action)  # type: ignore[method-assign]
    with pytest.raises(UnsupportedEnvError, match="method step was replaced"):
        PlanEnv(env, compiled=True)
    monkeypatch.setattr(env_class, "original_step", env_class.step, raising=False)
    monkeypatch.setattr(env_class, "step", shaped)
    with pytest.raises(UnsupportedEnvError, match="step of MountainCarEnv was replaced"):
        PlanEnv("MountainCar-v0", compiled=True)


def test_an_environment_is_what_it_was_when_it_was_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a program replaces later does not count: nothing looks for it before every batch."""
    compiled = PlanEnv("Acrobot-v1", compiled=True)
    states = start_states(compiled)
    actions = random_actions(compiled, np.random.default_rng(0), len(states))
    before = compiled.step_batch(actions, states)
    module = sys.modules[type(compiled.env.unwrapped).__module__]
    monkeypatch.setattr(module, "rk4", lambda derivs, y0, t: y0)
    compiled.env.unwrapped._terminal = lambda: True  # type: ignore[attr-defined]
    check_same(before, compiled.step_batch(actions, states))
    with pytest.raises(UnsupportedEnvError, match="rk4 of AcrobotEnv was replaced"):
        PlanEnv("Acrobot-v1", compiled=True)


def test_draws_of_integers_are_integers() -> None:
    """Signed and unsigned numbers together would become floats in compiled code."""
    words = np.array([1, 2, 3, 5, 0, 0], np.uint64)
    for size in (1, 5):
        assert type(compiled_random.random_index(words, size)) is int
        assert type(compiled_random.integer(words, 0, size)) is int


@pytest.mark.parametrize(
    ("env_id", "name", "value"),
    slow_after(
        2,
        [
            ("CartPole-v1", "tau", np.float32(0.02)),
            ("CartPole-v1", "kinematics_integrator", "semi-implicit euler"),
            ("Pendulum-v1", "m", np.float64(1.1)),
            ("Pendulum-v1", "max_torque", np.float64(1.5)),
            ("MountainCarContinuous-v0", "power", np.float64(0.0014)),
        ],
        unpack=True,
    ),
)
def test_constants_of_other_types_are_used_as_numpy_uses_them(env_id: str, name: str, value: Any) -> None:
    plain, compiled = pair(env_id)
    states = start_states(plain)
    actions = random_actions(plain, np.random.default_rng(0), len(states))
    for env in (plain, compiled):
        setattr(env.env.unwrapped, name, value)
    check_same(plain.step_batch(actions, states), compiled.step_batch(actions, states))
    rollout = {"horizon": 20, "action_seed": 1}
    check_same(plain.rollout_batch(states, **rollout), compiled.rollout_batch(states, **rollout))


def edited(env: PlanEnv, **fields: Any) -> NDArray[Any]:
    states = start_states(env, 4)
    for name, value in fields.items():
        states[name] = value
    return states


EDITS: list[tuple[str, dict[str, Any]]] = [
    ("CartPole-v1", {"physics": [np.nan, 0.0, 0.0, 0.0]}),
    ("Acrobot-v1", {"physics": [0.3, -0.2, 0.1, 0.7]}),
    ("Acrobot-v1", {"physics": [0.3, -0.2, 0.1, 0.7], "single": False}),
    ("MountainCarContinuous-v0", {"physics": [0.44999999, 0.07], "single": True}),
    ("Pendulum-v1", {"torque": 1.5, "truncated": True}),
    ("Blackjack-v1", {"player": [10, 0, 5] + [0] * 61}),
    ("Blackjack-v1", {"dealer": [10, 9] + [0] * 62, "terminated": True}),
]


@pytest.mark.parametrize(("env_id", "fields"), slow_after(1, EDITS, unpack=True))
def test_states_that_users_edit_are_stepped_as_by_the_environment(
    env_id: str, fields: dict[str, Any]
) -> None:
    plain, compiled = pair(env_id)
    states = edited(plain, **fields)
    actions = random_actions(plain, np.random.default_rng(0), len(states))
    for dt in (1, 3):
        check_same(plain.step_batch(actions, states, dt), compiled.step_batch(actions, states, dt))
    rollout = {"horizon": 20, "action_seed": 1}
    check_same(plain.rollout_batch(states, **rollout), compiled.rollout_batch(states, **rollout))


ERRORS: list[tuple[str, int, dict[str, Any]]] = [
    ("CartPole-v1", 0, {"physics": [0.0, 0.0, 1e300, 0.0]}),
    ("MountainCar-v0", 0, {"physics": [np.inf, 0.0]}),
    ("Blackjack-v1", 1, {"dealer": [0] * 64}),
    ("Blackjack-v1", 0, {"dealer": [-20] * 30 + [0] * 34}),
]


@pytest.mark.parametrize(("env_id", "action", "fields"), slow_after(1, ERRORS, unpack=True))
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_states_at_which_the_environment_raises_raise(
    env_id: str, action: int, fields: dict[str, Any]
) -> None:
    plain, compiled = pair(env_id)
    states, texts = edited(plain, **fields), []
    for env in (plain, compiled):
        with pytest.raises(EnvError) as error:
            env.step_batch(np.full(len(states), action), states)
        texts.append(str(error.value))
    assert texts[0] == texts[1]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_codec_of_the_user_has_no_kernel() -> None:
    class Own(planvec.Codec):
        dtype = np.dtype([("physics", "f8", 2)])
        draws = False

        def get(self, env: Any) -> Any:
            return (np.array(env.state),)

        def set(self, env: Any, value: Any) -> None:
            env.state = value[0]

        def observe(self, env: Any) -> Any:
            return np.array(env.state, np.float32)

    with pytest.raises(UnsupportedEnvError, match="another codec"):
        PlanEnv("MountainCar-v0", codec=Own, compiled=True)


def test_a_table_without_an_entry_is_left_to_the_environment() -> None:
    plain, compiled = pair("FrozenLake-v1")
    states = start_states(plain, 4)
    for env in (plain, compiled):
        table = {cell: dict(actions) for cell, actions in env.env.unwrapped.P.items()}  # type: ignore[attr-defined]
        for actions in table.values():
            del actions[3]
        env.env.unwrapped.P = table  # type: ignore[attr-defined]
    check_same(plain.step_batch([0, 1, 2, 0], states), compiled.step_batch([0, 1, 2, 0], states))
    for env in (plain, compiled):
        with pytest.raises(EnvError, match="KeyError"):
            env.step_batch([0, 1, 2, 3], states)


def test_an_attribute_that_was_deleted_is_an_error_of_the_environment() -> None:
    compiled = PlanEnv("CartPole-v1", compiled=True)
    del compiled.env.unwrapped.force_mag  # type: ignore[attr-defined]
    with pytest.raises(EnvError, match="force_mag"):
        compiled.step_batch([0, 1], np.repeat(compiled.get_state(), 2))


def test_an_interrupt_while_a_kernel_is_loaded_leaves_it_to_the_next_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    env = PlanEnv("CartPole-v1")
    with monkeypatch.context() as patch:
        patch.setattr("planvec.stepping.env_stepper.prove", interrupt)
        with pytest.raises(KeyboardInterrupt):
            env.stepper.kernel.load()
    env.stepper.kernel.load()
    assert env.stepper.kernel.is_used


def test_a_step_at_the_end_of_the_program_needs_no_thread() -> None:
    program = """
        import atexit
        import numpy as np
        import planvec
        env = planvec.PlanEnv("CartPole-v1", compiled=True, num_threads=2)
        states = np.repeat(env.get_state(), 50_000)
        first = env.step_batch(np.zeros(len(states), int), states)

        @atexit.register
        def step():
            again = env.step_batch(np.zeros(len(states), int), states)
            assert np.array_equal(first.observations, again.observations)
            print("stepped")
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    output = subprocess.run(command, check=True, timeout=120, capture_output=True, text=True).stdout
    assert output == "stepped\n"


def test_the_audit_compares_a_kernel_with_the_environment() -> None:
    compiled = PlanEnv("CartPole-v1", compiled=True)
    env = planvec.BatchEnv(compiled, audit=1.0)
    step = compiled.stepper.kernel._kernel.step  # type: ignore[union-attr]

    def step_wrongly(batch: Any, out: Any, info_keys: Any) -> Any:
        columns = step(batch, out, info_keys)
        out.rewards += 1.0
        return columns

    compiled.stepper.kernel._kernel.step = step_wrongly  # type: ignore[method-assign, union-attr]
    states = np.repeat(env.get_state(), 20_000)

    def step_often() -> None:
        for _ in range(1000):
            env.step_batch(np.zeros(len(states), np.int64), states)

    with pytest.raises(UnsupportedEnvError, match="audit: row .* the environment itself.*compiled=False"):
        step_often()


@pytest.mark.parametrize(
    "wrap", [lambda env: FrameStackObservation(env, 2), RecordEpisodeStatistics], ids=["frames", "statistics"]
)
def test_wrappers_that_remember_keep_the_environment_at_work(wrap: Any) -> None:
    with pytest.raises(UnsupportedEnvError, match="compiled: .*wrapper"):
        PlanEnv(lambda: wrap(gymnasium.make("CartPole-v1")), compiled=True)
    env = PlanEnv(lambda: wrap(gymnasium.make("CartPole-v1")))
    env.stepper.kernel.load()
    assert env.step_batch([0, 1], np.repeat(env.get_state(), 2)).rewards.tolist() == [1.0, 1.0]


def test_every_class_that_is_known_to_have_a_kernel_has_one() -> None:
    for name, (path, constant) in choice._KERNELS.items():
        folder, _, module = path.partition(".")
        if folder == "gymnasium":
            assert choice.has_kernel(getattr(import_module(f"gymnasium.envs.{module}"), name))
            assert isinstance(getattr(import_module(f"planvec.kernels.{path}"), constant), Kernel)


def test_a_subclass_has_no_kernel() -> None:
    class Heavier(gymnasium.envs.classic_control.CartPoleEnv):  # type: ignore[name-defined, misc]
        pass

    assert not choice.has_kernel(Heavier)
    with pytest.raises(UnsupportedEnvError, match="none for Heavier"):
        PlanEnv(Heavier, compiled=True)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [({"compiled": 1}, "compiled: expected None, True or False, got 1")]
    + [({"num_threads": value}, f"num_threads: expected an integer .*{value}") for value in (0, True, 1.5)],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidBatchError, match=text):
        PlanEnv("CartPole-v1", **arguments)


def test_an_environment_with_a_kernel_needs_no_workers() -> None:
    with planvec.make("CartPole-v1") as env:
        assert env.num_workers == 0
    for asking in ({"timeout": 60}, {"codec": "copied"}, {"compiled": False}):
        with planvec.make("CartPole-v1", **asking) as env:  # type: ignore[arg-type]
            assert env.num_workers > 0


def test_small_programs_do_not_wait_for_numba() -> None:
    program = """
        import sys
        import numpy as np
        import planvec
        env = planvec.make("CartPole-v1")
        states = np.repeat(env.get_state(), 10)
        first = env.step_batch(np.zeros(10, int), states)
        assert "numba" not in sys.modules
        states = np.repeat(env.get_state(), 250_000)
        many = env.step_batch(np.zeros(len(states), int), states)
        assert "numba" in sys.modules
        assert (many.observations == first.observations[0]).all()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=120)


# -- random numbers --------------------------------------------------------------------------------


def numpy_state(generator: NDArray[np.uint64]) -> dict[str, Any]:
    """The state of a compiled generator in NumPy's form."""
    low, high, low_increment, high_increment, spare, has_spare = map(int, generator)
    return {
        "bit_generator": "PCG64",
        "state": {"state": low | high << 64, "inc": low_increment | high_increment << 64},
        "has_uint32": has_spare,
        "uinteger": spare,
    }


def test_compiled_generators_draw_what_numpy_draws() -> None:
    compiled, pool = np.zeros(6, np.uint64), np.zeros(4, np.uint32)
    rng = np.random.default_rng(0)
    drawn = [int(seed) for seed in rng.integers(0, 2**64, 200, dtype=np.uint64)]
    for seed in [0, 1, 2**32 - 1, 2**32, 2**64 - 1, *drawn]:
        compiled_random.seed_generator(compiled, np.uint64(seed), pool)
        expected = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
        for number in range(30):
            if number % 3 == 0:
                assert compiled_random.random(compiled) == expected.random()
            elif number % 3 == 1:
                assert compiled_random.random_index(compiled, 13) == expected.integers(13)
            else:
                assert compiled_random.uniform(compiled, -0.3, 0.7) == expected.uniform(-0.3, 0.7)
        # Half of the draws of so large a range are rejected.
        assert compiled_random.random_index(compiled, 2**31 + 1) == expected.integers(2**31 + 1)
        assert numpy_state(compiled) == expected.bit_generator.state


def test_compiled_philox_draws_what_numpy_draws() -> None:
    rng, got = np.random.default_rng(1), np.zeros(4)
    for _ in range(100):
        key, counter = (int(word) for word in rng.integers(0, 2**62, 2))
        stream = int(rng.integers(1000))
        philox = np.random.Philox(key=np.array([key, stream], np.uint64)).advance(counter)
        compiled_random.philox_block(np.uint64(key), np.uint64(stream), np.uint64(counter), got)
        assert np.array_equal(got, np.random.Generator(philox).random(4))


# -- the cache --------------------------------------------------------------------------------


def test_the_digest_of_code_sees_functions_that_are_called() -> None:
    def program(body: str) -> Any:
        scope: dict[str, Any] = {}
        exec(f"K = 2\ndef helper(x):\n    return {body}\ndef step(x):\n    return helper(x) + K", scope)
        return scope["step"]

    assert code_digest(program("x + 1")) == code_digest(program("x + 1"))
    assert code_digest(program("x + 1")) != code_digest(program("x + 2"))
    changed = program("x + 1")
    changed.__globals__["K"] = 3
    assert code_digest(changed) != code_digest(program("x + 1"))
