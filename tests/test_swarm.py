"""The swarm and the wave: their rules one by one, and the tasks that they solve."""

from __future__ import annotations

import dataclasses
import itertools
import math
import signal
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from marks import slow_after
from own_environments import Line

import planvec
from planvec.planners.novelty.features import NewFeatures, features_for
from planvec.planners.plan import Plan
from planvec.planners.root_actions import action_statistics, mean_action, most_visited
from planvec.planners.swarm.config import NormalDt, SwarmConfig
from planvec.planners.swarm.iteration import (
    WALKER_DTYPE,
    Outcomes,
    append_moves,
    clone_sources,
    distances,
    extrapolate_returns,
    find_dead,
    keep_elites,
    observation_features,
    pick,
    relativize,
)
from planvec.planners.swarm.search import Lineage, draw_dt
from planvec.rows.random_actions import uniform_actions

SMALL = planvec.Swarm(num_walkers=16, num_iterations=8, dt=(1, 4))
WAVE = planvec.SwarmWave(num_walkers=16, num_iterations=40, dt=(1, 4))


def plan(env_id: str, planner: SwarmConfig = SMALL, seed: int = 0, **options: Any) -> Plan:
    with planvec.PlanEnv(env_id, **options) as env:
        return planner.plan(env, env.reset(seed=0).state, seed=seed)


def walkers(totals: list[float], num_steps: list[int], terminated: list[bool]) -> Any:
    table = np.zeros(len(totals), WALKER_DTYPE)
    table["total"], table["num_steps"], table["terminated"] = totals, num_steps, terminated
    return table


def values_of(table: Any) -> list[float]:
    values = np.empty(len(table))
    extrapolate_returns(table, values)
    return list(values.tolist())


def dead(table: Any) -> list[bool]:
    flags: list[bool] = find_dead(table, np.array(values_of(table))).tolist()
    return flags


def arrays(decision: Plan) -> dict[str, Any]:
    """Return all parts of a plan, except for its time."""
    parts = {field.name: getattr(decision, field.name) for field in dataclasses.fields(Plan)}
    swarm = parts.pop("search_data")
    parts.pop("elapsed")
    for name in ("states", "returns", "num_steps", "nodes", "terminated", "truncated"):
        parts[f"walkers.{name}"] = getattr(swarm, name)
    for name in ("parents", "actions", "num_steps", "rewards"):
        parts[f"lineage.{name}"] = getattr(swarm.lineage, name)
    return parts


def same(one: Plan, other: Plan, *but: str) -> bool:
    """Return whether two plans are equal bit for bit."""
    parts, others = arrays(one), arrays(other)
    return all(
        np.asarray(part).tobytes() == np.asarray(others[name]).tobytes()
        for name, part in parts.items()
        if name not in but
    )


# -- the rules ------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
def test_relativize_equals_its_definition(scale: float) -> None:
    values = np.random.default_rng(0).normal(3.0, scale, 50)
    mean = sum(values) / 50
    std = math.sqrt(sum((value - mean) ** 2 for value in values) / 50)
    expected = [1 + math.log(1 + z) if z > 0 else math.exp(z) for z in ((v - mean) / std for v in values)]
    np.testing.assert_allclose(relativize(values, np.arange(50), 1.0), expected, rtol=1e-6)
    np.testing.assert_allclose(relativize(values, np.arange(50), 2.5), np.power(expected, 2.5), rtol=1e-6)


@pytest.mark.parametrize("value", [0.0, -7.0, 0.1, 1e12])
def test_relativize_makes_equal_values_ones(value: float) -> None:
    for values in (np.full(7, value), np.cumsum(np.full(7, value / 7))[[6, 6]]):
        assert (relativize(values, np.arange(len(values)), 1.0) == 1.0).all()


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_values_that_are_no_numbers_make_all_equal(value: float) -> None:
    assert (relativize(np.array([1.0, value, 3.0]), np.arange(3), 1.0) == 1.0).all()


