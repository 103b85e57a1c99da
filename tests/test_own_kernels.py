"""Kernels that users declare for environment classes of their own give the bits of these, or are not used."""

from __future__ import annotations

import logging
import math
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation, TimeLimit
from marks import slow_after
from numpy.typing import NDArray
from own_environments import (
    INTEGRATOR,
    OWN,
    BatchIntegrator,
    Gambler,
    Integrator,
    Swing,
    Walker,
    integrate,
    integrate_batch,
    swing,
)
from test_kernels import check_same, random_actions, start_states, walk

import planvec
from planvec import EnvError, PlanEnv, UnsupportedEnvError
from planvec.codecs import registered_codecs
from planvec.kernels.digests import has_full_digest
from planvec.kernels.own import declared
from planvec.vector import EnvPool

each_class = pytest.mark.parametrize(
    "env_class",
    [pytest.param(own, marks=[pytest.mark.slow] * (own in (Gambler, Walker))) for own in OWN],
)
both_kinds = pytest.mark.parametrize(
    ("declare", "step"), [(planvec.kernel, integrate), (planvec.batch_kernel, integrate_batch)]
)


def pair(make_env: Any, **options: Any) -> tuple[PlanEnv, PlanEnv]:
    """The same environment without and with its kernel."""
    return PlanEnv(make_env, compiled=False, **options), PlanEnv(make_env, compiled=True, **options)


@pytest.fixture
def own_class() -> Iterator[type[Integrator]]:
    """A class of the test's own, without a kernel."""

    class Own(Integrator):
        pass

    yield Own
    declared._kernels.pop(Own, None)


def why_not(env_class: Any, **options: Any) -> str:
    """Why the kernel of a class is not used."""
    with pytest.raises(UnsupportedEnvError) as error:
        PlanEnv(env_class, compiled=True, **options)
    return str(error.value)


# -- the same bits --------------------------------------------------------------------------------


@each_class
def test_steps_have_the_bits_of_the_environment(env_class: Any) -> None:
    plain, compiled = pair(env_class)
    for arguments, expected in walk(plain, np.random.default_rng(1), 30):
        check_same(expected, compiled.step_batch(**arguments))


@each_class
def test_rollouts_have_the_bits_of_the_environment(env_class: Any) -> None:
    plain, compiled = pair(env_class)
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


@each_class
def test_time_limits_truncate_and_absorb(env_class: Any) -> None:
    plain, compiled = pair(lambda: TimeLimit(env_class(), 7))
    for arguments, expected in walk(plain, np.random.default_rng(3), 12):
        got = compiled.step_batch(**arguments)
        check_same(expected, got)
    assert got.truncated.any()
    states = start_states(plain)
    rollout = {"horizon": 9, "action_seed": 1}
    check_same(plain.rollout_batch(states, **rollout), compiled.rollout_batch(states, **rollout))


@each_class
def test_results_do_not_depend_on_the_size_of_the_batch(env_class: Any) -> None:
    env = PlanEnv(env_class, compiled=True)
    states = np.resize(start_states(env, 50), 20_000)
    actions = random_actions(env, np.random.default_rng(4), len(states))
    whole = env.step_batch(actions, states)
    for rows in (slice(0, 1), slice(7, 20), slice(100, 4300)):
        part = env.step_batch(actions[rows], states[rows])
        assert part.new_states is not None
        assert whole.new_states is not None
        assert part.new_states.tobytes() == whole.new_states[rows].tobytes()
        assert part.rewards.tobytes() == whole.rewards[rows].tobytes()


def test_random_rollouts_of_many_rows_draw_the_actions_of_each_row() -> None:
    plain, compiled = pair(BatchIntegrator)
    states = np.resize(start_states(plain, 50), 17_000)  # more than are drawn at once
    rollout = {"horizon": 3, "action_seed": 9}
    check_same(plain.rollout_batch(states, **rollout), compiled.rollout_batch(states, **rollout))


@pytest.mark.slow
def test_infos_are_those_that_were_asked_for() -> None:
    for keys in (None, (), ("is_rich",), ("absent",)):
        plain, compiled = pair(Gambler, info_keys=keys)
        states = start_states(plain, 20)
        actions = random_actions(plain, np.random.default_rng(0), 20)
        check_same(plain.step_batch(actions, states), compiled.step_batch(actions, states))


