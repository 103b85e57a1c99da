"""What is saved, what is refused, and how users teach planvec their own environments."""

from __future__ import annotations

import functools
import importlib.util
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import generators
import gymnasium
import numba
import numpy as np
import pytest
from compare import assert_same, same_states
from environments import (
    STATEFUL,
    EzRocket,
    GlobalRandomness,
    HiddenGenerator,
    Momentum,
    Unpicklable,
    Warehouse,
)
from gymnasium import spaces, wrappers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from marks import slow_after

import planvec
from planvec import PlanEnv
from planvec.codecs import selection
from planvec.codecs.compare import same
from planvec.codecs.generic.copied import CopiedCodec
from planvec.envs.sources import make_env


@pytest.fixture
def _clean_registry() -> Iterator[None]:
    before = selection.registered_codecs()
    yield
    selection._envs.clear()
    selection._wrappers.clear()
    before.install()


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (HiddenGenerator, "HiddenGenerator.draw: a random generator is hidden inside this function"),
        (GlobalRandomness, "draw from the global generator of `random`.*Draw from self.np_random"),
        (Unpicklable, r"Unpicklable.file: TextIOWrapper cannot be pickled.*planvec.Copied\(\[\"file\"\]\)"),
        (
            lambda: wrappers.RenderCollection(
                gymnasium.make("CartPole-v1", render_mode="rgb_array_list").env
            ),
            'RenderCollection collects the frames.*render_mode="rgb_array"',
        ),
    ],
)
def test_what_cannot_be_saved_faithfully_is_refused_with_the_fix(
    factory: Callable[[], Any], message: str
) -> None:
    with pytest.raises(planvec.UnsupportedEnvError, match=message):
        PlanEnv(factory)
    with pytest.raises(planvec.UnsupportedEnvError, match=message):
        planvec.make(factory, num_workers=1, start_method="fork")


class Noisy(gymnasium.Env[Any, Any]):
    """Holds the global generator of NumPy, as frozen distributions of SciPy do."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, draws: Callable[[Any], float]) -> None:
        self.noise = np.random.mtrand._rand
        self.draws = draws

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        value = self.draws(self) if self.count > 300 else self.np_random.normal()
        return np.array([value]), 0.0, False, False, {}


GENERATOR, OLD_GENERATOR = np.random.default_rng(0), np.random.RandomState(0)
OF_NUMPY, OF_PYTHON = "the global generator of `numpy.random`", "the global generator of `random`"


@numba.njit
def compiled_draw() -> float:
    return np.random.rand()  # type: ignore[no-any-return] # noqa: NPY002


DRAWS = [
    (lambda env: env.noise.random_sample(), OF_NUMPY),
    (lambda env: np.random.rand(), OF_NUMPY),  # noqa: NPY002
    (lambda env: np.random.normal(), OF_NUMPY),  # noqa: NPY002
    (lambda env: random.random(), OF_PYTHON),
    (lambda env: random.gauss(0, 1), OF_PYTHON),
    (lambda env: sum(random.random() for _ in range(312)), OF_PYTHON),  # as many words as it has
    (lambda env: compiled_draw(), f"{OF_NUMPY} in numba"),
    (lambda env: GENERATOR.random(), "the generator of test_codecs.GENERATOR"),
    (lambda env: float(GENERATOR.integers(9, dtype=np.int32)), "the generator of test_codecs.GENERATOR"),
    (lambda env: OLD_GENERATOR.normal(), "the generator of test_codecs.OLD_GENERATOR"),
    (lambda env: float(env.action_space.sample()), r"the generator of .*action_space"),
    (lambda env: generators.GENERATOR.random(), "the generator of generators.GENERATOR"),
    (lambda env: generators.draw(), "the generator of generators.GENERATOR"),
    (lambda env: draw_by_another_function(), r"the generator of generators.HELD\['inside'\]\[0\]"),
]


def draw_by_another_function() -> float:
    return generators.draw_from_held()


def late_states(env: Any) -> np.ndarray:
    late: np.ndarray = env.rollout_batch(np.array([env.reset(seed=0).state]), horizon=300).final_states
    return late


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize(("draw", "generator"), DRAWS)
def test_the_first_draw_from_another_generator_is_an_error_however_late_it_is(
    draw: Callable[[Any], float], generator: str, num_workers: int
) -> None:
    message = f"Noisy: its steps draw from {generator}, which is no part of the environment"
    with planvec.make(lambda: Noisy(draw), num_workers=num_workers) as env:
        late = late_states(env)
        for _ in range(3):  # of pairs of normal deviates, one is left from the first
            with pytest.raises(planvec.UnsupportedEnvError, match=message):
                env.step_batch([0], late)
        with pytest.raises(planvec.UnsupportedEnvError, match=message):
            env.rollout_batch(late, horizon=1)


def test_a_draw_is_noticed_after_the_program_has_replaced_the_bit_generator() -> None:
    with planvec.PlanEnv(lambda: Noisy(lambda env: np.random.rand())) as env:  # noqa: NPY002
        late, before = late_states(env), np.random.get_bit_generator()
        np.random.set_bit_generator(np.random.PCG64(3))
        try:
            with pytest.raises(planvec.UnsupportedEnvError, match=OF_NUMPY):
                env.step_batch([0], late)
        finally:
            np.random.set_bit_generator(before)


# A step calls the last one and removes it: as a signal handler would come.
HOOKS: list[Callable[[], float]] = []


def hooked(env: Any) -> float:
    if HOOKS:
        HOOKS.pop()()
    return float(env.np_random.normal())


@pytest.fixture
def _idle_thread() -> Iterator[None]:
    is_over = threading.Event()
    thread = threading.Thread(target=is_over.wait)
    thread.start()
    yield
    is_over.set()
    thread.join()


@pytest.mark.usefixtures("_idle_thread")
def test_others_may_draw_while_an_environment_is_stepped() -> None:
    with planvec.PlanEnv(lambda: Noisy(hooked)) as env:
        late = late_states(env)
        first = env.step_batch([0], late, seeds=[5])
        for draw in (random.random, lambda: random.gauss(0, 1), np.random.rand, env.action_space.sample):
            HOOKS.append(draw)
            again = env.step_batch([0], late, seeds=[5])
            assert not HOOKS
            np.testing.assert_array_equal(again.observations, first.observations)


@pytest.mark.usefixtures("_idle_thread")
@pytest.mark.parametrize(("draw", "generator"), DRAWS)
def test_draws_without_influence_are_noticed_beside_a_thread(
    draw: Callable[[Any], float], generator: str
) -> None:
    with planvec.PlanEnv(lambda: Noisy(lambda env: 0 * draw(env))) as env:
        late = late_states(env)
        for _ in range(3):
            with pytest.raises(planvec.UnsupportedEnvError, match=generator):
                env.step_batch([0], late)


class Reseeding(Noisy):
    """Replaces a generator of its module in each reset."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        generators.GENERATOR = np.random.default_rng(seed)
        return super().reset(seed=seed)


