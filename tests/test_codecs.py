"""What is saved, what is refused, and how users teach planvec their own environments."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from compare import assert_same
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

import planvec
from planvec import PlanEnv
from planvec.codecs import registry
from planvec.codecs.copied import CopiedCodec
from planvec.codecs.proof import same


@pytest.fixture
def _clean_registry() -> Iterator[None]:
    before = dict(registry._registered)
    yield
    registry._registered.clear()
    registry._registered.update(before)


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (EzRocket, 'EzRocket is an EzPickle environment.*codec="replay"'),
        (HiddenGenerator, "HiddenGenerator.draw: a random generator is hidden inside this function"),
        (GlobalRandomness, "keeps something that could not be saved.*register_codec"),
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


def test_an_attribute_named_constant_is_left_out() -> None:
    with PlanEnv(Unpicklable, codec=planvec.Copied(["file"])) as env:
        out = env.step_batch([0, 1])
        assert out.rewards[0] == out.rewards[1]
    with pytest.raises(
        planvec.UnsupportedEnvError, match=r"constants: Unpicklable has no attributes \['disk'\]"
    ):
        PlanEnv(Unpicklable, codec=planvec.Copied(["file", "disk"]))


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
    with pytest.raises(
        planvec.UnsupportedEnvError, match="after restoring a saved state, .* observation was"
    ):
        PlanEnv(ClassMemory)


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
    with pytest.raises(planvec.UnsupportedEnvError, match=r"info\['clock'\] was .*info_keys="):
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


def test_a_wrapper_that_shares_objects_with_its_environment_is_exact_or_refused() -> None:
    with pytest.raises(planvec.UnsupportedEnvError, match="Register a codec"):
        PlanEnv(lambda: Aliased(Warehouse()))


# -- codecs of the user's own ----------------------------------------------------------------------


class CountingCodec(planvec.Codec):
    dtype = np.dtype([("episodes", "i8"), ("time", "i8")])
    draws = False

    def begin(self, env: Any) -> None:
        env.episodes = 0

    def get(self, env: Any) -> Any:
        return env.episodes, env.time

    def set(self, env: Any, value: Any) -> None:
        env.episodes, env.time = value


class ForgetfulCodec(CountingCodec):
    def set(self, env: Any, value: Any) -> None:
        env.episodes = value[0]


@pytest.mark.usefixtures("_clean_registry")
@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
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
    with pytest.raises(planvec.UnsupportedEnvError, match="expected what makes a planvec.Codec, got a dict"):
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
        codec: Any = env._codec
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
        assert isinstance(env._codec._codec, CopiedCodec)  # type: ignore[attr-defined]
        state = env.step_batch([1]).new_states[0]
        assert env.step_batch([1, 1], np.repeat(state, 2)).rewards.tolist() == [2.0, 2.0]


# -- wrappers on wrappers --------------------------------------------------------------------------

COMPOSED = {
    **{name: wrap for name, wrap in STATEFUL.items() if name != "RecordEpisodeStatistics"},
    "Momentum": Momentum,
}


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
            got = out.first(env.observation_space)
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
