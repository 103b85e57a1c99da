"""The swarm planner: its rules one by one, and that it solves what it should."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import planvec
from planvec.planners.distance import Features, observation_features
from planvec.planners.plan import Plan
from planvec.planners.root_actions import mean_action, tally, winner
from planvec.planners.swarm import clone_sources, relativize
from planvec.planners.walkers import Lineage, Walkers
from planvec.random_actions import uniform_actions

SMALL = planvec.Swarm(num_walkers=16, horizon=8, dt=(1, 4))


def plan(env_id: str, planner: planvec.Swarm = SMALL, seed: int = 0, **kwargs: Any) -> Plan:
    with planvec.PlanEnv(env_id, **kwargs) as env:
        return planner.plan(env, env.reset(seed=0).state, seed=seed)


def walkers(
    returns: list[float], num_steps: list[int], terminated: list[bool], states: Any = None
) -> Walkers:
    count = len(returns)
    return Walkers(
        states=np.arange(count) if states is None else states,
        features=Features(np.arange(count)[:, None] * 1.0, np.arange(count)[:, None]),
        returns=np.array(returns, float),
        num_steps=np.array(num_steps),
        root_actions=np.arange(count) % 3,
        terminated=np.array(terminated),
        truncated=np.zeros(count, bool),
    )


def same(one: Plan, other: Plan) -> bool:
    return all(
        np.array_equal(getattr(one, field.name), getattr(other, field.name), equal_nan=True)
        for field in dataclasses.fields(Plan)
        if field.name not in ("elapsed", "stop_reason")
    )


# -- the rules ------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
def test_relativize_equals_its_definition(scale: float) -> None:
    values = np.random.default_rng(0).normal(3.0, scale, 50)
    mean = sum(values) / 50
    std = math.sqrt(sum((value - mean) ** 2 for value in values) / 50)
    expected = [1 + math.log(1 + z) if z > 0 else math.exp(z) for z in ((v - mean) / std for v in values)]
    np.testing.assert_allclose(relativize(values), expected, rtol=1e-6)


@pytest.mark.parametrize("value", [0.0, -7.0, 0.1, 1e12])
def test_relativize_makes_equal_values_ones(value: float) -> None:
    assert (relativize(np.full(7, value)) == 1.0).all()
    assert (relativize(np.cumsum(np.full(7, value / 7))[[6, 6]]) == 1.0).all()


def test_the_dead_always_clone_and_are_never_companions() -> None:
    generator = np.random.default_rng(0)
    for _ in range(200):
        dead = generator.random(20) < 0.6
        dead[generator.integers(20)] = False
        sources = clone_sources(generator, generator.random(20), dead, np.array([0]))
        assert not dead[sources].any()
        stayed = sources == np.arange(20)
        assert not (stayed & dead).any()


def test_cloning_happens_as_often_as_its_definition_says() -> None:
    generator = np.random.default_rng(0)
    worth = np.array([1.0, 1.4])
    alive, nobody = np.zeros(2, bool), np.array([], np.int64)
    sources = [clone_sources(generator, worth, alive, nobody) for _ in range(4000)]
    clones = np.mean([source[0] == 1 for source in sources])
    assert clones == pytest.approx(0.5 * 0.4, abs=0.03)  # half of the companions are itself
    assert all(source[1] == 1 for source in sources)


def test_a_kept_walker_is_not_cloned_over() -> None:
    generator = np.random.default_rng(0)
    worth, alive = np.array([1e-9, 5.0, 5.0]), np.zeros(3, bool)
    assert all(clone_sources(generator, worth, alive, np.array([0]))[0] == 0 for _ in range(50))


def test_cloning_takes_every_field_of_the_companion() -> None:
    swarm = walkers([1, 2, 3], [4, 5, 6], [False, True, False])
    swarm.truncated = np.array([True, False, False])
    before = dataclasses.replace(swarm)
    sources = np.array([2, 2, 0])
    swarm.take(sources)
    for field in dataclasses.fields(Walkers):
        parts = zip(
            np.atleast_1d(getattr(before, field.name)),
            np.atleast_1d(getattr(swarm, field.name)),
            strict=True,
        )
        if field.name == "features":
            assert all((now == was[sources]).all() for was, now in parts)
        else:
            assert (getattr(swarm, field.name) == getattr(before, field.name)[sources]).all()


def test_walkers_of_different_age_are_compared_at_the_same_age() -> None:
    costly = walkers([-4, -9, -6], [4, 9, 6], [False] * 3)
    assert costly.values().tolist() == [-9, -9, -9]
    paying = walkers([4, 9, 6], [4, 9, 6], [False, False, True])
    assert paying.values().tolist() == [9, 9, 6]


def test_ending_is_death_where_steps_pay() -> None:
    swarm = walkers([4, 9, 7], [4, 9, 7], [False, False, True])
    assert swarm.dead(swarm.values()).tolist() == [False, False, True]


def test_ending_is_a_success_where_steps_cost() -> None:
    swarm = walkers([-4, -9, -7], [4, 9, 7], [False, False, True])
    assert not swarm.dead(swarm.values()).any()


def test_a_hole_is_death_and_a_goal_is_not() -> None:
    swarm = walkers([0, 0, 1], [5, 3, 4], [False, True, True])
    assert swarm.dead(swarm.values()).tolist() == [False, True, False]


@pytest.mark.parametrize("value", [0.0, 0.1, -0.7])
def test_some_walker_lives_even_when_all_have_ended(value: float) -> None:
    equal = walkers([value] * 3, [2] * 3, [True] * 3)
    assert not equal.dead(equal.values()).any()
    mixed = walkers([0, 0, 1], [2] * 3, [True] * 3)
    assert mixed.dead(mixed.values()).tolist() == [True, True, False]


def test_labels_differ_or_not_and_numbers_are_in_standard_deviations() -> None:
    space = spaces.Dict({"cell": spaces.Discrete(100), "x": spaces.Box(-9, 9, (2,))})
    stacked = {"cell": np.array([3, 3, 99]), "x": np.array([[0, 0], [0.02, 0], [0, 0]], np.float32)}
    features = observation_features(space, stacked, 3)
    companions, everyone = np.array([1, 0, 0]), np.arange(3)
    spread = float(np.std([0, 0.02, 0]))
    expected = [0.02 / spread, 0.02 / spread, 1.0]
    np.testing.assert_allclose(features.distances(companions, everyone), expected, rtol=1e-6)


def test_parts_without_a_distance_do_not_count() -> None:
    space = spaces.Dict({"note": spaces.Text(5), "bits": spaces.MultiBinary(2)})
    stacked = {"note": ("a", "b"), "bits": np.array([[0, 1], [0, 1]], np.int8)}
    features = observation_features(space, stacked, 2)
    assert features.distances(np.array([1, 0]), np.arange(2)).tolist() == [0, 0]


def test_a_branch_is_traced_through_its_clones() -> None:
    lineage = Lineage()
    lineage.append(np.array([10, 11, 12]), np.array([1, 2, 3]), np.array([0, 1, 1]))
    lineage.append(np.array([20, 21, 22]), np.array([4, 0, 6]), np.array([2, 1, 0]))
    assert [part.tolist() for part in lineage.branch(0)] == [[11, 22], [2, 6]]
    assert [part.tolist() for part in lineage.branch(1)] == [[11], [2]]


# -- actions --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3, start=-1),
        spaces.MultiDiscrete([2, 5], start=[1, -2]),
        spaces.MultiBinary((2, 2)),
        spaces.Box(np.array([-2, 0.1], np.float32), np.array([2, 0.1], np.float32)),
        spaces.Box(0, 255, (2,), np.uint8),
    ],
    ids=lambda space: type(space).__name__,
)
def test_drawn_actions_are_in_their_space(space: Any) -> None:
    actions = uniform_actions(space, np.random.default_rng(0), 300)
    assert actions.dtype == space.dtype
    assert all(space.contains(action) for action in actions)
    if isinstance(space, spaces.Box):
        assert space.contains(mean_action(space, actions))
    distinct, counts, means = tally(space, actions, np.arange(300.0))
    for action, count, mean in zip(distinct, counts, means, strict=True):
        rows = [row for row in range(300) if np.array_equal(actions[row], action)]
        assert (count, mean) == (len(rows), pytest.approx(np.mean(rows)))


def test_the_most_carried_action_wins_and_ties_go_to_the_mean_return_then_the_index() -> None:
    assert winner(np.array([1, 3, 2]), np.array([9.0, 0.0, 9.0])) == 1
    assert winner(np.array([3, 3, 0]), np.array([1.0, 2.0, np.nan])) == 1
    assert winner(np.array([0, 3, 3]), np.array([np.nan, 2.0, 2.0])) == 1


def test_an_action_space_without_uniform_draws_is_refused() -> None:
    class Unbounded(gymnasium.ActionWrapper):
        def __init__(self, env: Any) -> None:
            super().__init__(env)
            self.action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

        def action(self, action: Any) -> Any:
            return np.clip(action, -2, 2)

    with planvec.PlanEnv(lambda: Unbounded(gymnasium.make("Pendulum-v1")), codec="copied") as env:
        state = env.reset(seed=0).state
        with pytest.raises(planvec.UnsupportedEnvError, match="finite bounds.*RescaleAction"):
            SMALL.plan(env, state)


# -- whole plans ----------------------------------------------------------------------------------

FACTORIES: dict[str, Callable[[], Any]] = {
    "CartPole": lambda: gymnasium.make("CartPole-v1"),
    "Pendulum": lambda: gymnasium.make("Pendulum-v1"),
    "FrozenLake": lambda: gymnasium.make("FrozenLake-v1"),
    "Blackjack": lambda: gymnasium.make("Blackjack-v1"),
}


@pytest.mark.parametrize("make", FACTORIES.values(), ids=FACTORIES.keys())
def test_the_same_seed_gives_the_same_plan(make: Callable[[], Any]) -> None:
    with planvec.PlanEnv(make) as env:
        state = env.reset(seed=0).state
        one, other = (SMALL.plan(env, state, seed=5) for _ in range(2))
        assert same(one, other)
        assert env.action_space.contains(one.action)


def test_different_seeds_give_different_plans() -> None:
    assert not same(plan("CartPole-v1", seed=1), plan("CartPole-v1", seed=2))


def test_a_plan_does_not_depend_on_the_number_of_workers() -> None:
    plans = []
    for num_workers in (0, 2):
        with planvec.make("FrozenLake-v1", num_workers=num_workers) as env:
            plans.append(SMALL.plan(env, env.reset(seed=0).state, seed=3))
    assert same(*plans)


def test_a_saved_state_of_variable_size_can_be_planned_at() -> None:
    fixed, copied = plan("CartPole-v1"), plan("CartPole-v1", codec="copied")
    assert same(fixed, copied)


def test_without_a_state_the_base_state_is_planned_at_and_left() -> None:
    with planvec.PlanEnv("CartPole-v1") as env:
        state = env.reset(seed=3).state
        assert same(SMALL.plan(env, seed=1), SMALL.plan(env, state, seed=1))
        assert env.get_state() == state


def test_the_best_branch_has_the_return_that_it_claims() -> None:
    for env_id in ("CartPole-v1", "Pendulum-v1", "Acrobot-v1"):
        with planvec.PlanEnv(env_id) as env:
            states = np.repeat(env.reset(seed=0).state, 1)
            found = SMALL.plan(env, states[0], seed=0)
            total = 0.0
            for action, dt in zip(found.best_actions, found.best_num_steps, strict=True):
                out = env.step_batch(action[None], states, int(dt))
                states, total = out.new_states, total + out.rewards[0]
            assert total == pytest.approx(found.best_return)


def test_the_best_branch_does_not_get_worse_where_nothing_is_random() -> None:
    with planvec.PlanEnv("CartPole-v1") as env:
        states = np.repeat(env.reset(seed=0).state, 1)
        long = planvec.Swarm(num_walkers=16, horizon=20, dt=4)
        first = long.plan(env, states[0], seed=0)
        states = env.step_batch(first.best_actions[:1], states).new_states
        one_walker = planvec.Swarm(num_walkers=1, horizon=20, dt=4)
        then = one_walker.plan(env, states[0], seed=1, previous=first)
        assert then.best_return >= first.best_return - 1


def test_actions_are_held_within_the_range_of_dt() -> None:
    class Spy:
        def __init__(self, env: planvec.PlanEnv) -> None:
            self.env, self.dt = env, []  # type: ignore[var-annotated]

        observation_space = property(lambda self: self.env.observation_space)
        action_space = property(lambda self: self.env.action_space)
        state_dtype = property(lambda self: self.env.state_dtype)

        def step_batch(self, actions: Any, states: Any, dt: Any, **kwargs: Any) -> Any:
            self.dt += dt.tolist()
            assert len(np.unique(kwargs["seeds"])) == len(actions)
            return self.env.step_batch(actions, states, dt, **kwargs)

    with planvec.PlanEnv("Pendulum-v1") as env:
        state = env.reset(seed=0).state
        for dt, expected in (((2, 5), {2, 3, 4, 5}), (3, {3})):
            spy = Spy(env)
            found = dataclasses.replace(SMALL, dt=dt).plan(spy, state, seed=0)
            assert set(spy.dt) == expected
            assert sum(spy.dt) == found.num_env_steps
        with pytest.raises(planvec.InvalidBatchError, match="Spy has no get_state"):
            SMALL.plan(spy)  # type: ignore[arg-type]


def test_counts_add_up_to_the_walkers() -> None:
    for env_id in ("CartPole-v1", "Pendulum-v1"):
        found = plan(env_id)
        assert found.visit_counts.sum() == SMALL.num_walkers
        assert len(found.root_actions) == len(found.action_values)
        assert (found.stop_reason, found.num_iterations) == ("horizon", SMALL.horizon)


def test_the_callback_sees_the_progress_and_stops_the_search() -> None:
    seen = []
    with planvec.PlanEnv("Pendulum-v1") as env:

        def stop_at_three(num_iterations: int, num_env_steps: int) -> bool:
            seen.append((num_iterations, num_env_steps))
            return num_iterations == 3

        found = SMALL.plan(env, env.reset(seed=0).state, seed=0, callback=stop_at_three)
    assert found.stop_reason == "callback"
    assert seen[-1] == (found.num_iterations, found.num_env_steps)
    assert len(seen) == 3


def test_an_ended_state_and_more_than_one_state_are_refused() -> None:
    with planvec.PlanEnv("CartPole-v1", max_episode_steps=3) as env:
        states = np.repeat(env.reset(seed=0).state, 2)
        with pytest.raises(planvec.InvalidBatchError, match="expected one state, got shape"):
            SMALL.plan(env, states)
        ended = env.step_batch([0, 0], states, 3).new_states
        with pytest.raises(planvec.InvalidBatchError, match="got one that has ended"):
            SMALL.plan(env, ended[0])


@pytest.mark.parametrize(
    "wrong", [{"num_walkers": 0}, {"horizon": 0}, {"dt": 0}, {"dt": (3, 2)}, {"reward_scale": -1}]
)
def test_a_number_out_of_range_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        planvec.Swarm(**wrong)


def test_a_plan_finds_the_goal_of_a_dry_lake() -> None:
    found = plan("FrozenLake-v1", planvec.Swarm(), is_slippery=False)
    assert (found.best_return, found.stop_reason) == (1.0, "ended")


def test_a_plan_finds_the_flag_of_the_mountain_car() -> None:
    found = plan("MountainCar-v0", planvec.Swarm())
    assert found.best_num_steps.sum() < 200
    assert found.best_return == -found.best_num_steps.sum()


def test_large_pictures_are_compared_in_sums_of_neighbours() -> None:
    pictures = np.random.default_rng(0).integers(256, size=(3, 70, 80, 3)).astype(np.uint8)
    found = observation_features(spaces.Box(0, 255, (70, 80, 3), np.uint8), pictures, 3)
    flat, block = pictures.reshape(3, -1), 9  # 16,800 numbers in at most 2048
    naive = [
        [row[start : start + block].sum() for start in range(0, 16_800, block)] for row in flat.astype(int)
    ]
    assert np.array_equal(found.numbers, naive)
    small = observation_features(spaces.Box(0, 255, (4,), np.uint8), flat[:, :4], 3)
    assert np.array_equal(small.numbers, flat[:, :4])