def test_the_dead_always_clone_and_are_never_companions() -> None:
    generator = np.random.default_rng(0)
    for _ in range(200):
        living = np.flatnonzero(generator.random(20) < 0.4)
        if not len(living):
            continue
        is_dead = np.ones(20, bool)
        is_dead[living] = False
        worth = np.where(is_dead, 0.0, generator.random(20))
        companions = pick(living, generator.random(20))
        assert np.isin(companions, living).all()
        sources = clone_sources(worth, companions, generator.random(20), is_dead, np.arange(20) == living[0])
        assert np.isin(sources, living).all()


def test_cloning_happens_as_often_as_its_definition_says() -> None:
    generator = np.random.default_rng(0)
    worth, living, nobody = np.array([1.0, 1.4]), np.arange(2), np.zeros(2, bool)
    sources = [
        clone_sources(worth, pick(living, generator.random(2)), generator.random(2), nobody, nobody)
        for _ in range(4000)
    ]
    clones = np.mean([source[0] == 1 for source in sources])
    assert clones == pytest.approx(0.5 * 0.4, abs=0.03)  # half of the companions are itself
    assert all(source[1] == 1 for source in sources)


def test_a_kept_walker_is_not_cloned_over() -> None:
    generator = np.random.default_rng(0)
    worth, companions, nobody = np.array([1e-9, 5.0, 5.0]), np.array([1, 2, 0]), np.zeros(3, bool)
    keep = np.array([True, False, False])
    sources = [clone_sources(worth, companions, generator.random(3), nobody, keep) for _ in range(50)]
    assert all(source[0] == 0 for source in sources)


@pytest.mark.parametrize("num_elites", [0, 1, 3, 6, 50])
def test_elites_are_the_living_with_the_best_values(num_elites: int) -> None:
    values = np.random.default_rng(0).permutation(20) * 1.0
    living, keep = np.array([0, 3, 4, 7, 9, 18]), np.zeros(20, bool)
    keep_elites(keep, values, living, num_elites)
    best = sorted(living, key=lambda walker: values[walker], reverse=True)
    assert set(np.flatnonzero(keep)) == set(best[:num_elites])


def test_walkers_of_different_age_are_compared_at_the_same_age() -> None:
    assert values_of(walkers([-4, -9, -6], [4, 9, 6], [False] * 3)) == [-9, -9, -9]
    assert values_of(walkers([4, 9, 6], [4, 9, 6], [False, False, True])) == [9, 9, 6]
    assert values_of(walkers([4, 9, 6], [4, 9, 6], [True] * 3)) == [4, 9, 6]


def test_ending_is_death_where_steps_pay() -> None:
    assert dead(walkers([4, 9, 7], [4, 9, 7], [False, False, True])) == [False, False, True]


def test_ending_is_a_success_where_steps_cost() -> None:
    assert not any(dead(walkers([-4, -9, -7], [4, 9, 7], [False, False, True])))


def test_a_hole_is_death_and_a_goal_is_not() -> None:
    assert dead(walkers([0, 0, 1], [5, 3, 4], [False, True, True])) == [False, True, False]


@pytest.mark.parametrize("value", [0.1, 0.3, -0.7])
def test_no_rounded_mean_makes_an_equal_value_better(value: float) -> None:
    table = walkers([value] * 48, [2] * 48, [False] * 47 + [True])
    assert dead(table) == [False] * 47 + [True]


@pytest.mark.parametrize("value", [0.0, 0.1, -0.7])
def test_some_walker_lives_even_when_all_have_ended(value: float) -> None:
    assert not any(dead(walkers([value] * 3, [2] * 3, [True] * 3)))
    assert dead(walkers([0, 0, 1], [2] * 3, [True] * 3)) == [True, True, False]


def test_labels_differ_or_not_and_numbers_are_in_standard_deviations() -> None:
    space = spaces.Dict({"cell": spaces.Discrete(100), "x": spaces.Box(-9, 9, (2,))})
    stacked = {"cell": np.array([3, 3, 99]), "x": np.array([[0, 0], [0.02, 0], [0, 0]], np.float32)}
    features = observation_features(space, stacked, 3)
    companions, everyone = np.array([1, 0, 0]), np.arange(3)
    spread = float(np.std([0, 0.02, 0]))
    expected = [0.02 / spread, 0.02 / spread, 1.0]
    np.testing.assert_allclose(distances(features, companions, everyone), expected, rtol=1e-6)


