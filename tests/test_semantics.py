"""What a batch call means, one sentence a test, in this process and through workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from compare import assert_same, same_states
from environments import Plane, Warehouse
from faulty import ARMED, Faulty, fault
from gymnasium.utils import seeding

import planvec
from planvec import PlanEnv


@pytest.fixture(params=[0, 2], ids=["in-process", "2-workers"], scope="module")
def num_workers(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def opened(source: Any, num_workers: int, **options: Any) -> planvec.BatchEnv:
    method = "fork" if num_workers else None
    return planvec.make(source, num_workers=num_workers, start_method=method, **options)


@pytest.fixture(scope="module")
def cartpole(num_workers: int) -> Iterator[planvec.BatchEnv]:
    with opened("CartPole-v1", num_workers) as env:
        yield env


@pytest.fixture(scope="module")
def lake(num_workers: int) -> Iterator[planvec.BatchEnv]:
    with opened("FrozenLake-v1", num_workers) as env:
        yield env


@pytest.fixture(scope="module")
def taxi(num_workers: int) -> Iterator[planvec.BatchEnv]:
    with opened("Taxi-v4", num_workers) as env:
        yield env


def some_states(env: planvec.BatchEnv, num_rows: int, seed: int = 0) -> Any:
    """States some random steps into episodes."""
    rng = np.random.default_rng(seed)
    states = np.repeat(env.reset(seed=seed).state, num_rows)
    for _ in range(5):
        states = env.step_batch(rng.integers(env.action_space.n, size=num_rows), states).new_states
    return states


# -- shapes and kinds of results -------------------------------------------------------------------


def test_results_are_stacked_arrays_that_the_caller_owns(cartpole: planvec.BatchEnv) -> None:
    states = some_states(cartpole, 9)
    out = cartpole.step_batch(np.ones(9, int), states)
    again = cartpole.step_batch(np.zeros(9, int), states)
    assert isinstance(out, planvec.Transitions)
    assert out.new_states.shape == (9,)
    assert out.new_states.dtype == cartpole.state_dtype
    assert out.observations.shape == (9, 4)
    assert out.observations.dtype == np.float32
    assert out.rewards.dtype == np.float64
    assert out.terminated.dtype == out.truncated.dtype == np.bool_
    assert out.infos["num_steps"].tolist() == [1] * 9
    out.observations[:] = 0
    out.new_states[:] = out.new_states[0]
    assert (again.observations != 0).any()


def test_states_have_named_fields_and_behave_like_any_array(cartpole: planvec.BatchEnv) -> None:
    states = some_states(cartpole, 6)
    assert states["physics"].shape == (6, 4)
    picked = np.concatenate([states[[5, 0]], states[2:4], np.where([True], states[1:2], states[:1])])
    out = cartpole.step_batch(np.ones(5, int), picked)
    direct = cartpole.step_batch(np.ones(6, int), states)
    assert same_states(out.new_states, direct.new_states[[5, 0, 2, 3, 1]])


def test_nested_spaces_stack_as_in_gymnasium_vector(num_workers: int) -> None:
    with opened(Plane, num_workers) as env:
        start = env.reset(seed=0)
        moves = np.array([[0.5, 0], [0, -1], [1, 1]], np.float32)
        actions = (moves, {"jump": np.array([1, 2, 1])})
        out = env.step_batch(actions, np.repeat(start.state, 3))
        assert out.observations["inner"]["bits"].shape == (3, 4)
        assert out.observations["inner"]["count"].tolist() == [1, 1, 1]
        expected = start.observation["xy"] + moves.astype(float) * np.array([[1], [2], [1]])
        assert_same(out.observations["xy"], expected)


def test_spaces_of_varying_size_travel_too(num_workers: int) -> None:
    with opened(Warehouse, num_workers) as env:
        start = env.reset(seed=1)
        assert env.state_dtype == np.dtype(object)
        actions = np.array([[1, 1, 1], [1, 1, 0], [2, 0, 1]])
        out = env.step_batch(actions, np.repeat(start.state, 3))
        assert out.observations["note"] == ("ab", "a", "ab")
        assert out.observations["load"][0].tolist() == [1, 0, 1]
        assert out.infos["last"]["note"].tolist() == ["ab", None, "ab"]
        assert out.infos["_last"].tolist() == [True, False, True]


def test_saved_states_are_equal_and_hashable_by_their_bytes(num_workers: int) -> None:
    with opened(Warehouse, num_workers) as env:
        state = env.reset(seed=1).state
        actions = np.array([[1, 1, 1], [1, 1, 1], [2, 0, 1]])
        one, other, third = env.step_batch(actions, np.repeat(state, 3)).new_states
        assert isinstance(one, planvec.SavedState)
        assert one == other
        assert hash(one) == hash(other)
        assert one != third


def test_an_empty_batch_gives_empty_arrays(cartpole: planvec.BatchEnv) -> None:
    out = cartpole.step_batch([], np.empty(0, cartpole.state_dtype))
    assert out.new_states.shape == (0,)
    assert out.observations.shape == (0, 4)
    assert out.rewards.shape == out.infos["num_steps"].shape == (0,)
    rolled = cartpole.rollout_batch(np.empty(0, cartpole.state_dtype), 5, action_seed=0)
    assert rolled.returns.shape == (0,)
    assert cartpole.observe(np.empty(0, cartpole.state_dtype)).shape == (0, 4)


def test_return_state_false_saves_no_states(cartpole: planvec.BatchEnv) -> None:
    states = some_states(cartpole, 4)
    out = cartpole.step_batch(np.ones(4, int), states, return_state=False)
    full = cartpole.step_batch(np.ones(4, int), states)
    assert out.new_states is None
    assert_same(out.observations, full.observations)
    assert_same(out.rewards, full.rewards)


# -- dt --------------------------------------------------------------------------------------------


def test_dt_repeats_the_action_and_adds_up_rewards(cartpole: planvec.BatchEnv) -> None:
    states = some_states(cartpole, 8)
    actions = np.arange(8) % 2
    dt = np.arange(1, 9)
    out = cartpole.step_batch(actions, states, dt)
    current, rewards = states, np.zeros(8)
    for k in range(8):
        live = dt > k
        step = cartpole.step_batch(actions, current)
        rewards += np.where(live, step.rewards, 0.0)
        current = np.where(live, step.new_states, current)
    assert same_states(out.new_states, current)
    assert_same(out.rewards, rewards)


def test_a_row_stops_at_the_end_of_its_episode(cartpole: planvec.BatchEnv) -> None:
    state = cartpole.reset(seed=0).state
    out = cartpole.step_batch(np.array([1, 0]), np.repeat(state, 2), dt=400)
    assert out.terminated.all()
    assert (out.rewards == out.infos["num_steps"]).all()
    assert (out.infos["num_steps"] < 15).all()


def test_dt_does_not_run_past_the_time_limit(num_workers: int) -> None:
    with opened("Pendulum-v1", num_workers) as env:
        state = env.reset(seed=0).state
        out = env.step_batch(np.zeros((1, 1), np.float32), state, dt=500)
        assert out.infos["num_steps"].tolist() == [200]
        assert out.truncated.tolist() == [True]
        assert out.terminated.tolist() == [False]


# -- the base state --------------------------------------------------------------------------------


def test_rows_without_states_all_start_at_the_base_state(cartpole: planvec.BatchEnv) -> None:
    states = some_states(cartpole, 3)
    cartpole.sync_states(states[1])
    actions = np.array([0, 1, 1, 0, 1, 0, 0])
    out = cartpole.step_batch(actions)
    assert same_states(out.new_states, cartpole.step_batch(actions, np.repeat(states[1], 7)).new_states)


def test_sync_states_sets_the_state_of_every_worker(cartpole: planvec.BatchEnv) -> None:
    states = some_states(cartpole, 3)
    cartpole.sync_states(states[2])
    assert cartpole.get_state() == states[2]
    assert all(worker.get_state() == states[2] for worker in cartpole.workers)


def test_step_moves_the_base_state_as_gymnasium_does(cartpole: planvec.BatchEnv) -> None:
    env = gymnasium.make("CartPole-v1")
    start, (observation, info) = cartpole.reset(seed=5), env.reset(seed=5)
    assert_same((start.observation, start.info), (observation, info))
    for action in (1, 0, 0, 1, 1):
        assert_same(cartpole.step(action), env.step(action))


def test_a_reset_does_not_depend_on_what_was_stepped_before(lake: planvec.BatchEnv) -> None:
    first = lake.reset(seed=3)
    lake.step_batch(np.ones(50, int), np.repeat(first.state, 50), dt=3)
    assert lake.reset(seed=3).state == first.state
    assert lake.reset(seed=4).state != first.state


def test_a_reset_without_a_seed_is_a_new_one_each_time(cartpole: planvec.BatchEnv) -> None:
    assert cartpole.reset().state != cartpole.reset().state


def test_options_reach_the_reset_and_are_not_changed(cartpole: planvec.BatchEnv) -> None:
    options = {"low": 0.01, "high": 0.02}
    observation = cartpole.reset(seed=0, options=options).observation
    assert ((observation >= 0.01) & (observation <= 0.02)).all()
    assert options == {"low": 0.01, "high": 0.02}


# -- infos -----------------------------------------------------------------------------------------


def test_infos_have_gymnasiums_vector_form(taxi: planvec.BatchEnv) -> None:
    vector = gymnasium.make_vec("Taxi-v4", num_envs=3, vectorization_mode="sync")
    vector.reset(seed=[4, 5, 6])
    states = np.concatenate([[taxi.reset(seed=seed).state] for seed in (4, 5, 6)])
    actions = np.array([0, 2, 3])
    *_, expected = vector.step(actions)
    infos = taxi.step_batch(actions, states).infos
    assert set(infos) == {*expected, "num_steps"}
    for key, value in expected.items():
        assert_same(infos[key], value)
        assert infos[key].dtype == value.dtype
    vector.close()


def test_info_keys_keeps_those_alone(num_workers: int) -> None:
    with opened("Taxi-v4", num_workers, info_keys=("prob",)) as env:
        infos = env.step_batch(np.array([0, 1]), env.reset(seed=0).state).infos
        assert set(infos) == {"prob", "_prob", "num_steps"}
    with opened("Taxi-v4", num_workers, info_keys=()) as env:
        infos = env.step_batch(np.array([0, 1]), env.reset(seed=0).state).infos
        assert set(infos) == {"num_steps"}


def test_infos_do_not_depend_on_how_the_batch_is_cut(num_workers: int) -> None:
    with opened(Warehouse, num_workers) as env, opened(Warehouse, 0) as reference:
        rng = np.random.default_rng(0)
        state = env.reset(seed=0).state
        for num_rows in (1, 2, 3, 7):
            actions = rng.integers([0, 0, 0], [3, 3, 2], (num_rows, 3))
            got = env.step_batch(actions, np.repeat(state, num_rows), dt=2).infos
            expected = reference.step_batch(actions, np.repeat(state, num_rows), dt=2).infos
            assert_same(got, expected)


# -- chance ----------------------------------------------------------------------------------------


def test_seeds_reseed_a_row_as_reset_seeds_np_random(lake: planvec.BatchEnv) -> None:
    env = gymnasium.make("FrozenLake-v1")
    state = lake.reset(seed=0).state
    seeds = np.arange(40, dtype=np.uint64) * 977
    out = lake.step_batch(np.full(40, 2), np.repeat(state, 40), dt=3, seeds=seeds)
    for row, seed in enumerate(seeds.tolist()):
        env.reset(seed=0)
        env.unwrapped.np_random, _ = seeding.np_random(seed)
        for _ in range(out.infos["num_steps"][row]):
            observation, *_ = env.step(2)
        assert out.observations[row] == observation
    assert len(set(out.observations.tolist())) > 1


def test_without_seeds_the_generator_in_the_state_decides(lake: planvec.BatchEnv) -> None:
    state = lake.reset(seed=0).state
    out = lake.step_batch(np.full(30, 2), np.repeat(state, 30))
    assert len(set(out.observations.tolist())) == 1


def test_random_rollouts_draw_each_row_from_its_own_stream(lake: planvec.BatchEnv) -> None:
    state = lake.reset(seed=0).state
    all_rows = lake.rollout_batch(np.repeat(state, 50), 30, action_seed=9)
    fewer = lake.rollout_batch(np.repeat(state, 20), 30, action_seed=9)
    other = lake.rollout_batch(np.repeat(state, 50), 30, action_seed=10)
    assert_same(all_rows.num_steps[:20], fewer.num_steps)
    assert same_states(all_rows.final_states[:20], fewer.final_states)
    assert len(set(all_rows.num_steps.tolist())) > 3
    assert all_rows.num_steps.tolist() != other.num_steps.tolist()


def test_a_longer_rollout_begins_with_the_shorter_one(cartpole: planvec.BatchEnv) -> None:
    state = cartpole.reset(seed=0).state
    short = cartpole.rollout_batch(np.repeat(state, 30), 5, action_seed=2)
    long = cartpole.rollout_batch(np.repeat(state, 30), 6, action_seed=2)
    steps = cartpole.step_batch(np.zeros(30, int), short.final_states)
    alternatives = cartpole.step_batch(np.ones(30, int), short.final_states)
    for row in range(30):
        candidates = (steps.new_states[row], alternatives.new_states[row])
        assert long.final_states[row] in candidates or short.terminated[row]


def test_rollouts_with_given_actions_equal_steps(cartpole: planvec.BatchEnv) -> None:
    rng = np.random.default_rng(0)
    states = some_states(cartpole, 10)
    actions = rng.integers(2, size=(10, 25))
    rolled = cartpole.rollout_batch(states, actions=actions, discount=0.97)
    current, returns, weight = states, np.zeros(10), 1.0
    for k in range(25):
        out = cartpole.step_batch(actions[:, k], current)
        returns = returns + weight * out.rewards
        weight *= 0.97
        current = out.new_states
    assert same_states(rolled.final_states, current)
    assert_same(rolled.returns, returns)
    assert_same(rolled.terminated, out.terminated)


# -- observe and render ----------------------------------------------------------------------------


def test_observe_shows_states_without_stepping(cartpole: planvec.BatchEnv) -> None:
    states = some_states(cartpole, 5)
    out = cartpole.step_batch(np.ones(5, int), states)
    assert_same(cartpole.observe(out.new_states), out.observations)
    assert same_states(cartpole.step_batch(np.ones(5, int), states).new_states, out.new_states)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Taxi-v4", "Blackjack-v1"])
def test_render_shows_the_state_as_it_looked_when_it_was_reached(env_id: str, num_workers: int) -> None:
    reference = gymnasium.make(env_id, render_mode="rgb_array")
    reference.reset(seed=0)
    reference.action_space.seed(0)
    with opened(env_id, num_workers, render_mode="rgb_array") as env:
        env.reset(seed=0)
        states, frames = [env.get_state()], [reference.render()]
        for _ in range(6):
            action = reference.action_space.sample()
            *_, terminated, truncated, _ = reference.step(action)
            env.step(action)
            states.append(env.get_state())
            frames.append(reference.render())
            if terminated or truncated:
                break
        shown = env.render(np.concatenate([[state] for state in states]))
        for got, expected in zip(shown, frames, strict=True):
            np.testing.assert_array_equal(got, expected)
    reference.close()


def test_render_without_a_render_mode_says_how_to_get_one(cartpole: planvec.BatchEnv) -> None:
    with pytest.raises(planvec.EnvError, match='render_mode="rgb_array"'):
        cartpole.render(some_states(cartpole, 1))


# -- wrong arguments -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"actions": [1, 1, 1]}, "states: expected 3 rows, one per action, got 2"),
        ({"actions": [[1, 1]]}, r"actions: expected shape \(1,\), got \(1, 2\)"),
        ({"actions": [0.0, 1.0]}, "actions: expected dtype int64, got float64"),
        ({"actions": [0, 2]}, r"actions\[1\]: expected an element of Discrete\(2\), got 2"),
        ({"actions": [-1, 0]}, r"actions\[0\]: expected an element of Discrete\(2\), got -1"),
        ({"actions": [[1], [1, 0]]}, "rows of different shapes"),
        ({"dt": 0}, "dt: expected from 1 to 2147483647, got 0"),
        ({"dt": [1, 0]}, r"dt\[1\]: expected from 1 to 2147483647, got 0"),
        ({"dt": [1, 2, 3]}, r"dt: expected shape \(2,\), got \(3,\)"),
        ({"dt": 2**70}, "dt: expected from 1 to 2147483647, got 1180591620717411303424"),
        ({"dt": [1, 2**40]}, r"dt\[1\]: expected from 1 to 2147483647, got 1099511627776"),
        ({"dt": 1.5}, "dt: expected integers, got dtype float64"),
        ({"seeds": [1]}, r"seeds: expected shape \(2,\), got \(1,\)"),
        ({"seeds": [[1], [2, 3]]}, "seeds: expected one dimension, got rows of different sizes"),
        ({"seeds": [1, 2**64]}, r"seeds: expected integers in \[0, 2\*\*64\)"),
        ({"seeds": [1, -1]}, r"seeds\[1\]: expected at least 0, got -1"),
        ({"seeds": [0.5, 1]}, r"seeds: expected integers in \[0, 2\*\*64\), got dtype float64"),
        ({"states": np.zeros(2)}, "states: expected dtype .* got float64"),
        ({"states": np.zeros((2, 4))}, "states: expected dtype"),
    ],
)
def test_a_wrong_argument_is_named_before_anything_is_sent(
    cartpole: planvec.BatchEnv, arguments: dict[str, Any], message: str
) -> None:
    states = some_states(cartpole, 2)
    before = cartpole.stats.num_chunks
    with pytest.raises(planvec.InvalidBatchError, match=message) as caught:
        cartpole.step_batch(**{"actions": [0, 1], "states": states, **arguments})
    assert isinstance(caught.value, ValueError)
    assert cartpole.stats.num_chunks == before


@pytest.mark.parametrize("bad", [np.nan, 2.5, -np.inf])
def test_an_action_that_is_nan_or_outside_the_box_is_refused(num_workers: int, bad: float) -> None:
    with opened("Pendulum-v1", num_workers) as env:
        state = env.reset(seed=0).state
        with pytest.raises(planvec.InvalidBatchError, match=r"actions\[1\]: expected an element of Box"):
            env.step_batch(np.array([[0.0], [bad]]), state)


def test_states_of_another_environment_are_refused(
    cartpole: planvec.BatchEnv, lake: planvec.BatchEnv
) -> None:
    with pytest.raises(planvec.InvalidBatchError, match="states: expected dtype"):
        cartpole.step_batch([0], lake.reset(seed=0).state)


def test_a_result_given_for_its_states_is_explained(cartpole: planvec.BatchEnv) -> None:
    start = cartpole.reset(seed=0)
    out = cartpole.step_batch([0, 1])
    promise = cartpole.step_batch([0, 1], blocking=False)
    for wrong, hint in ((start, r"got Start; pass its \.state"), (out, r"pass its \.new_states")):
        with pytest.raises(planvec.InvalidBatchError, match=hint):
            cartpole.step_batch([0, 1], wrong)
        with pytest.raises(planvec.InvalidBatchError, match=hint):
            cartpole.observe(wrong)
    with pytest.raises(planvec.InvalidBatchError, match=r"got a promise; call its result\(\)"):
        cartpole.step_batch([0, 1], promise)


def test_saved_states_of_another_codec_are_refused(num_workers: int) -> None:
    with opened("CartPole-v1", 0, codec="replay") as replay:
        foreign = replay.reset(seed=0).state
    refused = pytest.raises(planvec.InvalidBatchError, match="expected a state of Warehouse")
    with opened(Warehouse, num_workers) as env, refused:
        env.step_batch([[0, 0, 0]], foreign)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"horizon": 0}, "horizon: expected an integer from 1 to 2147483647, got 0"),
        ({"horizon": 2.5}, "horizon: expected an integer"),
        ({"horizon": None}, "horizon: expected an integer of at least 1 because no actions are given"),
        ({"discount": "x"}, "discount: expected a number"),
        ({"discount": 1.5}, r"discount: expected a number in \[0, 1\], got 1.5"),
        ({"action_seed": -1}, r"action_seed: expected an integer in \[0, 2\*\*64\), got -1"),
        ({"actions": [[0, 1]]}, r"actions: expected shape \(B, 3, \*action shape\), got \(1, 2\)"),
    ],
)
def test_a_wrong_rollout_argument_is_named(
    cartpole: planvec.BatchEnv, arguments: dict[str, Any], message: str
) -> None:
    state = cartpole.reset(seed=0).state
    with pytest.raises(planvec.InvalidBatchError, match=message):
        cartpole.rollout_batch(state, **{"horizon": 3, **arguments})


def test_an_action_of_the_wrong_structure_is_refused(num_workers: int) -> None:
    with opened(Plane, num_workers) as env:
        with pytest.raises(
            planvec.InvalidBatchError, match="actions: expected a tuple of 2 arrays, got dict"
        ):
            env.step_batch({"jump": [1]})
        moves = np.zeros((2, 2), np.float32)
        with pytest.raises(planvec.InvalidBatchError, match="the same number of rows in every part"):
            env.step_batch((moves, {"jump": np.array([1])}))
        with pytest.raises(planvec.InvalidBatchError, match=r"actions\[1\]: expected a dict of arrays"):
            env.step_batch((moves, {"leap": np.array([1, 1])}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"info_keys": "lives"}, "info_keys: expected a sequence of strings"),
        ({"timeout": -1}, "timeout: expected seconds above 0, or None, got -1"),
        ({"max_restarts": "a"}, "max_restarts: expected an integer of at least 0, got 'a'"),
        ({"blocking": "no"}, "blocking: expected True or False, got 'no'"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], message: str, num_workers: int) -> None:
    with pytest.raises(planvec.InvalidBatchError, match=message):
        opened("CartPole-v1", num_workers, **options)


# -- in one process alone --------------------------------------------------------------------------


def test_a_plan_env_and_a_batch_env_are_batch_steppers() -> None:
    with PlanEnv("CartPole-v1") as one, planvec.make("CartPole-v1", num_workers=0) as other:
        assert isinstance(one, planvec.BatchStepper)
        assert isinstance(other, planvec.BatchStepper)


def test_a_plan_env_takes_an_environment_a_factory_or_an_id() -> None:
    spec = gymnasium.spec("CartPole-v1")
    sources: list[Any] = ["CartPole-v1", spec, lambda: gymnasium.make(spec), gymnasium.make("CartPole-v1")]
    states = []
    for source in sources:
        with PlanEnv(source) as env:
            states.append(env.reset(seed=4).state)
    assert all(state == states[0] for state in states)


def test_what_is_no_environment_is_refused() -> None:
    with pytest.raises(TypeError, match=r"env: expected a Gymnasium id, .* got int"):
        PlanEnv(lambda: 3)  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match="every worker makes its own"):
        planvec.make(gymnasium.make("CartPole-v1"))  # type: ignore[arg-type]
    with pytest.raises(gymnasium.error.Error, match="CartPol"):
        planvec.make("CartPol-v1")
    with pytest.raises(ValueError, match="num_workers: expected an integer of at least 0, got -1"):
        planvec.make("CartPole-v1", num_workers=-1)


def test_a_closed_plan_env_says_so() -> None:
    env = PlanEnv("CartPole-v1")
    env.close()
    env.close()
    with pytest.raises(planvec.ClosedError):
        env.step_batch([0])


def test_an_error_of_the_environment_names_row_and_action_in_process_too() -> None:
    with PlanEnv(Faulty) as env:
        env.reset(seed=0, options=ARMED)
        with pytest.raises(planvec.EnvError, match="row 2, action 1: ValueError: the rocket") as caught:
            env.step_batch(np.array([0, 0, 1, 0]))
        assert isinstance(caught.value.__cause__, ValueError)
        assert env.step_batch(np.array([0, 0])).rewards.tolist() == [1.0, 1.0]


def test_ctrl_c_passes_through_a_plan_env() -> None:
    with PlanEnv(Faulty) as env:
        env.reset(seed=0, options=ARMED)
        with pytest.raises(KeyboardInterrupt):
            env.step_batch(np.array([fault("keyboard_interrupt")]))