def test_a_generator_is_watched_that_a_reset_has_replaced() -> None:
    with planvec.PlanEnv(lambda: Reseeding(lambda env: generators.draw())) as env:
        late = late_states(env)
        with pytest.raises(planvec.UnsupportedEnvError, match="the generator of generators.GENERATOR"):
            env.step_batch([0], late)


TABLE: list[float] = []


def test_what_a_step_has_drawn_once_and_kept_in_its_module_is_noticed() -> None:
    def draw(env: Any) -> float:
        if not TABLE:
            TABLE.append(random.random())
        return TABLE[0]

    with planvec.PlanEnv(lambda: Noisy(draw)) as env:
        late = late_states(env)
        with pytest.raises(planvec.UnsupportedEnvError, match=r"its steps change test_codecs.TABLE"):
            env.step_batch([0], late)


class NoisyInfo(Noisy):
    """Draws for its info alone."""

    def step(self, action: Any) -> Any:
        *outcome, _ = super().step(action)
        return *outcome, {"noise": random.random() if self.count > 300 else 0.0}


@pytest.mark.usefixtures("_idle_thread")
@pytest.mark.parametrize("factory", [NoisyInfo, lambda draws: Noisy(lambda env: random.random() * 0 + 1)])
def test_draws_are_noticed_beside_a_thread_whatever_depends_on_them(factory: Callable[[Any], Any]) -> None:
    with planvec.PlanEnv(lambda: factory(lambda env: env.np_random.normal())) as env:
        late = late_states(env)
        with pytest.raises(planvec.UnsupportedEnvError, match=OF_PYTHON):
            env.step_batch([0], late)


def test_a_step_may_seed_a_global_generator_and_draw_from_it() -> None:
    def draw(env: Any) -> float:
        random.seed(env.count)
        return random.random()

    with planvec.PlanEnv(lambda: Noisy(draw)) as env:
        late = late_states(env)
        values = {float(env.step_batch([0], late).observations[0, 0]) for _ in range(3)}
        assert len(values) == 1