def test_parts_without_a_distance_do_not_count() -> None:
    space = spaces.Dict({"note": spaces.Text(5), "bits": spaces.MultiBinary(2)})
    stacked = {"note": ("a", "b"), "bits": np.array([[0, 1], [0, 1]], np.int8)}
    features = observation_features(space, stacked, 2)
    assert distances(features, np.array([1, 0]), np.arange(2)).tolist() == [0, 0]


# -- the tree of branches -------------------------------------------------------------------------


def move(lineage: Lineage, table: Any, actions: Any, num_steps: Any, rewards: Any) -> None:
    """Let every walker move, as an iteration does."""
    lineage.make_room(table)
    flags = np.zeros(len(table), bool)
    outcomes = Outcomes(rewards, num_steps, flags, flags)
    action_bytes = actions.view(np.uint8).reshape(len(table), -1)
    lineage.num_nodes = append_moves(lineage.moves, lineage.num_nodes, table, action_bytes, outcomes)


def test_a_branch_is_traced_through_its_clones() -> None:
    lineage, table = Lineage(spaces.Discrete(99), 3), np.zeros(3, WALKER_DTYPE)
    move(lineage, table, np.array([10, 11, 12]), np.array([1, 2, 3]), np.zeros(3))
    table = table[[0, 1, 1]]
    move(lineage, table, np.array([20, 21, 22]), np.array([4, 0, 6]), np.zeros(3))
    table = table[[2, 1, 0]]
    assert [part.tolist() for part in lineage.sequence(table["node"][0])] == [[11, 22], [2, 6]]
    assert [part.tolist() for part in lineage.sequence(table["node"][1])] == [[11], [2]]
    first, num_moves = lineage.first_moves(table)
    assert (lineage.actions[first].tolist(), num_moves.tolist()) == ([11, 11, 10], [2, 1, 2])


@pytest.mark.parametrize("seed", range(12))
def test_pruning_keeps_exactly_the_moves_that_lead_to_walkers(seed: int) -> None:
    generator = np.random.default_rng(seed)
    num_walkers, share_cloned = int(generator.integers(1, 9)), generator.random()
    lineage, table = Lineage(spaces.Box(-1, 1, (2,)), num_walkers), np.zeros(num_walkers, WALKER_DTYPE)
    naive: list[tuple[Any, ...]] = [()] * num_walkers  # the moves of each walker
    for iteration in range(300):
        actions = generator.random((num_walkers, 2)).astype(np.float32)
        num_steps = generator.integers(0, 3, num_walkers)
        rewards = generator.random(num_walkers)
        move(lineage, table, actions, num_steps, rewards)
        for walker in np.flatnonzero(num_steps):
            made = (iteration, walker, *actions[walker], num_steps[walker], rewards[walker])
            naive[walker] = (*naive[walker], made)
        sources = np.arange(num_walkers)
        cloned = generator.random(num_walkers) < share_cloned
        sources[cloned] = generator.integers(num_walkers, size=cloned.sum())
        table, naive = table[sources], [naive[source] for source in sources]
        if generator.random() < 0.05:
            lineage.prune(table)
            assert lineage.num_nodes == 1 + len({made for moves in naive for made in moves})
    for node, moves in zip(table["node"], naive, strict=True):
        branch_actions, branch_steps = lineage.sequence(int(node))
        assert branch_actions.tolist() == [list(made[2:4]) for made in moves]
        assert branch_steps.tolist() == [made[4] for made in moves]
    first, num_moves = lineage.first_moves(table)
    assert num_moves.tolist() == [len(moves) for moves in naive]
    assert lineage.rewards[first].tolist() == [moves[0][5] if moves else 0 for moves in naive]