def test_states_without_draws_hold_no_generator_and_are_deterministic() -> None:
    integrator, gambler = PlanEnv(Integrator, compiled=False), PlanEnv(Gambler, compiled=False)
    assert "generator" not in (integrator.state_dtype.names or ())
    assert not integrator.is_stochastic
    assert gambler.is_stochastic


@pytest.mark.slow
def test_the_kernel_is_a_stage_of_the_check() -> None:
    report = planvec.check_env(Gambler, num_steps=60, num_restores=20)
    assert re.fullmatch(r"used: compared in [\d,]+ steps and in rollouts, with the same bits", report.kernel)
    assert report.exact, report


@pytest.mark.parametrize("env_class", [Integrator, Swing])
def test_planners_plan_the_same(env_class: Any) -> None:
    planner: planvec.Planner = planvec.MCTS(num_simulations=60)
    if env_class is Integrator:
        planner = planvec.CEM(horizon=5, num_trajectories=32)
    plans = [planner.plan(env, env.get_state(), seed=3) for env in pair(env_class)]
    assert np.array_equal(plans[0].action, plans[1].action)
    assert plans[0].value == plans[1].value


# -- where it is used --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("method", ["template", "spawn"])
@pytest.mark.parametrize("env_class", [Gambler, Swing])
def test_workers_use_the_kernel(env_class: Any, method: str) -> None:
    plain = PlanEnv(env_class, compiled=False)
    states = start_states(plain, 40)
    actions = random_actions(plain, np.random.default_rng(0), len(states))
    with planvec.make(env_class, num_workers=2, compiled=True, start_method=method) as workers:
        check_same(plain.step_batch(actions, states), workers.step_batch(actions, states))


def test_a_class_with_a_kernel_needs_no_workers(own_class: Any) -> None:
    with planvec.make(Integrator) as env:
        assert env.num_workers == 0
    with planvec.make(own_class, num_workers=None, compiled=False) as env:
        assert env.num_workers > 0


@both_kinds
def test_a_subclass_has_no_kernel(declare: Any, step: Any, own_class: Any) -> None:
    declare(own_class, **INTEGRATOR)(step)
    PlanEnv(own_class, compiled=True)

    class Heavier(own_class):  # type: ignore[misc]
        pass

    assert "none for Heavier" in why_not(Heavier)


def test_a_wrapper_that_takes_part_keeps_the_environment_at_work() -> None:
    assert "a wrapper takes part" in why_not(lambda: FrameStackObservation(Integrator(), 2))

    class Unknown(gymnasium.Wrapper[Any, Any, Any, Any]):
        pass

    env = PlanEnv(lambda: Unknown(Integrator()))
    assert env.step_batch([[0.0], [1.0]], np.repeat(env.get_state(), 2)).rewards.shape == (2,)


def test_a_codec_of_the_user_saves_the_states_of_the_kernel(own_class: Any) -> None:
    class Own(planvec.Codec):
        dtype = np.dtype([("where", "f8"), ("speed", "f8")])
        draws = False

        def get(self, env: Any) -> Any:
            return env.position, env.velocity

        def set(self, env: Any, value: Any) -> None:
            env.position, env.velocity = value

        def observe(self, env: Any) -> Any:
            return env._observation()

    planvec.register_codec(own_class, Own)
    planvec.kernel(own_class, state=("where", "speed"), constants=INTEGRATOR["constants"])(integrate)
    env = PlanEnv(own_class, compiled=True)
    kernel = env.stepper.kernel._kernel
    env.step_batch(np.zeros((3, 1), np.float32), np.repeat(env.get_state(), 3))
    assert env.stepper.kernel._kernel is kernel
    assert env.state_dtype.names is not None
    assert env.state_dtype.names[:2] == ("where", "speed")
    assert registered_codecs().envs[own_class] is Own


