"""The environment itself at saved states: `get_attr` and `call`, on every backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from backends import BACKENDS, DEFAULT, HERE, PROCESSES, TOYS, Backend, quick_or_slow
from compare import assert_same
from gymnasium import wrappers

import planvec
from planvec import ExternalProcess, PlanEnv

EACH = quick_or_slow(BACKENDS, DEFAULT)
SIMULATED = quick_or_slow(BACKENDS, [HERE[0], PROCESSES[0], TOYS[0]])
DTS = np.array([1, 2, 3, 5, 8])


class Point:
    """A value that is no number."""

    def __init__(self, x: int) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and other.x == self.x

    __hash__ = None  # type: ignore[assignment]


class Inventory(gymnasium.Env):
    """Has attributes and methods of every kind."""

    observation_space = gymnasium.spaces.Discrete(1000)
    action_space = gymnasium.spaces.Discrete(2)
    gravity = 9.8

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        self.scores = np.zeros(3)
        self.point = Point(0)
        self.names: list[str] = []
        return 0, {}

    def step(self, action: Any) -> Any:
        self.count += 1
        self.scores = self.scores + self.count
        self.point = Point(self.count)
        self.names = [*self.names, f"n{self.count}"]
        return self.count, 1.0, False, False, {}

    def plus(self, number: int, *, times: int = 1) -> int:
        return self.count + number * times

    def spend(self) -> int:
        self.count += 100
        return self.count

    def extend(self, given: list[int]) -> list[int]:
        given.append(self.count)
        return given

    def fail(self) -> None:
        raise ValueError(f"failed at {self.count}")

    @property
    def is_odd(self) -> bool:
        return self.count % 2 == 1


@pytest.fixture(scope="module", params=EACH)
def env(request: pytest.FixtureRequest) -> Iterator[Any]:
    with request.param.open(Inventory) as env:
        yield env


def states_of(env: Any) -> Any:
    """Return states after 1, 2, 3, 5 and 8 steps."""
    actions = np.zeros(len(DTS), env.action_space.dtype)
    return env.step_batch(actions, env.reset(seed=0).state, dt=DTS).new_states


# -- attributes ------------------------------------------------------------------------------------


def test_an_attribute_is_read_at_each_state(env: Any) -> None:
    values = env.get_attr("count", states_of(env))
    assert values.dtype.kind == "i"
    assert values.tolist() == DTS.tolist()


def test_states_are_read_in_the_order_in_which_they_are_given(env: Any) -> None:
    order = [4, 0, 2, 2, 1]
    assert env.get_attr("count", states_of(env)[order]).tolist() == DTS[order].tolist()


def test_arrays_of_one_shape_are_stacked(env: Any) -> None:
    values = env.get_attr("scores", states_of(env))
    assert_same(values, np.repeat(np.cumsum(np.arange(9))[DTS][:, None], 3, axis=1).astype(float))


def test_a_property_and_an_attribute_of_the_class_are_read_too(env: Any) -> None:
    states = states_of(env)
    assert env.get_attr("is_odd", states).tolist() == [True, False, True, True, False]
    assert env.get_attr("gravity", states).tolist() == [9.8] * 5


def test_objects_come_as_an_array_of_objects(env: Any) -> None:
    points = env.get_attr("point", states_of(env))
    assert (points.dtype, points.shape) == (np.dtype(object), (5,))
    assert points.tolist() == [Point(dt) for dt in DTS]


def test_lists_of_different_lengths_come_as_an_array_of_objects(env: Any) -> None:
    names = env.get_attr("names", states_of(env))
    assert (names.dtype, names.shape) == (np.dtype(object), (5,))
    assert [len(one) for one in names] == DTS.tolist()


def test_a_dotted_name_reaches_into_an_attribute(env: Any) -> None:
    states = states_of(env)
    assert env.get_attr("point.x", states).tolist() == DTS.tolist()
    assert env.get_attr("unwrapped.point.x", states).tolist() == DTS.tolist()


def test_without_states_the_base_state_is_read_as_one_row(env: Any) -> None:
    env.set_state(states_of(env)[3])
    assert env.get_attr("count").tolist() == [5]
    assert env.call("plus", None, 2).tolist() == [7]


def test_a_value_does_not_change_with_the_environment(env: Any) -> None:
    states = states_of(env)
    scores = env.get_attr("scores", states[:1])
    env.step_batch(np.zeros(5, int), states)
    assert scores.tolist() == [[1.0, 1.0, 1.0]]


def test_an_unknown_attribute_is_an_error_that_names_it(env: Any) -> None:
    states = states_of(env)
    with pytest.raises(planvec.EnvError, match="gravitas: AttributeError: .*gravitas") as caught:
        env.get_attr("gravitas", states)
    assert caught.value.row == 0
    with pytest.raises(
        planvec.EnvError, match=r"point\.y: AttributeError: 'Point' object has no attribute 'y'"
    ):
        env.get_attr("point.y", states)
    assert env.get_attr("count", states).tolist() == DTS.tolist()


# -- calls -----------------------------------------------------------------------------------------


def test_a_method_is_called_at_each_state_with_the_same_arguments(env: Any) -> None:
    states = states_of(env)
    assert env.call("plus", states, 10).tolist() == (DTS + 10).tolist()
    assert env.call("plus", states, 10, times=3).tolist() == (DTS + 30).tolist()


def test_what_a_method_changes_is_forgotten(env: Any) -> None:
    states = states_of(env)
    for _ in range(2):
        assert env.call("spend", states).tolist() == (DTS + 100).tolist()
    assert env.get_attr("count", states).tolist() == DTS.tolist()
    assert env.step_batch(np.zeros(5, int), states).observations.tolist() == (DTS + 1).tolist()


def test_an_argument_that_a_method_changes_is_new_for_every_state(env: Any) -> None:
    given: list[int] = [7]
    assert env.call("extend", states_of(env), given).tolist() == [[7, dt] for dt in DTS]
    assert given == [7]


def test_an_error_in_a_method_names_it_and_its_row(env: Any) -> None:
    with pytest.raises(planvec.EnvError, match="row 0: fail: ValueError: failed at 1"):
        env.call("fail", states_of(env))
    with pytest.raises(planvec.EnvError, match="count: TypeError: 'int' object is not callable"):
        env.call("count", states_of(env))


@pytest.mark.parametrize("name", ["step", "reset", "close", "unwrapped.step", "unwrapped.close"])
def test_methods_that_end_or_move_an_episode_are_refused(env: Any, name: str) -> None:
    with pytest.raises(planvec.InvalidBatchError, match=f"name: .* got '{name}'"):
        env.call(name, states_of(env))
    assert env.get_attr("count", states_of(env)).tolist() == DTS.tolist()


def test_what_is_no_state_is_refused(env: Any) -> None:
    with pytest.raises(planvec.InvalidBatchError, match="states: "):
        env.get_attr("count", np.zeros(3))
    with pytest.raises(planvec.InvalidBatchError, match="states: "):
        env.call("plus", np.zeros(3), 1)


# -- real environments -----------------------------------------------------------------------------


@pytest.fixture(params=SIMULATED)
def backend(request: pytest.FixtureRequest) -> Backend:
    opened: Backend = request.param
    return opened


def read_alone(env: gymnasium.Env[Any, Any], action: Any, read: Callable[[Any], Any]) -> list[Any]:
    """Return what Gymnasium's environment has after 1, 2, 3, 5 and 8 steps."""
    env.reset(seed=0)
    values = []
    for count in range(1, int(DTS[-1]) + 1):
        env.step(action)
        if count in DTS:
            values.append(np.copy(read(env.unwrapped)))
    env.close()
    return values