def test_the_tree_of_a_long_wave_stays_as_small_as_its_living_branches() -> None:
    generator = np.random.default_rng(0)
    lineage, table = Lineage(spaces.Discrete(2), 32), np.zeros(32, WALKER_DTYPE)
    for _ in range(5000):
        move(lineage, table, table["node"] % 2, np.ones(32, np.int64), np.zeros(32))
        table = table[generator.integers(32, size=32)]
    assert len(lineage.moves.nodes) <= 4 * (5000 + 32 * 32)  # 160,001 moves were made
    lineage.prune(table)
    assert 5000 < lineage.num_nodes < 5000 + 32 * 32
    assert len(lineage.sequence(int(table["node"][0]))[0]) == 5000


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
    statistics = action_statistics(space, actions, np.arange(300.0))
    for action, count, mean, error in zip(*statistics, strict=True):
        rows = [row for row in range(300) if np.array_equal(actions[row], action)]
        assert (count, mean) == (len(rows), pytest.approx(np.mean(rows)))
        expected = np.std(rows, ddof=1) / math.sqrt(count) if count > 1 else np.nan
        assert error == pytest.approx(expected, nan_ok=True)


def test_the_most_carried_action_wins_and_ties_go_to_the_mean_return_then_the_index() -> None:
    assert most_visited(np.array([1, 3, 2]), np.array([9.0, 0.0, 9.0])) == 1
    assert most_visited(np.array([3, 3, 0]), np.array([1.0, 2.0, np.nan])) == 1
    assert most_visited(np.array([0, 3, 3]), np.array([np.nan, 2.0, 2.0])) == 1


def test_an_action_space_without_uniform_draws_is_refused() -> None:
    class Unbounded(gymnasium.ActionWrapper):
        def __init__(self, env: Any) -> None:
            super().__init__(env)
            self.action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

        def action(self, action: Any) -> Any:
            return np.clip(action, -2, 2)

    with planvec.PlanEnv(lambda: Unbounded(gymnasium.make("Pendulum-v1")), codec="copied") as env:
        state = env.reset(seed=0).state
        with pytest.raises(planvec.UnsupportedEnvError, match="finite bounds.*TransformAction"):
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


@pytest.mark.parametrize("env_id", slow_after(1, ["FrozenLake-v1", "CartPole-v1"]))
def test_a_plan_does_not_depend_on_the_number_of_workers(env_id: str) -> None:
    plans: list[list[Plan]] = []
    for num_workers in (0, 1, 3):
        with planvec.make(env_id, num_workers=num_workers) as env:
            state = env.reset(seed=0).state
            plans.append([planner.plan(env, state, seed=3) for planner in (SMALL, WAVE)])
    assert all(same(*pair) for other in plans[1:] for pair in zip(plans[0], other, strict=True))


@pytest.mark.parametrize("planner", [SMALL, WAVE], ids=lambda planner: type(planner).__name__)
@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "Pendulum-v1"])
def test_several_roots_are_planned_at_as_each_would_be(env_id: str, planner: SwarmConfig) -> None:
    with planvec.PlanEnv(env_id) as env:
        states = np.repeat(env.reset(seed=0).state, 3)
        first = planner.plan_batch(env, states, seeds=[1, 2, 3])
        states = env.step_batch(np.array([decision.action for decision in first]), states).new_states
        # One goes on, one begins anew, and one is at a state that its last decision does not lead to.
        previous = [first[0], None, first[1]]
        together = planner.plan_batch(env, states, seeds=[4, 5, 6], previous=previous)
        for root, decision in enumerate(together):
            alone = planner.plan(env, states[root], seed=4 + root, previous=previous[root])
            assert same(decision, alone)


def test_a_saved_state_of_variable_size_can_be_planned_at() -> None:
    fixed, copied = plan("CartPole-v1"), plan("CartPole-v1", codec="copied")
    assert same(fixed, copied, "walkers.states")


def test_without_a_state_the_base_state_is_planned_at_and_left() -> None:
    with planvec.PlanEnv("CartPole-v1") as env:
        state = env.reset(seed=3).state
        assert same(SMALL.plan(env, seed=1), SMALL.plan(env, state, seed=1))
        assert env.get_state() == state