@pytest.mark.slow
@pytest.mark.parametrize("env_class", [Integrator, BatchIntegrator])
def test_constants_that_are_changed_after_opening_count(env_class: Any, monkeypatch: Any) -> None:
    plain, compiled = pair(env_class)
    states, actions = start_states(plain), np.ones((200, 1), np.float32)
    for name, value in (("force", 4.0), ("force", 2), ("offset", np.float64(-0.5)), ("limit", 0.2)):
        before = compiled.step_batch(actions, states)
        for env in (plain, compiled):
            setattr(env.env.unwrapped, name, value)
        after = compiled.step_batch(actions, states)
        check_same(plain.step_batch(actions, states), after)
        assert before.new_states.tobytes() != after.new_states.tobytes()  # type: ignore[union-attr]
        assert compiled.stepper.kernel.is_used


def test_an_environment_is_what_it_was_when_it_was_opened() -> None:
    """What a program replaces later does not count, but for the constants of the kernel."""
    compiled = PlanEnv(Integrator, compiled=True)
    states, actions = start_states(compiled), np.ones((200, 1), np.float32)
    before = compiled.step_batch(actions, states)
    compiled.env.unwrapped._observation = lambda: np.zeros(2, np.float32)  # type: ignore[attr-defined]
    check_same(before, compiled.step_batch(actions, states))
    assert compiled.stepper.kernel.is_used


@pytest.mark.slow
def test_a_constant_that_becomes_minus_zero_counts(own_class: Any) -> None:
    """It has other bits, though it is equal to zero; so have the results of a kernel."""

    class Signed(own_class):  # type: ignore[misc]
        zero = 0.0

        def step(self, action: Any) -> Any:
            return self._observation(), math.copysign(1.0, self.zero), False, False, {}

    planvec.kernel(Signed, state=("position", "velocity"), constants="zero")(
        lambda state, action, constants: (state, math.copysign(1.0, constants[0]), False)
    )
    compiled = PlanEnv(Signed, compiled=True)
    states, actions = start_states(compiled), np.zeros((200, 1), np.float32)
    assert (compiled.step_batch(actions, states).rewards == 1.0).all()
    Signed.zero = -0.0
    assert (compiled.step_batch(actions, states).rewards == -1.0).all()
    assert compiled.stepper.kernel.is_used
    declared._kernels.pop(Signed)