class NoisyReset(Noisy):
    """Draws in resets with options, after it has seeded the generator if they say so."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        observation, info = super().reset(seed=seed)
        if options:
            if options["seeds"]:
                random.seed(seed)
            if options.get("in_info"):
                info = {"noise": random.random()}
            else:
                draw = random.random()
                observation[0] = draw < options["limit"] if "limit" in options else draw
        return observation, info


def test_a_reset_that_draws_from_a_global_generator_must_seed_it() -> None:
    with planvec.PlanEnv(lambda: NoisyReset(lambda env: 0.0)) as env:
        seeded = [float(env.reset(seed=3, options={"seeds": True}).observation[0]) for _ in range(3)]
        assert len({*seeded}) == 1
        env.reset(seed=3, options={"seeds": False, "limit": 2.0})  # without influence
        for more in ({"limit": 0.5}, {"in_info": True}):
            with pytest.raises(planvec.PlanvecError, match=OF_PYTHON):
                env.reset(seed=3, options={"seeds": False, **more})


def test_the_check_looks_for_draws_from_other_generators() -> None:
    report = planvec.check_env(lambda: Noisy(lambda env: random.random()), num_steps=1300, num_restores=4)
    assert OF_PYTHON in report.error


def test_the_check_accepts_steps_that_seed_a_generator() -> None:
    def draw(env: Any) -> float:
        random.seed(env.count)
        return random.random()

    assert planvec.check_env(lambda: Noisy(draw), num_steps=1300, num_restores=4).exact


def test_a_global_generator_may_be_held() -> None:
    with planvec.PlanEnv(lambda: Noisy(lambda env: env.np_random.normal())) as env:
        late = env.rollout_batch(np.array([env.reset(seed=0).state]), horizon=300).final_states
        np.random.seed(3)  # noqa: NPY002 # the program may draw between two calls
        first = env.step_batch([0], late, seeds=[5])
        np.random.seed(4)  # noqa: NPY002
        assert env.env.unwrapped.noise is np.random.mtrand._rand  # type: ignore[attr-defined]
        np.testing.assert_array_equal(env.step_batch([0], late, seeds=[5]).observations, first.observations)


def test_an_attribute_named_constant_is_left_out() -> None:
    with PlanEnv(Unpicklable, codec=planvec.Copied(["file"])) as env:
        out = env.step_batch([0, 1])
        assert out.rewards[0] == out.rewards[1]
    with pytest.raises(
        planvec.UnsupportedEnvError,
        match=r"constants: expected names of attributes of Unpicklable.*got \['disk'\]",
    ):
        PlanEnv(Unpicklable, codec=planvec.Copied(["file", "disk"]))


class NotesTheTime(gymnasium.Env):
    """Notes the time of the last step, which has no influence on results."""

    observation_space = spaces.Discrete(100)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.position = 0
        self.last_call = time.perf_counter()
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.position += int(action)
        self.last_call = time.perf_counter()
        return self.position, 1.0, self.position > 90, False, {}


def test_an_attribute_that_reset_sets_can_be_left_out_as_the_message_says() -> None:
    with pytest.raises(planvec.UnsupportedEnvError, match=r'codec=planvec\.Copied\(\["last_call"\]\)'):
        PlanEnv(NotesTheTime)
    for num_workers in (0, 1):
        with planvec.make(NotesTheTime, num_workers=num_workers, codec=planvec.Copied(["last_call"])) as env:
            out = env.step_batch([0, 1], np.repeat(env.reset(seed=0).state, 2), dt=3)
            assert out.observations.tolist() == [0, 3]
    with pytest.raises(planvec.UnsupportedEnvError, match=r"got \['last_cal'\]"):
        PlanEnv(NotesTheTime, codec=planvec.Copied(["last_cal"]))
    with pytest.raises(TypeError, match=r"constants: expected a list of names.*pass \['last_call'\]"):
        planvec.Copied("last_call")


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(
        planvec.UnsupportedEnvError, match='codec: expected None, "copied", "replay".*got .pickle.'
    ):
        PlanEnv("CartPole-v1", codec="pickle")


class Counting(gymnasium.Env):
    """Episodes after the first are longer: memory that outlives a reset."""

    observation_space = spaces.Discrete(1000)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.episodes = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.episodes += 1
        self.time = 0
        return self.episodes, {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return self.episodes, 1.0, self.time >= 3 * self.episodes, False, {}


def test_every_reset_is_that_of_a_new_environment() -> None:
    with PlanEnv(Counting) as env:
        assert [env.reset(seed=0).observation for _ in range(3)] == [1, 1, 1]
    with pytest.raises(planvec.UnsupportedEnvError, match="after restoring a saved state"):
        PlanEnv(Counting, codec="replay")


class ClassMemory(Counting):
    """Counts on the class, where no copy of the instance can find it."""

    total = 0

    def step(self, action: Any) -> Any:
        type(self).total += 1
        return self.total % 1000, 1.0, False, False, {}


def test_a_copy_is_trusted_only_after_a_replay() -> None:
    with pytest.raises(planvec.UnsupportedEnvError, match=r"its steps change test_codecs.ClassMemory.total"):
        PlanEnv(ClassMemory)
    with pytest.raises(
        planvec.UnsupportedEnvError, match="after restoring a saved state, .* expected observation"
    ):
        PlanEnv(ClassMemory, codec=planvec.Copied(caches=["test_codecs.ClassMemory.total"]))


class IgnoresItsSeed(Counting):
    """Draws from np_random, which its reset does not seed."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time = 0
        return 0, {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return int(self.np_random.integers(1000)), 1.0, self.time > 20, False, {}


def test_a_reset_that_ignores_its_seed_is_refused() -> None:
    with pytest.raises(planvec.UnsupportedEnvError, match=r"super\(\).reset\(seed=seed\)"):
        PlanEnv(IgnoresItsSeed)


class Clocked(Counting):
    """Tells the time."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, {"clock": time.perf_counter(), "left": 1}


def test_an_info_that_differs_by_nature_is_named_and_can_be_left_out() -> None:
    with pytest.raises(planvec.UnsupportedEnvError, match=r"expected info\['clock'\] .*info_keys="):
        PlanEnv(Clocked)
    with PlanEnv(Clocked, info_keys=("left",)) as env:
        assert set(env.step_batch([0, 1]).infos) == {"left", "_left", "num_steps"}


class Touchy(Counting):
    """Raises for one of its actions."""

    def step(self, action: Any) -> Any:
        if action == 1:
            raise ValueError("not that one")
        return super().step(action)


def test_an_environment_that_raises_for_some_actions_can_be_opened() -> None:
    with PlanEnv(Touchy) as env:
        with pytest.raises(planvec.EnvError, match="row 1, action 1: ValueError: not that one"):
            env.step_batch([0, 1])
        assert env.step_batch([0, 0]).rewards.tolist() == [1.0, 1.0]


class Aliased(gymnasium.Wrapper):
    """Holds on to a part of the environment below."""

    def reset(self, **kwargs: Any) -> Any:
        result = super().reset(**kwargs)
        self.crates = self.unwrapped.crates  # type: ignore[attr-defined]
        return result

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward + len(self.crates), terminated, truncated, info


def test_a_wrapper_that_shares_objects_with_its_environment_is_exact() -> None:
    reference = Aliased(Warehouse())
    with PlanEnv(lambda: Aliased(Warehouse())) as env:
        assert_same(env.reset(seed=5).observation, reference.reset(seed=5)[0])
        env.action_space.seed(0)
        for _ in range(100):
            action = env.action_space.sample()
            expected = reference.step(action)
            assert_same(env.step(action)[:3], expected[:3])
            if expected[2]:
                break
            inner: Any = env.env
            assert inner.crates is inner.unwrapped.crates


# -- codecs of the user's own ----------------------------------------------------------------------


class CountingCodec(planvec.Codec):
    dtype = np.dtype([("episodes", "i8"), ("time", "i8")])
    draws = False

    def before_reset(self, env: Any) -> None:
        env.episodes = 0

    def get(self, env: Any) -> Any:
        return env.episodes, env.time

    def set(self, env: Any, value: Any) -> None:
        env.episodes, env.time = value


class ForgetfulCodec(CountingCodec):
    def set(self, env: Any, value: Any) -> None:
        env.episodes = value[0]


@pytest.mark.usefixtures("_clean_registry")
@pytest.mark.parametrize("method", slow_after(1, ["fork", "spawn"]))
def test_a_registered_codec_is_used_in_workers_too(method: str) -> None:
    planvec.register_codec(Counting, CountingCodec)
    with planvec.make(Counting, num_workers=1, start_method=method) as env:
        assert env.state_dtype.names == ("episodes", "time", "observation", "terminated", "truncated")
        out = env.step_batch([0, 1], dt=[2, 9])
        assert out.terminated.tolist() == [False, True]
        assert out.new_states["time"].tolist() == [2, 3]


def test_a_codec_that_forgets_something_is_refused() -> None:
    with pytest.raises(planvec.UnsupportedEnvError, match="ForgetfulCodec does not restore everything"):
        PlanEnv(Counting, codec=ForgetfulCodec)


def test_what_makes_no_codec_is_refused() -> None:
    with pytest.raises(
        planvec.UnsupportedEnvError, match="expected a maker of a planvec.Codec, got one of a dict"
    ):
        PlanEnv(Counting, codec=lambda env: {})  # type: ignore[arg-type, return-value]


class ClashingCodec(CountingCodec):
    dtype = np.dtype([("episodes", "i8"), ("terminated", "i8")])


def test_a_codec_whose_fields_clash_is_refused() -> None:
    with pytest.raises(planvec.UnsupportedEnvError, match="ClashingCodec.dtype: the field names"):
        PlanEnv(Counting, codec=ClashingCodec)


def test_only_environment_classes_can_be_registered() -> None:
    with pytest.raises(TypeError, match="env_class: expected a subclass of gymnasium.Env"):
        planvec.register_codec(int, CountingCodec)
    with pytest.raises(TypeError, match="codec: expected a Codec subclass"):
        planvec.register_codec(Counting, 3)  # type: ignore[arg-type]


# -- codecs of the user's own wrappers -------------------------------------------------------------


class MomentumCodec(planvec.WrapperCodec):
    dtype = np.dtype([("average", "f8"), ("num_rewards", "i8"), ("rewards", "f8", 4)])
    draws = False

    def get(self, wrapper: Any) -> Any:
        rewards = wrapper.history
        return wrapper.average, len(rewards), rewards + [0.0] * (4 - len(rewards))

    def set(self, wrapper: Any, value: Any) -> None:
        wrapper.average, num_rewards, rewards = value
        wrapper.history = [float(reward) for reward in rewards[:num_rewards]]

    def observe(self, wrapper: Any, observation: Any) -> Any:
        return observation


class ForgetfulMomentumCodec(MomentumCodec):
    def set(self, wrapper: Any, value: Any) -> None:
        wrapper.average = value[0]


def cart_pole_with_momentum() -> Any:
    return Momentum(gymnasium.make("CartPole-v1"))


@pytest.mark.usefixtures("_clean_registry")
@pytest.mark.parametrize("method", slow_after(1, ["fork", "spawn"]))
def test_a_registered_wrapper_codec_is_used_in_workers_too(method: str) -> None:
    planvec.register_wrapper_codec(Momentum, MomentumCodec)
    reference = cart_pole_with_momentum()
    reference.reset(seed=3)
    with planvec.make(cart_pole_with_momentum, num_workers=1, start_method=method) as env:
        assert env.state_dtype.names == ("physics", "time_limit", "momentum", "terminated", "truncated")
        state = env.reset(seed=3).state
        for action in (0, 1, 1, 0, 1, 0):
            out = env.step_batch([action], np.repeat(state, 1))
            state = out.new_states[0]
            expected = reference.step(action)
            assert_same(out.observations[0], expected[0])
            assert_same(out.rewards[0], np.float64(expected[1]))
        assert state["momentum"]["average"] == reference.average


@pytest.mark.usefixtures("_clean_registry")
def test_a_registered_wrapper_codec_that_forgets_something_is_refused() -> None:
    planvec.register_wrapper_codec(Momentum, ForgetfulMomentumCodec)
    with pytest.raises(
        planvec.UnsupportedEnvError, match="ForgetfulMomentumCodec does not restore everything"
    ):
        PlanEnv(cart_pole_with_momentum)


@pytest.mark.usefixtures("_clean_registry")
def test_a_registered_wrapper_codec_works_around_copies_and_replays() -> None:
    planvec.register_wrapper_codec(Momentum, MomentumCodec)
    for codec in ("copied", "replay"):
        with PlanEnv(cart_pole_with_momentum, codec=codec) as env:
            assert env.step_batch([0, 1], dt=300).terminated.all()


@pytest.mark.usefixtures("_clean_registry")
def test_a_registered_wrapper_codec_may_stand_for_a_built_in_one() -> None:
    class ShortLimitCodec(planvec.WrapperCodec):
        dtype = np.dtype([("num_steps", "i4")])
        draws = False

        def get(self, wrapper: Any) -> Any:
            return (wrapper._elapsed_steps,)

        def set(self, wrapper: Any, value: Any) -> None:
            (wrapper._elapsed_steps,) = value

        def observe(self, wrapper: Any, observation: Any) -> Any:
            return observation

    planvec.register_wrapper_codec(wrappers.TimeLimit, ShortLimitCodec)
    with PlanEnv("CartPole-v1") as env:
        out = env.step_batch([0, 1], dt=[3, 1])
        assert out.new_states["time_limit"]["num_steps"].tolist() == [3, 1]


@pytest.mark.usefixtures("_clean_registry")
def test_what_makes_no_wrapper_codec_is_refused() -> None:
    planvec.register_wrapper_codec(Momentum, lambda wrapper: {})  # type: ignore[arg-type, return-value]
    with pytest.raises(
        planvec.UnsupportedEnvError, match="maker of a planvec.WrapperCodec, got one of a dict"
    ):
        PlanEnv(cart_pole_with_momentum)


def test_only_wrapper_classes_can_be_registered() -> None:
    with pytest.raises(TypeError, match="wrapper_class: expected a subclass of gymnasium.Wrapper"):
        planvec.register_wrapper_codec(Counting, MomentumCodec)
    with pytest.raises(TypeError, match="codec: expected a WrapperCodec subclass"):
        planvec.register_wrapper_codec(Momentum, 3)  # type: ignore[arg-type]


class Curriculum(gymnasium.Wrapper):
    """Raises a weight of the reward with every step."""

    def reset(self, **kwargs: Any) -> Any:
        self.unwrapped._forward_reward_weight = 1.0  # type: ignore[attr-defined]
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        self.unwrapped._forward_reward_weight += 0.5  # type: ignore[attr-defined]
        return super().step(action)


class CurriculumCodec(planvec.WrapperCodec):
    dtype = np.dtype([("weight", "f8")])
    draws = False

    def get(self, wrapper: Any) -> Any:
        return (wrapper.unwrapped._forward_reward_weight,)

    def set(self, wrapper: Any, value: Any) -> None:
        (wrapper.unwrapped._forward_reward_weight,) = value

    def observe(self, wrapper: Any, observation: Any) -> Any:
        return observation


@pytest.mark.usefixtures("_clean_registry")
def test_a_registered_wrapper_may_change_the_weights_of_mujoco() -> None:
    planvec.register_wrapper_codec(Curriculum, CurriculumCodec)
    reference = Curriculum(gymnasium.make("HalfCheetah-v5"))
    reference.reset(seed=0)
    with PlanEnv(lambda: Curriculum(gymnasium.make("HalfCheetah-v5"))) as env:
        assert {"physics", "curriculum"} <= set(env.state_dtype.names or ())
        env.reset(seed=0)
        for _ in range(5):
            action = np.full(6, 0.5, np.float32)
            observation, reward, *_ = reference.step(action)
            assert_same(env.step(action)[:2], (observation, float(reward)))


# -- families --------------------------------------------------------------------------------------

PROBE_FAMILY = """
import numpy as np
from planvec.codecs.base import Codec
from planvec.codecs.selection import FamilyCodec, WrapperSupport


class ProbeCodec(Codec):
    dtype = np.dtype([("episodes", "i8"), ("time", "i8")])
    draws = False
    how = "two numbers"

    def before_reset(self, env):
        env.episodes = 0

    def get(self, env):
        return env.episodes, env.time

    def set(self, env, value):
        env.episodes, env.time = value


def codec_for_env(env, wrappers):
    if wrappers is WrapperSupport.MISSING:
        return None
    return FamilyCodec(ProbeCodec, is_verified=True)
"""


def test_a_family_is_one_entry_and_one_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "probe_family.py").write_text(PROBE_FAMILY)
    monkeypatch.syspath_prepend(tmp_path)
    family = selection.Family(
        name="probes",
        module="gymnasium",
        extra="",
        env_package=Counting.__module__,
        ids=(),
        codec_module="probe_family",
    )
    monkeypatch.setattr(selection, "FAMILIES", (*selection.FAMILIES, family))
    with PlanEnv(Counting) as env:
        assert env.codec.how == "two numbers"
        out = env.step_batch([0, 1], dt=[2, 9])
        assert out.new_states["time"].tolist() == [2, 3]
    with PlanEnv(lambda: Momentum(Counting())) as env:
        assert isinstance(env.codec._codec, CopiedCodec)  # type: ignore[attr-defined]


FAMILIES = [family for family in selection.FAMILIES if family.ids]
"""The others need packages that the tests do not install; see `benchmarks/other_peoples_environments.py`."""


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_family_names_modules_that_exist(family: selection.Family) -> None:
    assert importlib.util.find_spec(family.module) is not None
    assert importlib.util.find_spec(family.env_package) is not None
    module = selection.load_family(family)
    assert (module is None) == (family.codec_module == "")
    assert module is None or callable(module.codec_for_env)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_the_ids_of_a_family_lead_to_its_environments(family: selection.Family) -> None:
    env_id = "ALE/Pong-v5" if family.name == "Atari" else family.ids[0]
    env = make_env(env_id)
    assert next(iter(selection.families_of(env.unwrapped))) is family
    env.close()


# -- copied and replay -----------------------------------------------------------------------------


class Shared(gymnasium.Env):
    """One list under two names, a generator under a second name, and one of its own."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.items: list[float] = [0.0]
        self.view = self.items
        self.rng = self.np_random
        self.noise = np.random.default_rng(5 if seed is None else seed)
        return self._observe(), {}

    def _observe(self) -> Any:
        return np.array([sum(self.view), self.np_random.random(), self.noise.random()])

    def step(self, action: Any) -> Any:
        self.items.append(self.rng.random() + action)
        return self._observe(), float(sum(self.view)), False, False, {}


def test_copies_keep_what_is_shared_shared() -> None:
    with PlanEnv(Shared) as env:
        reference = Shared()
        reference.reset(seed=3)
        env.reset(seed=3)
        for action in (1, 0, 1, 1):
            assert_same(env.step(action)[:2], reference.step(action)[:2])
        inner = env.env
        assert inner.items is inner.view  # type: ignore[attr-defined]
        assert inner.rng is inner.np_random  # type: ignore[attr-defined]


def test_seeds_reseed_every_generator_of_a_copied_environment() -> None:
    with PlanEnv(Shared) as env:
        seeds = np.arange(20, dtype=np.uint64)
        out = env.step_batch(np.zeros(20, int), seeds=seeds)
        again = env.step_batch(np.zeros(20, int), seeds=seeds)
        assert_same(out.observations, again.observations)
        assert len({tuple(row) for row in out.observations[:, 1:].tolist()}) == 20


def test_a_constant_that_is_replaced_is_saved_after_all() -> None:
    class Switching(Counting):
        def reset(self, **kwargs: Any) -> Any:
            self.goal = spaces.Discrete(5)
            return super().reset(**kwargs)

        def step(self, action: Any) -> Any:
            if action:
                self.goal = spaces.Discrete(int(self.goal.n) + 1)
            observation, _, terminated, truncated, info = super().step(action)
            return observation, float(self.goal.n), terminated, truncated, info

    with PlanEnv(Switching) as env:
        state = env.step_batch([1]).new_states[0]
        out = env.step_batch([0, 1], np.repeat(state, 2))
        assert out.rewards.tolist() == [6.0, 7.0]


def test_replaying_a_child_of_the_last_state_costs_no_step() -> None:
    with PlanEnv(EzRocket, codec="replay") as env:
        codec: Any = env.codec
        state = env.reset(seed=0).state
        codec.num_replayed_steps = 0
        for _ in range(20):
            out = env.step_batch([1], np.repeat(state, 1))
            state = out.new_states[0]
        assert codec.num_replayed_steps == 0
        env.step_batch([1, 2], np.repeat(state, 2))
        assert codec.num_replayed_steps == 20


def test_replay_remembers_that_a_row_was_reseeded() -> None:
    with PlanEnv(EzRocket, codec="replay") as env:
        state = env.reset(seed=0).state
        seeds = np.array([7, 8, 7], np.uint64)
        out = env.step_batch([1, 1, 1], np.repeat(state, 3), seeds=seeds)
        assert out.observations[0] == out.observations[2] != out.observations[1]
        after = env.step_batch([0, 2, 0], out.new_states)
        assert after.observations[0] == after.observations[2]


def test_a_subclass_does_not_inherit_a_codec_by_accident() -> None:
    class Heavy(gymnasium.envs.classic_control.CartPoleEnv):
        def step(self, action: Any) -> Any:
            self.worn = getattr(self, "worn", 0) + 1
            observation, _, terminated, truncated, info = super().step(action)
            return observation, float(self.worn), terminated, truncated, info

    with PlanEnv(Heavy) as env:
        assert isinstance(env.codec._codec, CopiedCodec)  # type: ignore[attr-defined]
        state = env.step_batch([1]).new_states[0]
        assert env.step_batch([1, 1], np.repeat(state, 2)).rewards.tolist() == [2.0, 2.0]


# -- purity, where it is easily lost ------------------------------------------------------------------


def agree(factory: Callable[[], Any], num_rows: int = 6, **options: Any) -> None:
    """Two rounds of steps from one state are the same in this process, in one worker and in two."""
    results = []
    for num_workers in (0, 1, 2):
        with planvec.make(factory, num_workers=num_workers, start_method="fork") as env:
            actions = np.arange(num_rows) % env.action_space.n
            first = env.step_batch(actions, env.reset(seed=3, **options).state, dt=2)
            second = env.step_batch(actions[::-1], first.new_states)
            assert_same(env.observe(second.new_states), second.observations)
            results.append((first, second))
    for first, second in results[1:]:
        for got, expected in ((first, results[0][0]), (second, results[0][1])):
            assert same_states(got.new_states, expected.new_states)
            assert_same(got.observations, expected.observations)
            assert_same(got.rewards, expected.rewards)


def test_a_function_in_a_wrapper_may_draw_from_np_random() -> None:
    def factory() -> Any:
        env = gymnasium.make("CartPole-v1")
        return wrappers.TransformReward(env, lambda r: r + float(env.unwrapped.np_random.normal()))

    agree(factory)


def test_a_generator_hidden_in_the_function_of_a_wrapper_is_refused() -> None:
    rng = np.random.default_rng(0)
    env = gymnasium.make("CartPole-v1")
    with pytest.raises(planvec.UnsupportedEnvError, match="func: a random generator is hidden"):
        PlanEnv(wrappers.TransformReward(env, lambda r: r + rng.normal()))


def test_observations_in_one_buffer_do_not_run_into_each_other() -> None:
    def factory() -> Any:
        buffer = np.zeros(4, np.float32)

        def double(observation: Any) -> Any:
            np.multiply(observation, 2, out=buffer)
            return buffer

        return wrappers.TransformObservation(gymnasium.make("CartPole-v1"), double, None)

    agree(factory)


class Gravity(gymnasium.Wrapper):
    """Changes the environment below it, where the options ask for it."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if options:
            self.unwrapped.gravity = options["gravity"]  # type: ignore[attr-defined]
        return self.env.reset(seed=seed)


def test_what_an_unknown_wrapper_changes_below_it_is_part_of_the_state() -> None:
    agree(lambda: Gravity(gymnasium.make("CartPole-v1")), options={"gravity": 30.0})
    with PlanEnv(lambda: Gravity(gymnasium.make("CartPole-v1"))) as env:
        env.reset(seed=0, options={"gravity": 30.0})
        env.reset(seed=0)
        assert env.env.unwrapped.gravity == 9.8  # type: ignore[attr-defined]


class Growing(Counting):
    """Attributes come in the order of the actions, and one is a set of strings."""

    def reset(self, **kwargs: Any) -> Any:
        self.seen: set[str] = {"start"}
        for name in ("p", "q"):
            vars(self).pop(name, None)
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        setattr(self, "pq"[action], self.time)
        self.seen = self.seen | {f"step {self.time}", f"action {action}"}
        return super().step(action)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_the_bytes_of_a_copied_state_do_not_tell_where_it_was_made(method: str) -> None:
    states = []
    for num_workers in (0, 2):
        with planvec.make(Growing, num_workers=num_workers, start_method=method) as env:
            out = env.step_batch([0, 1, 0, 1])
            states.append(env.step_batch([1, 1, 0, 0], out.new_states).new_states)
    assert same_states(states[0], states[1])


class Sharing(Counting):
    """Two names for one object, in ways that a copy keeps or cuts."""

    observation_space = spaces.Box(-99, 99, (2,), np.float64)
    how = ""

    def __init__(self) -> None:
        super().__init__()
        self.items: set[int] = set()
        self.same_items = self.items
        self.counter = random.Random(0)
        self.draw = self.counter.random
        self.grid = np.zeros(4)
        if self.how == "view":
            self.head = self.grid[:2]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        gymnasium.Env.reset(self, seed=seed)
        self.items.clear()
        self.counter.seed(seed)
        self.grid[:] = 0
        self.drawn = 0.0
        return self._observe(), {}

    def _observe(self) -> Any:
        shown = self.head[0] if self.how == "view" else self.drawn
        return np.array([float(len(self.same_items)), shown])

    def step(self, action: Any) -> Any:
        self.items.add(len(self.items))
        self.grid += 1
        self.drawn = self.draw()
        return self._observe(), 0.0, False, False, {"items": set(self.items)}


class SharingAView(Sharing):
    how = "view"


@pytest.mark.slow
def test_sets_and_bound_methods_stay_shared() -> None:
    reference = Sharing()
    reference.reset(seed=5)
    with PlanEnv(Sharing) as env:
        env.reset(seed=5)
        states = [env.get_state()]
        for _ in range(80):
            assert_same(env.step(0)[0], reference.step(0)[0])
            states.append(env.get_state())
        one, other = (env.step_batch([0], np.repeat(states[70], 1)) for _ in range(2))
        assert_same(one.observations, other.observations)
        assert one.new_states[0] == states[71]


def test_sharing_that_a_copy_cuts_is_refused() -> None:
    with pytest.raises(planvec.UnsupportedEnvError, match="is a view of another one"):
        PlanEnv(SharingAView)


class Locked(Counting):
    """An info that can be neither copied nor sent."""

    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], {"lock": threading.Lock(), "left": 3}


@pytest.mark.parametrize("num_workers", [0, 1])
def test_infos_that_are_not_asked_for_need_not_be_copied(num_workers: int) -> None:
    method = "fork" if num_workers else None
    with planvec.make(Locked, num_workers=num_workers, start_method=method, info_keys=("left",)) as env:
        assert env.step_batch([0, 1]).infos["left"].tolist() == [3, 3]
    with pytest.raises(planvec.UnsupportedEnvError, match="cannot be copied .* info_keys="):
        PlanEnv(Locked)


class Walled(Counting):
    """A constant that is a set of strings, whose order differs from process to process."""

    def __init__(self) -> None:
        super().__init__()
        self.walls = {"north", "east", "south", "west"}


class WalledCodec(CountingCodec):
    constants = ("walls",)


class MisspeltCodec(CountingCodec):
    constants = ("wals",)


class Library:
    """Has a function of any name, `__dict__` included, as the wrapper of LLVM in numba has."""

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__dict__":
            raise AttributeError(name)
        return self


class CallsLibrary(gymnasium.Env):
    """Counts in a library, which is part of the state."""

    observation_space = spaces.Discrete(100)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.library = Library()
        return 0, {}

    def step(self, action: Any) -> Any:
        self.library.calls = (self.library.calls + int(action)) % 100
        return self.library.calls, 0.0, False, False, {}


def test_an_object_that_has_every_attribute_is_saved_by_those_that_it_holds() -> None:
    with planvec.PlanEnv(CallsLibrary) as env:
        state = env.reset(seed=0).state
        states = env.step_batch([1, 0, 1], np.array([state] * 3)).new_states
        states = env.step_batch([1, 1, 0], states).new_states
        assert env.observe(states).tolist() == [2, 1, 1]
        assert bytes(states[1]) == bytes(states[2]) != bytes(states[0])


class Names(gymnasium.Env):
    """Has an attribute for each name, and adds up in the first one."""

    observation_space = spaces.Discrete(1000)
    action_space = spaces.Discrete(2)

    def __init__(self, *names: str) -> None:
        self.names = names

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        vars(self).update({name: number for number, name in enumerate(self.names)})
        return 0, {}

    def step(self, action: Any) -> Any:
        total = (vars(self)[self.names[0]] + int(action)) % 1000
        vars(self)[self.names[0]] = total
        return total, 0.0, False, False, {}


def test_states_with_other_attributes_are_refused() -> None:
    makes = [functools.partial(Names, *names) for names in (("a", "b"), ("b", "c"), ("a", "b"))]
    with PlanEnv(makes[0]) as one, PlanEnv(makes[1]) as other, PlanEnv(makes[2]) as same_one:
        out = one.step_batch([1, 0], np.repeat(one.reset(seed=0).state, 2))
        with pytest.raises(planvec.InvalidBatchError, match=r"states\[0\]: expected a state of Names"):
            other.observe(out.new_states)
        assert same_one.step_batch([1, 1], out.new_states).observations.tolist() == [2, 1]


def test_an_environment_that_renders_takes_the_states_of_one_that_does_not() -> None:
    with PlanEnv("MiniGrid-DoorKey-5x5-v0") as env:
        starts = np.array([env.reset(seed=seed).state for seed in range(3)])
        with PlanEnv("MiniGrid-DoorKey-5x5-v0", render_mode="rgb_array") as shown:
            frames = shown.render(starts)
            assert bytes(shown.reset(seed=1).state) == bytes(starts[1])
        assert_same(env.observe(starts)["image"], shown_images(starts))
    with gymnasium.make("MiniGrid-DoorKey-5x5-v0", render_mode="rgb_array") as plain:
        for seed, frame in enumerate(frames):
            plain.reset(seed=seed)
            assert_same(frame, plain.render())


def shown_images(states: Any) -> Any:
    """Return what an environment that renders observes at states."""
    with PlanEnv("MiniGrid-DoorKey-5x5-v0", render_mode="rgb_array") as shown:
        return shown.observe(states)["image"]


@pytest.mark.slow
def test_constants_are_compared_by_value() -> None:
    with planvec.make(Walled, num_workers=2, codec=WalledCodec) as env:
        assert env.step_batch([0, 1]).rewards.tolist() == [1.0, 1.0]
    with pytest.raises(planvec.UnsupportedEnvError, match=r"constants: .* got \['wals'\], which Walled"):
        PlanEnv(Walled, codec=MisspeltCodec)


class DeepGenerators(Counting):
    """Generators of three kinds, none of them where Gymnasium keeps its own."""

    observation_space = spaces.Box(0, 1, (3,), np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        gymnasium.Env.reset(self, seed=seed)
        self.one = random.Random(seed)
        self.others = {"new": np.random.default_rng(seed), "old": np.random.RandomState(seed)}
        return np.zeros(3), {}

    def step(self, action: Any) -> Any:
        drawn = [self.one.random(), self.others["new"].random(), self.others["old"].random_sample()]  # type: ignore[union-attr]
        return np.array(drawn), 0.0, False, False, {}


def test_seeds_reach_generators_of_any_kind_and_depth() -> None:
    with PlanEnv(DeepGenerators) as env:
        seeds = np.array([5, 6, 5], np.uint64)
        out = env.step_batch([0, 0, 0], seeds=seeds)
        assert_same(out.observations[0], out.observations[2])
        assert (out.observations[0] != out.observations[1]).all()


def test_normalising_a_single_number_keeps_its_precision() -> None:
    def factory() -> Any:
        space = spaces.Box(-8, 8, (), np.float32)
        env = wrappers.TransformObservation(gymnasium.make("Pendulum-v1"), lambda o: np.float32(o[2]), space)
        return wrappers.NormalizeObservation(env)

    reference = factory()
    reference.reset(seed=0)
    with PlanEnv(factory) as env:
        env.reset(seed=0)
        for _ in range(40):
            action = np.array([0.7], np.float32)
            assert_same(env.step(action)[0], reference.step(action)[0])


def test_wrappers_that_remember_work_over_copies_and_replays() -> None:
    for codec in ("copied", "replay"):
        for wrap in (wrappers.RecordEpisodeStatistics, wrappers.NormalizeObservation):
            with PlanEnv(lambda wrap=wrap: wrap(gymnasium.make("CartPole-v1")), codec=codec) as env:
                out = env.step_batch([0, 1], dt=300)
                assert out.terminated.all()


class Lists(Counting):
    """Observes lists, of floats or of integers."""

    observation_space = spaces.Box(-9, 9, (2,), np.float64)

    def reset(self, **kwargs: Any) -> Any:
        super().reset(**kwargs)
        return np.zeros(2), {}

    def step(self, action: Any) -> Any:
        observation = [[1.5, 0.0], [0, 0]][action] if self.armed else np.zeros(2)
        return observation, 0.0, False, False, {}

    armed = False


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_whether_an_observation_is_accepted_does_not_depend_on_its_neighbours(num_workers: int) -> None:
    class Armed(Lists):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.armed = bool(options)
            return Lists.reset(self, seed=seed)

    with planvec.make(Armed, num_workers=num_workers, start_method="fork") as env:
        state = env.reset(seed=0, options={"armed": True}).state
        assert env.step_batch([0, 0], state).observations.tolist() == [[1.5, 0.0]] * 2
        with pytest.raises(planvec.EnvError, match="row 1, action 1: observation: .* dtype int64"):
            env.step_batch([0, 1], state)


# -- wrappers on wrappers --------------------------------------------------------------------------

# new in Gymnasium 1.3
LACKING = [name for name in ("RepeatAction",) if not hasattr(wrappers, name)]
COMPOSED = {
    **{name: wrap for name, wrap in STATEFUL.items() if name not in ("RecordEpisodeStatistics", *LACKING)},
    "Momentum": Momentum,
}


@pytest.mark.slow
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    env_id=st.sampled_from(["CartPole-v1", "Pendulum-v1"]),
    names=st.lists(st.sampled_from(sorted(COMPOSED)), min_size=2, max_size=4),
    seed=st.integers(0, 1000),
)
def test_wrappers_compose_with_each_other(env_id: str, names: list[str], seed: int) -> None:
    def make() -> Any:
        env: Any = gymnasium.make(env_id)
        for name in names:
            env = COMPOSED[name](env)
        return env

    reference = make()
    reference.action_space.seed(seed)
    expected_observation, _ = reference.reset(seed=seed)
    with PlanEnv(make) as env:
        start = env.reset(seed=seed)
        assert_same(start.observation, expected_observation)
        state, passed = start.state, []
        for _ in range(30):
            action = reference.action_space.sample()
            expected = reference.step(action)
            passed.append((state, action, expected))
            out = env.step_batch(np.asarray(action)[None], np.repeat(state, 1))
            state = out.new_states[0]
            if expected[2] or expected[3]:
                break
        for state, action, expected in passed[::-1]:
            out = env.step_batch(np.asarray(action)[None], np.repeat(state, 1))
            got = out.row(env.observation_space, 0)
            assert_same(got[:4], (expected[0], float(expected[1]), *expected[2:4]))
            assert_same(env.observe(out.new_states)[0], expected[0])


# -- the comparison that trust rests on ------------------------------------------------------------


def test_same_tells_apart_what_differs() -> None:
    assert same({"a": (1, np.array([1.0, np.nan]))}, {"a": [1, np.array([1.0, np.nan])]})
    assert not same({"a": 1}, {"b": 1})
    assert not same([1, 2], [1, 2, 3])
    assert not same(np.array([1.0]), np.array([1.0 + 1e-15]))
    assert not same(np.zeros(2), np.zeros((2, 1)))
    assert not same("left", "right")
    assert not same(1, 1.0)


# -- mistakes in codecs of the user's own ----------------------------------------------------------------


class Counter(gymnasium.Env[Any, Any]):
    action_space = spaces.Discrete(2)
    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.total = 0.0
        return np.array([self.total]), {}

    def step(self, action: Any) -> Any:
        self.total += float(action)
        return np.array([self.total]), 1.0, False, False, {}


class CounterCodec(planvec.Codec):
    dtype: Any = np.dtype([("total", "f8")])
    draws = False

    def get(self, env: Any) -> Any:
        return (env.total,)

    def set(self, env: Any, value: Any) -> None:
        (env.total,) = value

    def observe(self, env: Any) -> Any:
        return np.array([env.total])


class ListsItsFields(CounterCodec):
    dtype = [("total", "f8")]  # noqa: RUF012 (the mistake)


class ReturnsANumber(CounterCodec):
    def get(self, env: Any) -> Any:
        return env.total


class ReturnsTooMany(CounterCodec):
    def get(self, env: Any) -> Any:
        return env.total, 1


class MisspellsAField(CounterCodec):
    def set(self, env: Any, value: Any) -> None:
        env.total = value["total"]


@pytest.mark.parametrize(
    ("codec", "message"),
    [
        (ListsItsFields, r"ListsItsFields.dtype: expected a np.dtype with named fields, or None, got \[\("),
        (
            ReturnsANumber,
            r"ReturnsANumber.get: expected a tuple with an entry .* \(total\), got float",
        ),
        (ReturnsTooMany, r"ReturnsTooMany.get: expected a tuple with an entry .*, got 2 entries"),
        (MisspellsAField, "MisspellsAField.set raised TypeError: .* while planvec checked this codec"),
    ],
)
def test_a_mistake_in_a_codec_is_not_blamed_on_the_environment(codec: Any, message: str) -> None:
    with pytest.raises(planvec.UnsupportedEnvError, match=message):
        planvec.PlanEnv(Counter, codec=codec)


def test_an_observation_that_a_codec_computes_wrongly_is_mentioned() -> None:
    class Off(CounterCodec):
        def observe(self, env: Any) -> Any:
            return np.array([env.total + 1])

    with pytest.warns(UserWarning, match="observation that Off.observe computes is not that of the env"):
        env = planvec.make(Counter, codec=Off, num_workers=0)
    with env:
        assert env.reset(seed=0).observation == 0.0  # and is not used
        assert "observation" in (env.state_dtype.names or ())
    with planvec.make(Counter, codec=CounterCodec, num_workers=0) as env:
        assert "observation" not in (env.state_dtype.names or ())


class Row(gymnasium.Env[Any, Any]):
    """Three places in a row, without a limit of time."""

    observation_space = gymnasium.spaces.Discrete(3)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place = 1
        return 1, {}

    def step(self, action: Any) -> Any:
        self.place = min(max(self.place + int(action) - 1, 0), 2)
        return self.place, 0.0, False, False, {}


def test_states_without_a_limit_of_time_do_not_depend_on_the_number_of_steps() -> None:
    with PlanEnv(Row) as env:
        first = env.step_batch([0, 1, 2]).new_states
        later = env.step_batch([1, 0, 2], first, dt=5).new_states
    assert first[0] == later[0]
    assert first[0] != first[1]
    assert later[1] == first[0]
    with PlanEnv(lambda: gymnasium.wrappers.TimeLimit(Row(), 60)) as env:
        first = env.step_batch([0]).new_states
        assert first[0] != env.step_batch([1], first).new_states[0]