def test_the_best_branch_has_the_return_that_it_claims() -> None:
    for env_id, planner in itertools.product(("CartPole-v1", "Pendulum-v1", "Acrobot-v1"), (SMALL, WAVE)):
        with planvec.PlanEnv(env_id) as env:
            states = np.repeat(env.reset(seed=0).state, 1)
            decision = planner.plan(env, states[0], seed=0)
            total = 0.0
            for action, dt in zip(decision.best_actions, decision.best_num_steps, strict=True):
                out = env.step_batch(action[None], states, int(dt))
                states, total = out.new_states, total + out.rewards[0]
            assert total == pytest.approx(decision.best_return)


def test_the_best_branch_does_not_get_worse_where_nothing_is_random() -> None:
    with planvec.PlanEnv("CartPole-v1") as env:
        states = np.repeat(env.reset(seed=0).state, 1)
        long = planvec.Swarm(num_walkers=16, num_iterations=20, dt=4)
        first = long.plan(env, states[0], seed=0)
        states = env.step_batch(first.best_actions[:1], states).new_states
        one_walker = planvec.Swarm(num_walkers=1, num_iterations=20, dt=4)
        then = one_walker.plan(env, states[0], seed=1, previous=first)
        assert then.best_return >= first.best_return - 1


class Spy:
    """Records the requests."""

    def __init__(self, env: planvec.PlanEnv) -> None:
        self.env, self.dt, self.seeds = env, [], []  # type: ignore[var-annotated]

    observation_space = property(lambda self: self.env.observation_space)
    action_space = property(lambda self: self.env.action_space)
    state_dtype = property(lambda self: self.env.state_dtype)
    is_stochastic = property(lambda self: self.env.is_stochastic)

    def step_batch(self, actions: Any, states: Any, dt: Any, **kwargs: Any) -> Any:
        self.dt += dt.tolist()
        self.seeds.append(kwargs["seeds"])
        return self.env.step_batch(actions, states, dt, **kwargs)


def test_actions_are_held_within_the_range_of_dt() -> None:
    with planvec.PlanEnv("Pendulum-v1") as env:
        state = env.reset(seed=0).state
        evens = lambda generator, num_draws: 2 * generator.integers(1, 3, num_draws)  # noqa: E731
        for dt, expected in (((2, 5), {2, 3, 4, 5}), (3, {3}), (evens, {2, 4})):
            spy = Spy(env)
            decision = dataclasses.replace(SMALL, dt=dt).plan(spy, state, seed=0)
            assert set(spy.dt) == expected
            assert sum(spy.dt) == decision.num_env_steps
        with pytest.raises(planvec.InvalidBatchError, match="Spy has no get_state"):
            SMALL.plan(spy)  # type: ignore[arg-type]


def test_every_step_is_seeded_unless_nothing_is_random() -> None:
    for env_id in ("FrozenLake-v1", "Pendulum-v1"):
        with planvec.PlanEnv(env_id) as env:
            spy = Spy(env)
            SMALL.plan(spy, env.reset(seed=0).state, seed=0)
        if env_id == "Pendulum-v1":
            assert spy.seeds == [None] * SMALL.num_iterations
        else:
            seeds = np.concatenate(spy.seeds)
            assert len(np.unique(seeds)) == len(spy.dt)


def test_the_normal_sampler_is_the_rounded_size_of_a_normal_draw() -> None:
    drawn = draw_dt(NormalDt(2.0, 3.0), np.random.default_rng(7), 1000)
    normal = np.random.default_rng(7).normal(2.0, 3.0, 1000)
    assert drawn.tolist() == [max(1, round(abs(each))) for each in normal]


@pytest.mark.parametrize("sampled", [[0] * 5, [1.5] * 5, [1]], ids=["0", "fractions", "one"])
def test_a_sampler_that_gives_no_numbers_of_steps_is_refused(sampled: list[Any]) -> None:
    with pytest.raises(ValueError, match="dt: expected 5 integers of at least 1 from the sampler"):
        draw_dt(lambda *_: np.array(sampled), np.random.default_rng(0), 5)