class Dice(Integrator):
    """Has states of an integer that steps draw, a table, and a division that fails at one state."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.table = np.linspace(-1.0, 1.0, 50_000)

    def _observation(self) -> Any:
        return np.array([float(self.total)])

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        gymnasium.Env.reset(self, seed=seed)
        self.total = 1000 + int(self.np_random.integers(6))
        return self._observation(), {}

    def step(self, action: Any) -> Any:
        self.total += int(self.np_random.integers(6)) if action else -1
        share = 1.0 / (self.total + 5000) if self.total != -5000 else -1.0
        reward = float(self.table[min(self.total, 49_999)]) + share
        return self._observation(), reward, False, False, {}


@planvec.kernel(Dice, state="total", constants="table")
def roll(state: Any, action: Any, constants: Any, random: Any) -> Any:
    """The step of `Dice`, apart from its exceptions."""
    total = state[0] + (random.integers(6) if action else -1)
    return (total,), constants[0][total] + 1.0 / (total + 5000), False


class Counted(Integrator):
    """Counts its steps, and has a further reward somewhere."""

    where = ""

    def __init__(self) -> None:
        super().__init__()
        self.limit = 1e9

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.count = 0
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        self.count += 1
        observation, reward, *rest = super().step(action)
        is_met = {"bound": action[0] >= 1.0, "zero": action[0] == 0.0, "late": self.count > 1990}
        return observation, reward + is_met.get(self.where, 0.0), *rest


def count_steps(state: Any, action: Any, constants: Any) -> Any:
    """The step of `Counted`, without the further reward."""
    position, velocity, count = state
    velocity = velocity + 0.1 * (constants[0] * np.float64(action[0]))
    position = position + 0.1 * velocity
    reward = -abs(position) - 0.01 * velocity * velocity
    return (position, velocity, count + 1), reward + 0.0, abs(position) > constants[1]


@pytest.mark.slow
@pytest.mark.parametrize("where", ["late", "bound", "zero", ""])
def test_a_kernel_that_differs_at_a_bound_or_late_is_refused(where: str) -> None:
    class Own(Counted):
        pass

    Own.where = where
    planvec.kernel(
        Own,
        state=("position", "velocity", "count"),
        constants=("force", "limit"),
        observe=lambda state: (state[0], state[1]),
    )(count_steps)
    try:
        if where:
            assert "expected rewards" in why_not(Own)
        else:
            PlanEnv(Own, compiled=True)
    finally:
        declared._kernels.pop(Own)


def test_errors_in_a_kernel_leave_rows_to_the_environment() -> None:
    """Divisions by zero, and indices that are out of bounds: compiled code would read other memory."""
    plain, compiled = pair(Dice)
    states = start_states(plain)[:4]
    states["total"] = [-4999, 49_999, 10**9, 1000]
    check_same(plain.step_batch([0, 1, 0, 1], states), compiled.step_batch([0, 1, 0, 1], states))
    one, other = (env.rollout_batch(states, 50, action_seed=1) for env in (plain, compiled))
    check_same(one, other)
    assert compiled.stepper.kernel.is_used


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"rollout_horizon": 0}, {"rollout_horizon": 20}, {"chance": "open_loop"}]
)
def test_a_compiled_search_plans_the_same_where_a_kernel_raises(options: Any) -> None:
    plans, trees = [], []
    for env in pair(Dice):
        state = start_states(env)[:1]
        state["total"] = -4998
        planner = planvec.MCTS(num_simulations=500, **options)
        plans.append([planner.plan(env, state[0], seed=seed) for seed in range(3)])
        trees.append([plan.search_data.arrays.named() for plan in plans[-1]])
    for one, other in zip(*trees, strict=True):
        count = one["counters"][0]
        for name in ("visits", "values", "edge_visits", "edge_values"):
            np.testing.assert_array_equal(one[name][:count], other[name][:count])
    assert [plan.num_env_steps for plan in plans[0]] == [plan.num_env_steps for plan in plans[1]]


@pytest.mark.slow
def test_a_second_declaration_replaces_the_first(own_class: Any) -> None:
    planvec.kernel(own_class, **INTEGRATOR)(lambda state, action, constants: (state, 0.0, False))
    assert "expected" in why_not(own_class)
    planvec.kernel(own_class, **INTEGRATOR)(integrate)
    PlanEnv(own_class, compiled=True)


@pytest.mark.slow
def test_a_kernel_of_a_script_reaches_new_processes() -> None:
    """A cell of a notebook is run twice with another constant: nothing of the first run is left."""
    program = """
        import gymnasium, numpy as np, planvec
        cell = '''
        class Counter(gymnasium.Env):
            observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
            action_space = gymnasium.spaces.Discrete(2)
            def reset(self, *, seed=None, options=None):
                super().reset(seed=seed)
                self.total = 0.0
                return np.array([self.total]), {}
            def step(self, action):
                self.total += RATE * float(action)
                return np.array([self.total]), RATE, self.total > 9.0, False, {}

        @planvec.kernel(Counter, state="total")
        def step(state, action):
            total = state[0] + RATE * action
            return (total,), RATE, total > 9.0
        '''
        import textwrap
        for RATE in (0.5, 0.25):
            exec(textwrap.dedent(cell))
            for method in ("spawn", "template"):
                with planvec.make(Counter, num_workers=1, start_method=method, compiled=True) as env:
                    states = np.repeat(env.get_state(), 3)
                    assert env.step_batch([0, 1, 1], states).rewards.tolist() == [RATE] * 3
                    assert env.rollout_batch(states, 4, action_seed=0).returns.tolist() == [4 * RATE] * 3
        print("done")
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, timeout=110, capture_output=True, text=True, check=False)
    assert done.stdout == "done\n", done.stderr


def test_a_small_program_imports_no_numba() -> None:
    program = """
        import sys
        sys.path.insert(0, sys.argv[1])
        import own_environments, planvec
        env = planvec.PlanEnv(own_environments.Swing, compiled=True)
        env.step_batch([0, 1])
        assert "numba" not in sys.modules
    """
    folder = str(__file__).rpartition("/")[0]
    subprocess.run([sys.executable, "-c", textwrap.dedent(program), folder], check=True, timeout=60)