def make_atari() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("ALE/Breakout-v5", obs_type="rgb", repeat_action_probability=0.0)


def test_the_ram_of_an_atari_game_is_that_of_each_state(backend: Backend) -> None:
    with backend.open(make_atari) as env:
        states = env.step_batch(np.full(5, 1), env.reset(seed=0).state, dt=DTS).new_states
        ram = env.call("ale.getRAM", states)
        lives = env.call("ale.lives", states)
    expected = read_alone(make_atari(), 1, lambda env: env.ale.getRAM())
    assert_same(ram, np.stack(expected))
    assert len(set(map(bytes, ram))) == 5
    assert lives.tolist() == [5] * 5


def make_mujoco() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("HalfCheetah-v5")


def test_the_time_and_the_positions_of_a_simulation_are_those_of_each_state(backend: Backend) -> None:
    action = np.full(6, 0.3, np.float32)
    with backend.open(make_mujoco) as env:
        states = env.step_batch(np.tile(action, (5, 1)), env.reset(seed=0).state, dt=DTS).new_states
        times, positions = env.get_attr("data.time", states), env.get_attr("data.qpos", states)
    assert_same(times, np.stack(read_alone(make_mujoco(), action, lambda env: env.data.time)))
    assert_same(positions, np.stack(read_alone(make_mujoco(), action, lambda env: env.data.qpos)))
    assert len(set(times.tolist())) == 5


def make_limited() -> gymnasium.Env[Any, Any]:
    return wrappers.TimeLimit(Inventory(), 7)


def test_the_steps_that_an_outer_time_limit_has_counted_are_those_of_each_state(backend: Backend) -> None:
    with backend.open(make_limited) as env:
        states = env.step_batch(np.zeros(5, int), env.reset(seed=0).state, dt=DTS).new_states
        assert env.get_attr("_elapsed_steps", states).tolist() == [1, 2, 3, 5, 7]


def test_the_steps_that_an_inner_time_limit_has_counted_are_those_of_each_state(backend: Backend) -> None:
    def make() -> gymnasium.Env[Any, Any]:
        return wrappers.TransformReward(make_limited(), lambda reward: 2 * reward)

    with backend.open(make) as env:
        states = env.step_batch(np.zeros(5, int), env.reset(seed=0).state, dt=DTS).new_states
        assert env.get_attr("_elapsed_steps", states).tolist() == [1, 2, 3, 5, 7]


def test_what_a_wrapper_remembers_is_that_of_each_state(backend: Backend) -> None:
    def make() -> gymnasium.Env[Any, Any]:
        return wrappers.RecordEpisodeStatistics(Inventory())

    with backend.open(make) as env:
        states = env.step_batch(np.zeros(5, int), env.reset(seed=0).state, dt=DTS).new_states
        assert env.get_attr("episode_lengths", states).tolist() == DTS.tolist()
        assert env.get_attr("episode_returns", states).tolist() == DTS.tolist()


# -- a process by itself ---------------------------------------------------------------------------


def test_an_attribute_of_a_process_is_that_of_its_environment() -> None:
    with ExternalProcess(lambda: PlanEnv("CartPole-v1"), start_method="fork") as process:
        assert process.get_attr("gravity") == 9.8
        assert process.get_attr("unwrapped.gravity") == 9.8
        process.set_attr("gravity", 3.7)
        assert process.get_attr("gravity") == 3.7
        with pytest.raises(planvec.EnvError, match="gravitas"):
            process.get_attr("gravitas")


def test_attributes_at_states_are_read_in_a_process_by_a_call() -> None:
    with ExternalProcess(lambda: PlanEnv(Inventory), start_method="fork") as process:
        states = process.step_batch(np.zeros(5, int), dt=DTS).new_states
        assert process.call("get_attr", "count", states).result().tolist() == DTS.tolist()