@pytest.mark.parametrize("planner", [SMALL, WAVE], ids=lambda planner: type(planner).__name__)
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_counts_add_up_to_the_walkers(env_id: str, planner: SwarmConfig) -> None:
    decision = plan(env_id, planner)
    assert decision.visit_counts.sum() == decision.depth_histogram.sum() == planner.num_walkers
    assert len(decision.root_actions) == len(decision.action_values) == len(decision.standard_errors)
    assert (np.isnan(decision.standard_errors) == (decision.visit_counts < 2)).all()
    assert decision.num_simulations % planner.num_walkers == 0
    assert decision.search_data.lineage.num_steps.sum() <= decision.num_env_steps
    if env_id == "Pendulum-v1":
        assert (decision.stop_reason, decision.num_simulations) == (
            "num_iterations",
            16 * planner.num_iterations,
        )
        assert len(decision.depth_histogram) == planner.num_iterations + 1


def test_the_value_is_that_of_the_action_or_of_all_where_it_is_their_mean() -> None:
    decision = plan("CartPole-v1")
    assert decision.value == decision.action_values[decision.root_actions.tolist().index(decision.action)]
    decision = plan("Pendulum-v1")
    assert decision.value == pytest.approx(np.average(decision.action_values, weights=decision.visit_counts))


@pytest.mark.parametrize("planner", [SMALL, WAVE], ids=lambda planner: type(planner).__name__)
def test_the_callback_sees_the_progress_and_stops_the_search(planner: SwarmConfig) -> None:
    seen = []
    with planvec.PlanEnv("Pendulum-v1") as env:

        def stop_at_three(num_simulations: int, num_env_steps: int) -> bool:
            seen.append((num_simulations, num_env_steps))
            return num_simulations == 48

        decision = planner.plan(env, env.reset(seed=0).state, seed=0, callback=stop_at_three)
    assert decision.stop_reason == "callback"
    assert seen[-1] == (decision.num_simulations, decision.num_env_steps)
    assert [num_simulations for num_simulations, _ in seen] == [16, 32, 48]


@pytest.mark.parametrize("planner", [SMALL, WAVE], ids=lambda planner: type(planner).__name__)
def test_a_spent_budget_stops_the_search(planner: SwarmConfig) -> None:
    decision = plan("Pendulum-v1", dataclasses.replace(planner, max_env_steps=50))
    assert (decision.stop_reason, decision.num_simulations) == ("max_env_steps", 32)
    assert 50 <= decision.num_env_steps < 50 + 4 * 16
    decision = plan("Pendulum-v1", dataclasses.replace(planner, max_seconds=1e-9))
    assert (decision.stop_reason, decision.num_simulations) == ("max_seconds", 0)


@pytest.mark.parametrize("planner", [SMALL, WAVE], ids=lambda planner: type(planner).__name__)
def test_an_ended_state_and_more_than_one_state_are_refused(planner: SwarmConfig) -> None:
    with planvec.PlanEnv("CartPole-v1", env_kwargs={"max_episode_steps": 3}) as env:
        states = np.repeat(env.reset(seed=0).state, 2)
        with pytest.raises(planvec.InvalidBatchError, match="expected one state, got shape"):
            planner.plan(env, states)
        previous = planner.plan(env, states[0], seed=0)
        ended = env.step_batch([0, 0], states, 3).new_states
        for before in (None, previous):
            with pytest.raises(planvec.InvalidBatchError, match="got one that has ended"):
                planner.plan(env, ended[0], previous=before)


@pytest.mark.parametrize("planner", [planvec.Swarm, planvec.SwarmWave])
@pytest.mark.parametrize(
    "wrong",
    [
        *(
            {"num_walkers": 0},
            {"num_walkers": None},
            {"num_iterations": 0},
            {"num_iterations": 2.5},
            {"num_elites": -1},
        ),
        *({"dt": 0}, {"dt": (3, 2)}, {"dt": (1, 2, 3)}, {"dt": 1.5}, {"dt": None}),
        *({"reward_scale": -1}, {"distance_scale": math.nan}, {"distance_scale": "2"}),
        *({"max_env_steps": 0}, {"max_seconds": 0}),
    ],
    ids=str,
)
def test_a_number_out_of_range_is_refused_by_name(planner: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}: expected .*, got "):
        planner(**wrong)