# -- wrong kernels ------------------------------------------------------------------------------------


def late(state: Any, action: Any, constants: Any) -> Any:
    """As `integrate`, but an episode ends at one side only."""
    position, velocity = state
    force, limit, offset = constants
    velocity = velocity + 0.1 * (force * np.float64(action[0]) + offset)
    position = position + 0.1 * velocity
    reward = -abs(position) - 0.01 * velocity * velocity
    return (position, velocity), reward, position > limit


def rounded(state: Any, action: Any, constants: Any) -> Any:
    """As `integrate`, but in single precision in one place."""
    position, velocity = state
    force, limit, offset = constants
    velocity = velocity + 0.1 * (force * action[0] + offset)
    position = position + np.float32(0.1) * velocity
    reward = -abs(position) - 0.01 * velocity * velocity
    return (position, velocity), reward, abs(position) > limit


@pytest.mark.parametrize(
    ("step", "text"),
    slow_after(
        6,
        [
            (
                lambda state, action: (state, 0.0),
                r"step of Own: expected \(state, reward, terminated\), got 2 results",
            ),
            (lambda state, action: (state, 0.0, False, 1.0), "got 4 results; infos= names the fourth"),
            (lambda state, action: ((0.0,), 0.0, False), "a state of 2 entries .*velocity.*, got 1 entries"),
            (lambda state, action: ((state, 0.0), 0.0, False), "expected position of type float64, got"),
            (lambda state, action: (state, "much", False), "expected a number as reward, got Literal"),
            (
                lambda state, action: state.position,
                r"numba cannot compile step of Own \(.*line \d+\).*batch_kernel",
            ),
            (late, r"in a rollout, expected state\['position'\] \S+, got \S+"),
            (rounded, r"expected state\['position'\] \S+, got \S+"),
        ],
        unpack=True,
    ),
)
def test_a_wrong_function_is_refused_and_the_message_says_what_is_wrong(
    step: Any, text: str, own_class: Any, caplog: pytest.LogCaptureFixture
) -> None:
    if "constants" not in step.__code__.co_varnames:
        planvec.kernel(own_class, state=INTEGRATOR["state"])(step)
    else:
        planvec.kernel(own_class, **INTEGRATOR)(step)
    with pytest.raises(UnsupportedEnvError, match=text):
        PlanEnv(own_class, compiled=True)
    env = PlanEnv(own_class)
    with caplog.at_level(logging.WARNING, "planvec"):
        env.stepper.kernel.load()
    assert "not used" in caplog.text
    assert env.step_batch([[0.0]], np.repeat(env.get_state(), 1)).rewards.shape == (1,)


def refuse(state: Any, action: Any) -> Any:
    raise RuntimeError("no model was trained")


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (lambda state, action: (state, 0.0), r"expected \(state, reward, terminated\), got 2 results"),
        (lambda state, action: ((state[0],), 0.0, False), "a state of 2 arrays .*, got 1 entries"),
        (
            lambda state, action: ((state[0][:1], state[1]), 0.0, False),
            r"expected position of shape \(128,\)",
        ),
        (lambda state, action: (state, np.zeros((3, 3)), False), "expected reward of shape"),
        (lambda state, action: (state, 0.0, False), r"in step 0, expected state\['position'\] \S+, got \S+"),
        (refuse, "RuntimeError: no model was trained"),
    ],
)
def test_a_wrong_function_of_batches_is_refused(step: Any, text: str, own_class: Any) -> None:
    planvec.batch_kernel(own_class, state=INTEGRATOR["state"])(step)
    with pytest.raises(UnsupportedEnvError, match=text):
        PlanEnv(own_class, compiled=True)


def test_a_function_whose_rows_depend_on_the_batch_is_refused(own_class: Any) -> None:
    def noisy(state: Any, action: Any, constants: Any) -> Any:
        after, rewards, terminated = integrate_batch(state, action, constants)
        return after, rewards * (1.0 + 2.3e-16 * (len(rewards) == 1024)), terminated

    planvec.batch_kernel(own_class, **INTEGRATOR)(noisy)
    with pytest.raises(UnsupportedEnvError, match="in a batch of 1024 rows, expected rewards"):
        PlanEnv(own_class, compiled=True)