@pytest.mark.parametrize("wrong", [{"mean": -1.0, "std": 1.0}, {"mean": 1.0, "std": math.inf}], ids=str)
def test_a_normal_sampler_out_of_range_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected a number of at least 0, got"):
        NormalDt(**wrong)


def test_a_plan_finds_the_goal_of_a_dry_lake() -> None:
    decision = plan("FrozenLake-v1", planvec.Swarm(), env_kwargs={"is_slippery": False})
    assert (decision.best_return, decision.stop_reason) == (1.0, "ended")


def test_a_plan_finds_the_flag_of_the_mountain_car() -> None:
    decision = plan("MountainCar-v0", planvec.Swarm())
    assert decision.best_num_steps.sum() < 200
    assert decision.best_return == -decision.best_num_steps.sum()


def test_of_large_pictures_bytes_are_compared_that_lie_evenly() -> None:
    pictures = np.random.default_rng(0).integers(256, size=(3, 210, 160, 3)).astype(np.uint8)
    space = spaces.Box(0, 255, (210, 160, 3), np.uint8)
    numbers = observation_features(space, pictures, 3).singles
    looked_at = np.arange(0, 100_800, 63)
    assert np.array_equal(numbers, pictures.reshape(3, -1)[:, looked_at])
    columns = looked_at % 480 // 3
    assert np.diff(np.unique(columns)).max() <= 4  # whatever moves by more is seen somewhere
    small = observation_features(spaces.Box(0, 255, (4,), np.uint8), pictures.reshape(3, -1)[:, :4], 3)
    assert np.array_equal(small.singles, pictures.reshape(3, -1)[:, :4])


# -- waves ----------------------------------------------------------------------------------------


def test_one_wave_finds_the_way_through_a_whole_episode() -> None:
    decision = plan("CartPole-v1", planvec.SwarmWave())
    assert (decision.best_return, decision.best_num_steps.sum(), decision.stop_reason) == (500, 500, "ended")
    assert decision.action == decision.best_actions[0]
    assert decision.value == decision.best_return


def test_a_wave_is_followed_to_its_end_where_nothing_is_random() -> None:
    with planvec.PlanEnv("MountainCar-v0") as env:
        states = np.repeat(env.reset(seed=0).state, 1)
        decision = first = WAVE.plan(env, states[0], seed=0)
        for step, action in enumerate(np.repeat(first.best_actions, first.best_num_steps)):
            assert decision.action == action
            assert decision.best_return == first.best_return + step
            assert decision.best_num_steps.sum() == first.best_num_steps.sum() - step
            assert step == 0 or (decision.num_simulations, decision.num_env_steps) == (0, 1)
            states = env.step_batch([action], states).new_states
            decision = WAVE.plan(env, states[0], seed=step, previous=decision)
        assert decision.num_simulations > 0  # the way is over, and another one is looked for


def test_a_wave_is_planned_anew_where_the_last_one_does_not_lead() -> None:
    with planvec.PlanEnv("CartPole-v1") as env:
        states = np.repeat(env.reset(seed=0).state, 1)
        first = WAVE.plan(env, states[0], seed=0)
        astray = env.step_batch([1 - first.action], states).new_states
        decision = WAVE.plan(env, astray[0], seed=1, previous=first)
        anew = WAVE.plan(env, astray[0], seed=1)
    assert np.array_equal(decision.best_actions, anew.best_actions)
    assert decision.num_env_steps == anew.num_env_steps + 1


def test_a_wave_is_planned_anew_at_every_step_where_chance_decides() -> None:
    with planvec.PlanEnv("FrozenLake-v1") as env:
        states = np.repeat(env.reset(seed=0).state, 1)
        first = WAVE.plan(env, states[0], seed=0)
        states = env.step_batch(first.best_actions[:1], states).new_states
        decision = WAVE.plan(env, states[0], seed=1, previous=first)
        assert same(decision, WAVE.plan(env, states[0], seed=1))