def test_an_error_in_a_kernel_leaves_the_batch_to_the_environment(own_class: Any) -> None:
    def picky(state: Any, action: Any, constants: Any) -> Any:
        if (state[0] == 4.5).any():
            raise RuntimeError("out of the data")
        return integrate_batch(state, action, constants)

    planvec.batch_kernel(own_class, **INTEGRATOR)(picky)
    plain, compiled = pair(own_class)
    states = start_states(plain, 4)
    states["position"][2] = 4.5
    actions = np.ones((4, 1), np.float32)
    check_same(plain.step_batch(actions, states), compiled.step_batch(actions, states))


@pytest.mark.parametrize("env_class", [Integrator, BatchIntegrator])
def test_states_with_nan_are_stepped_by_the_environment(env_class: Any) -> None:
    plain, compiled = pair(env_class)
    states = start_states(plain, 4)
    states["velocity"][1] = np.nan
    actions = np.ones((4, 1), np.float32)
    for dt in (1, 3):
        check_same(plain.step_batch(actions, states, dt), compiled.step_batch(actions, states, dt))


def test_a_function_cannot_change_the_constants(own_class: Any) -> None:
    def remember(state: Any, action: Any, constants: Any) -> Any:
        constants[0][0] += 1.0
        return integrate_batch(state, action, (3.0, 5.0, 0.0))

    planvec.batch_kernel(own_class, state=("position", "velocity"), constants=lambda env: np.zeros(1))(
        remember
    )
    with pytest.raises(UnsupportedEnvError, match="read-only"):
        PlanEnv(own_class, compiled=True)


@pytest.mark.parametrize("env_class", [Gambler, Walker])
def test_resident_environments_have_the_same_states(env_class: Any) -> None:
    with EnvPool([env_class, env_class], num_workers=1) as pool:
        pool.reset(seed=3)
        states = pool.get_states()
        actions = random_actions(PlanEnv(env_class), np.random.default_rng(0), 2)
        first = pool.step(actions)
        pool.set_states(states)
        again = pool.step(actions)
    assert first.rewards.tolist() == again.rewards.tolist()