# -- novelty --------------------------------------------------------------------------------------------


def test_features_that_no_walker_has_seen_are_counted() -> None:
    new = NewFeatures(features_for(spaces.MultiDiscrete([5, 5]), None))
    numbers, codes = new.count(np.array([[1, 2], [1, 3], [1, 2]]), 3, None)
    assert numbers.tolist() == [2, 1, 0]
    numbers, _ = new.count(np.array([[4, 4], [1, 2], [3, 4]]), 3, codes)
    assert numbers.tolist() == [2, 0, 1]


def test_features_of_another_number_of_walkers_are_refused() -> None:
    planner = planvec.Swarm(num_walkers=8, novelty_scale=1.0, features=lambda _: np.zeros((3, 2), int))
    with (
        planvec.PlanEnv("CartPole-v1") as env,
        pytest.raises(
            planvec.InvalidBatchError, match=r"features: expected integers \[8, F\], got shape \(3"
        ),
    ):
        planner.plan(env, env.reset(seed=0).state, seed=0)


def test_without_novelty_a_plan_is_what_it_was() -> None:
    plain, other = plan("CartPole-v1"), plan("CartPole-v1", dataclasses.replace(SMALL, novelty_scale=1e-300))
    assert plain.visit_counts.tolist() == other.visit_counts.tolist()
    assert plain.search_data.table.tobytes() == other.search_data.table.tobytes()


@pytest.mark.parametrize(
    "env_id",
    [
        "CartPole-v1",
        pytest.param("MiniGrid-DoorKey-5x5-v0", marks=pytest.mark.slow),
        pytest.param("ALE/Seaquest-v5", marks=pytest.mark.slow),
    ],
)
def test_a_swarm_with_novelty_does_not_depend_on_the_number_of_workers(env_id: str) -> None:
    plain_planner = planvec.Swarm(num_walkers=24, num_iterations=16, dt=(1, 4))
    novel, plans = dataclasses.replace(plain_planner, novelty_scale=1.0), []
    for num_workers in (0, 1, 3):
        with planvec.make(env_id, num_workers=num_workers) as env:
            state = env.reset(seed=0).state
            plans.append(novel.plan(env, state, seed=0))
            plain = plain_planner.plan(env, state, seed=0)
    tables = [one.search_data.table.tobytes() for one in plans]
    assert tables[0] == tables[1] == tables[2]
    assert tables[0] != plain.search_data.table.tobytes()


@pytest.mark.slow
def test_novelty_leads_far_where_no_reward_does() -> None:
    reached = {}
    with planvec.PlanEnv(Line) as env:
        start = env.reset(seed=0).state
        for scale in (0.0, 1.0):
            planner = planvec.Swarm(num_walkers=32, num_iterations=60, dt=1, novelty_scale=scale)
            plans = [planner.plan(env, start, seed=seed) for seed in range(10)]
            ends = [env.observe(one.search_data.states) for one in plans]
            reached[scale] = np.mean([np.abs(places).max() for places in ends])
    assert reached[1.0] > 1.2 * reached[0.0]


def test_features_that_are_no_function_are_refused() -> None:
    with pytest.raises(ValueError, match="features: expected a function of observations, got 3"):
        planvec.Swarm(features=3)


def test_an_interrupt_at_any_moment_is_raised_as_it_is() -> None:
    """numba would turn one into a `SystemError` where a compiled function returns an array."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    generator, num_interrupts = np.random.default_rng(0), 0
    planner = planvec.Swarm(num_walkers=3000, num_iterations=10)
    with planvec.make("CartPole-v1", num_workers=0) as env:
        start = env.reset(seed=0).state
        planner.plan(env, start)  # compiles
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            for _ in range(50):
                signal.setitimer(signal.ITIMER_REAL, float(generator.uniform(1e-4, 0.03)))
                try:
                    for _ in range(100):
                        planner.plan(env, start)
                except KeyboardInterrupt:
                    num_interrupts += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    assert num_interrupts > 40  # NumPy drops some: it ignores errors of attributes that it looks up