class Hidden(Integrator):
    """Something besides position and velocity changes."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where
        self.bonus = 0.0
        self.memory = {"steps": [0]}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        result = super().reset(seed=seed, options=options)
        if self.where == "reset":
            self.bonus = self.np_random.uniform()
        return result

    def step(self, action: Any) -> Any:
        if self.where == "step":
            self.bonus += 1.0
        elif self.where == "nested":
            self.memory["steps"][0] += 1
        elif self.where == "rare" and abs(self.velocity) > 3.5:
            self.bonus = 1.0
        elif self.where == "draws":
            self.np_random.random()
        result = super().step(action)
        if self.where == "type" and self.velocity > 0:
            self.velocity = np.float32(self.velocity)
        return result


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("step", "attribute bonus .*state=.*ignored="),
        ("reset", "attribute bonus .*state=.*ignored="),
        ("nested", "attribute memory .*state=.*ignored="),
        ("rare", "steps of the environment change the attribute bonus"),
        ("draws", "generator np_random .*let step take `random`"),
        (
            "type",
            "Hidden.(position|velocity): expected float as after a reset, got .*float32.*NumPy rounds",
        ),
    ],
)
def test_what_changes_and_is_not_named_is_found(where: str, text: str) -> None:
    planvec.kernel(Hidden, **INTEGRATOR)(integrate)
    with pytest.raises(UnsupportedEnvError, match=text):
        PlanEnv(lambda: Hidden(where), compiled=True)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"state": ("positon", "velocity")},
            "state: expected names of attributes of Own, .*'position'.*'positon'",
        ),
        ({"state": ("position", "_observation")}, "numbers or arrays of numbers, got _observation"),
        ({"constants": ("force", "limit", "ofset")}, "constants: expected names of attributes.*'ofset'"),
        ({"constants": ("force", "limit", "spec")}, "constants: spec: expected a number or an array .*None"),
        ({"observe": lambda state: state[0]}, "observe.* does not give the observation of a reset"),
        (
            {"observe": lambda state: (state[0], state[0])},
            "`observe` does not give the observation of a reset",
        ),
    ],
)
def test_wrong_declarations_are_refused_when_an_environment_is_opened(
    arguments: Any, text: str, own_class: Any
) -> None:
    planvec.kernel(own_class, **{**INTEGRATOR, **arguments})(integrate)
    with pytest.raises(UnsupportedEnvError, match=text):
        PlanEnv(own_class, compiled=True)


@pytest.mark.parametrize(
    ("arguments", "step", "text"),
    [
        ({"state": ()}, integrate, "state: expected names of attributes, got none"),
        ({"state": ("position", "position")}, integrate, "state: expected different names"),
        ({"state": "position"}, 3, "step: expected a function, got 3"),
        (
            {"state": "position"},
            lambda state: state,
            "step: expected a function of state, action and perhaps",
        ),
        (
            {"state": "position"},
            lambda state, action, gravity: state,
            r"got one of \(state, action, gravity\)",
        ),
        ({"state": "position", "observe": lambda x: x}, integrate, "observe: expected a function of state"),
    ],
)
def test_wrong_arguments_of_the_decorators_are_type_errors(arguments: Any, step: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        planvec.kernel(Integrator, **arguments)(step)
    with pytest.raises(TypeError, match="env_class: expected a subclass of gymnasium.Env"):
        planvec.batch_kernel(int, state="position")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="perhaps constants, by these names"):
        planvec.batch_kernel(Integrator, state="position")(lambda state, action, random: None)


# -- the cache, and random numbers -----------------------------------------------------------------------


class _Settings:
    rate = 0.5


def test_only_functions_whose_digest_covers_everything_are_cached_on_disk() -> None:
    table, settings = np.arange(3), _Settings()
    assert has_full_digest(integrate, integrate_batch, swing, lambda x: x + table[0])
    assert not has_full_digest(lambda x: x + settings.rate)
    assert not has_full_digest(lambda x: textwrap.dedent(x))


def test_random_draws_normal_numbers_as_numpy_does() -> None:
    from numba import njit

    from planvec.kernels import random as compiled_random

    @njit
    def draw(words: Any, out: Any) -> None:
        for index in range(len(out)):
            out[index] = compiled_random.standard_normal(words)

    words, out = np.zeros(6, np.uint64), np.empty(200_000)  # tails are drawn in 1 of 4,000
    compiled_random.seed_generator(words, np.uint64(7), np.zeros(4, np.uint32))
    draw(words, out)
    assert np.array_equal(out, np.random.Generator(np.random.PCG64(7)).standard_normal(200_000))


@pytest.mark.slow
def test_a_state_at_which_the_environment_raises_raises() -> None:
    plain, compiled = pair(Walker)
    states: NDArray[Any] = start_states(plain, 3)
    states["angles"][1, 3] = np.inf
    for env in (plain, compiled):
        with pytest.raises(EnvError, match="math domain error|expected a finite") as error:
            env.step_batch(np.ones((3, 2)), states)
        assert error.value.row == 1


class ManyEngines(gymnasium.Env[Any, Any]):
    """Its actions have more numbers than a field that is passed number by number."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Box(-1.0, 1.0, (20,), np.float64)

    def __init__(self) -> None:
        self.height = 5.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.height = 5.0
        return np.array([self.height]), {}

    def step(self, action: Any) -> Any:
        self.height = self.height + float(action[3]) - float(action[19])
        return np.array([self.height]), -1.0, bool(self.height < 0.0), False, {}


def test_a_long_action_is_a_tuple_of_numbers() -> None:
    @planvec.kernel(ManyEngines, state=("height",))
    def step(state: Any, action: Any) -> Any:
        height = state[0] + action[3] - action[19]
        return (height,), -1.0, height < 0.0

    plain, compiled = (PlanEnv(ManyEngines, compiled=flag) for flag in (False, True))
    states = start_states(plain, 8)
    check_same(
        plain.rollout_batch(states, 30, action_seed=1), compiled.rollout_batch(states, 30, action_seed=1)
    )
