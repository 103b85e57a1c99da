"""Tree search: equal to a naive search node by node, and for any number of workers."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from compare import same_plans
from corridor import GRAPH, Corridor
from gymnasium import spaces
from marks import slow_after
from naive_search import NaiveSearch

import planvec
from planvec import MCTS
from planvec.planners import PlanProgress
from planvec.planners.mcts import simulations
from planvec.planners.mcts.compiled import warm_up
from planvec.planners.mcts.tree import SINGLE, Tree, TreeKind, bytes_per_node
from planvec.rows import Completed

LAKE: dict[str, Any] = {"is_slippery": False}


def cell_value(observations: Any) -> Any:
    """A value function that is no constant."""
    return np.asarray(observations, float).reshape(len(observations), -1).sum(axis=1) / 100


def plan(planner: planvec.Planner, env_id: str, seed: int = 0, **kwargs: Any) -> planvec.Plan:
    with planvec.PlanEnv(env_id, env_kwargs=kwargs) as env:
        return planner.plan(env, env.reset(seed=1).state, seed=seed)


# -- against a naive search --------------------------------------------------------------------------


@pytest.mark.parametrize("value_scale", ["node", "tree", 2.0])
@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        ("CartPole-v1", {"rollout_horizon": 10, "discount": 0.97}),
        ("FrozenLake-v1", {"rollout_horizon": 5, "outcome_widening": (2.0, 0.5)}),
        ("FrozenLake-v1", {"value_fn": cell_value, "selection": "puct", "outcome_widening": (1.0, 1.0)}),
        ("Taxi-v4", {"value_fn": cell_value, "selection": "puct", "discount": 0.9}),
        ("Acrobot-v1", {"rollout_horizon": 3, "max_depth": 4}),
    ],
)
def test_one_simulation_at_a_time_equals_the_naive_search_node_by_node(
    env_id: str, options: dict[str, Any], value_scale: Any
) -> None:
    config = MCTS(num_simulations=150, batch_size=1, value_scale=value_scale, **options)
    with planvec.PlanEnv(env_id) as env:
        state = env.reset(seed=1).state
        naive = NaiveSearch(config, env, state, seed=3)
        for _ in range(150):
            naive.simulate()
        decision = config.plan(env, state, seed=3)
    tree = decision.search_data
    assert tree.num_nodes == len(naive.nodes)
    for node in naive.nodes:
        assert tree.arrays.edge_visits[node.number].tolist() == node.visits
        assert tree.arrays.edge_values[node.number].tolist() == node.means
        assert tree.arrays.edge_samples[node.number].tolist() == node.samples
        assert tree.arrays.ended[node.number] == node.ended
        assert tree.arrays.values[node.number] == node.value
        for action, outcomes in enumerate(node.outcomes):
            children = [tree.arrays.outcome_nodes[index] for index in tree.outcomes(node.number, action)]
            assert children == [outcome.node.number for outcome in reversed(outcomes)]
    assert (tree.arrays.bounds == [naive.lowest, naive.highest]).all()


# -- invariants ------------------------------------------------------------------------------------

CONFIGS = {
    "uct": MCTS(num_simulations=200, rollout_horizon=8),
    "puct": MCTS(num_simulations=200, selection="puct", value_fn=cell_value, root_noise=(0.5, 0.25)),
    "sequential": MCTS(num_simulations=60, batch_size=1, rollout_horizon=8),
    "open loop": MCTS(num_simulations=200, chance="open_loop", rollout_horizon=8, max_depth=6),
    "foresee": MCTS(num_simulations=200, chance="foresee", rollout_horizon=8),
    "graph": MCTS(num_simulations=200, transpositions=True, backup="max", rollout_horizon=0),
    "max": MCTS(num_simulations=200, backup="max", rollout_horizon=8),
    "held": MCTS(num_simulations=100, dt=3, rollout_horizon=8, value_scale="tree"),
    "policy": MCTS(
        num_simulations=60, rollout_policy=lambda seen: np.zeros(len(seen), int), rollout_horizon=3
    ),
}
ENVS: dict[str, dict[str, Any]] = {
    "CartPole-v1": {},
    "FrozenLake-v1": {},
    "Pendulum-v1": {},
}


@pytest.mark.parametrize("env_id", ENVS)
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_nothing_is_lost_in_a_tree(config: MCTS, env_id: str) -> None:
    if env_id == "Pendulum-v1" and config.rollout_policy is not None:
        config = dataclasses.replace(config, rollout_policy=lambda seen: np.zeros((len(seen), 1), np.float32))
    with planvec.PlanEnv(env_id) as env:
        decision = config.plan(env, env.reset(seed=0).state, seed=1)
        assert env.action_space.contains(decision.action)
    tree = decision.search_data
    arrays, count = tree.arrays, tree.num_nodes
    assert not arrays.unobserved[:count].any()
    assert not arrays.edge_unobserved[:count].any()
    assert (
        arrays.visits[0] == decision.visit_counts.sum() == decision.num_simulations == config.num_simulations
    )
    assert (arrays.edge_visits[:count].sum(axis=1) == arrays.visits[:count]).all()
    assert decision.depth_histogram.sum() == decision.num_simulations
    assert decision.stop_reason == "num_simulations"
    assert np.isfinite(decision.value)
    assert len(decision.best_actions) == len(decision.best_num_steps) >= 1


@pytest.mark.parametrize(
    "env_id", [pytest.param(id_, marks=[pytest.mark.slow] * (id_ == "Pendulum-v1")) for id_ in ENVS]
)
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_several_roots_give_the_plans_that_each_gives_alone(config: MCTS, env_id: str) -> None:
    if env_id == "Pendulum-v1" and config.rollout_policy is not None:
        config = dataclasses.replace(config, rollout_policy=lambda seen: np.zeros((len(seen), 1), np.float32))
    with planvec.PlanEnv(env_id) as env:
        states = np.array([env.reset(seed=seed).state for seed in range(3)])
        together = config.plan_batch(env, states, seeds=[4, 5, 6])
        alone = [config.plan(env, state, seed=seed) for state, seed in zip(states, (4, 5, 6), strict=True)]
    assert all(same_plans(one, other) for one, other in zip(together, alone, strict=True))


@pytest.mark.slow
def test_a_plan_does_not_depend_on_the_number_of_workers() -> None:
    for env_id in ("FrozenLake-v1", "Pendulum-v1"):
        plans_of = {}
        for num_workers in (0, 2):
            with planvec.make(env_id, num_workers=num_workers) as env:
                state = env.reset(seed=0).state
                for name, config in CONFIGS.items():
                    if config.rollout_policy is None:
                        plans_of.setdefault(name, []).append(config.plan(env, state, seed=2))
        assert all(same_plans(plans[0], plan) for plans in plans_of.values() for plan in plans[1:])


# -- chance ----------------------------------------------------------------------------------------


class Coin(gymnasium.Env[Any, Any]):
    """Bet on the next toss of a coin: worth 0, with knowledge of the generator 1; or take 0.5."""

    observation_space = spaces.Discrete(3)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.observation = 2
        return 2, {}

    def step(self, action: Any) -> Any:
        self.observation = int(self.np_random.integers(2))
        reward = 0.5 if action == 2 else 1.0 if action == self.observation else -1.0
        return self.observation, reward, True, False, {}


@pytest.mark.parametrize("chance", slow_after(1, ["sample", "open_loop"]))
def test_chance_is_not_foreseen_unless_asked_for(chance: Any) -> None:
    fair = MCTS(num_simulations=400, chance=chance, rollout_horizon=0)
    cheat = dataclasses.replace(fair, chance="foresee")
    won = []
    with planvec.PlanEnv(Coin) as env:
        for seed in range(20):
            state = env.reset(seed=seed).state
            decision = fair.plan(env, state, seed=seed)
            assert decision.action == 2
            assert decision.value == pytest.approx(0.5)
            foreseen = cheat.plan(env, state, seed=seed)
            won.append(float(env.step_batch([foreseen.action], np.array([state])).rewards[0]))
    assert won == [1.0] * 20


def test_outcomes_of_an_action_are_nodes_of_their_own_and_counted() -> None:
    config = MCTS(num_simulations=300, outcome_widening=(1.0, 1.0), rollout_horizon=0)
    tree = plan(config, "FrozenLake-v1").search_data
    for action in range(4):
        outcomes = tree.outcomes(0, action)
        cells = tree.states["cell"][tree.arrays.outcome_nodes[outcomes]].tolist()
        assert len(set(cells)) == len(cells) <= 3
        assert tree.arrays.outcome_counts[outcomes].sum() == tree.arrays.edge_samples[0, action]


class Chain(gymnasium.Env[Any, Any]):
    """Six times right is worth 1, left ends with 0.1. Its states are of variable size."""

    observation_space = spaces.Discrete(7)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place = 0
        return 0, {}

    def step(self, action: Any) -> Any:
        if action == 0:
            return self.place, 0.1, True, False, {}
        self.place += 1
        return self.place, float(self.place == 6), self.place == 6, False, {}


def test_outcomes_are_found_again_in_states_of_variable_size() -> None:
    with planvec.PlanEnv(Chain, codec="copied") as env:
        state = env.reset(seed=0).state
        assert state.without_generator != bytes(state)
        decision = MCTS(num_simulations=2000, rollout_horizon=0, exploration=2.0).plan(env, state, seed=0)
        assert decision.action == 1
        assert decision.search_data.num_nodes <= 13
        after = env.step_batch([1], np.array([state])).new_states
        assert decision.search_data.advance(1, after) is not None


def test_priors_of_an_open_loop_are_those_that_were_asked_for() -> None:
    config = MCTS(num_simulations=400, chance="open_loop", selection="puct", rollout_horizon=0)
    tree = plan(config, "FrozenLake-v1").search_data
    assert (tree.arrays.priors[: tree.num_nodes] == 0.25).all()


@pytest.mark.parametrize("options", [{}, {"transpositions": True}, {"chance": "open_loop"}])
@pytest.mark.parametrize("max_depth", [1, 2])
def test_rollouts_under_way_are_not_taken_for_worthless(max_depth: int, options: dict[str, Any]) -> None:
    values = []
    for batch_size in (1, 16, 64):
        config = MCTS(
            num_simulations=256, rollout_horizon=50, max_depth=max_depth, batch_size=batch_size, **options
        )
        values.append(plan(config, "CartPole-v1").value)
    assert min(values) > 0.7 * max(values) > 7


def test_a_best_action_sequence_does_not_go_round_in_circles() -> None:
    config = MCTS(num_simulations=500, transpositions=lambda states: states["cell"], rollout_horizon=0)
    decision = plan(config, "FrozenLake-v1")
    assert len(decision.best_actions) < 16


def test_equal_states_share_a_node() -> None:
    config = MCTS(num_simulations=2000, transpositions=lambda states: states["cell"], rollout_horizon=0)
    tree = plan(config, "FrozenLake-v1", **LAKE).search_data
    cells = tree.states["cell"][: tree.num_nodes]
    assert len(set(cells.tolist())) == len(cells) <= 16


# -- the next decision, files ----------------------------------------------------------------------


def test_a_tree_goes_on_with_the_action_that_was_taken() -> None:
    config = MCTS(num_simulations=200, rollout_horizon=8)
    with planvec.PlanEnv("CartPole-v1") as env:
        state = env.reset(seed=0).state
        first = config.plan(env, state, seed=0)
        out = env.step_batch([first.action], np.array([state]))
        child = first.search_data.outcomes(0, int(first.action))[0]
        node = int(first.search_data.arrays.outcome_nodes[child])
        part = first.search_data.advance(first.action, out.new_states[0])
        assert part.arrays.visits[0] == first.search_data.arrays.visits[node]
        assert part.arrays.edge_values[0].tolist() == first.search_data.arrays.edge_values[node].tolist()
        assert part.states[0] == out.new_states[0]
        second = config.plan(env, out.new_states, seed=1, previous=first)
        assert second.visit_counts.sum() == second.num_simulations + part.arrays.visits[0]
        fresh = dataclasses.replace(config, reuse_tree=False).plan(
            env, out.new_states, seed=1, previous=first
        )
        assert fresh.visit_counts.sum() == fresh.num_simulations
        other = config.plan(env, env.reset(seed=9).state, seed=1, previous=first)
        assert other.visit_counts.sum() == other.num_simulations


@pytest.mark.parametrize("kind", slow_after(1, ["puct", "legal", "uct"]))
def test_episodes_are_played_with_trees_of_any_size(kind: str) -> None:
    options: dict[str, Any] = {"selection": "puct"} if kind == "puct" else {}
    if kind == "legal":
        options["legal_actions"] = lambda seen: np.tile([True, True, False, True], (len(seen), 1))
    for num_simulations in (1, 2, 4, 32):
        config = MCTS(num_simulations=num_simulations, rollout_horizon=5, **options)
        with planvec.PlanEnv("FrozenLake-v1") as env:
            for seed in range(4):
                assert planvec.run_episode(env, config, seed=seed, max_steps=12).num_steps


def test_a_tree_of_another_kind_is_refused_by_resume_and_left_by_plan() -> None:
    with planvec.PlanEnv("FrozenLake-v1") as env:
        state = env.reset(seed=0).state
        first = MCTS(num_simulations=50, transpositions=True, rollout_horizon=0).plan(env, state, seed=0)
        for options, message in (
            ({}, "shares_nodes: False, got True"),
            ({"transpositions": True, "discount": 0.5}, "discount: 0.5, got 1.0"),
            ({"transpositions": True, "dt": 2}, "dt: 2, got 1"),
        ):
            config = MCTS(num_simulations=20, rollout_horizon=0, **options)
            with pytest.raises(planvec.InvalidBatchError, match=message):
                config.resume(env, first.search_data)
            assert config.plan(env, state, seed=1, previous=first).visit_counts.sum() == 20


def test_an_open_loop_goes_on_with_its_tree() -> None:
    config = MCTS(num_simulations=200, chance="open_loop", rollout_horizon=0)
    with planvec.PlanEnv("FrozenLake-v1") as env:
        state = env.reset(seed=0).state
        first = config.plan(env, state, seed=0)
        after = env.step_batch([first.action], np.array([state])).new_states
        tree = config.plan(env, after, seed=1, previous=first).search_data
    assert all(len(tree.outcomes(0, action)) == 1 for action in range(4))


@pytest.mark.parametrize("name", ["uct", "graph", "puct"])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "FrozenLake-v1", "Pendulum-v1"])
def test_a_saved_search_goes_on_as_if_it_had_not_been_saved(name: str, env_id: str, tmp_path: Path) -> None:
    config = CONFIGS[name]
    with planvec.PlanEnv(env_id) as env:
        tree = config.plan(env, env.reset(seed=0).state, seed=0).search_data
        tree.save(tmp_path / "tree.npz")
        loaded = Tree.load(tmp_path / "tree.npz")
        assert loaded.num_nodes == tree.num_nodes
        assert same_plans(config.resume(env, tree, seed=5), config.resume(env, loaded, seed=5))


def test_a_tree_that_was_advanced_is_whole() -> None:
    config = MCTS(num_simulations=300, outcome_widening=(2.0, 0.5), rollout_horizon=4)
    with planvec.PlanEnv("FrozenLake-v1") as env:
        tree = config.plan(env, env.reset(seed=0).state, seed=0).search_data
        for action in range(4):
            part = tree.advance(action)
            count = part.num_nodes
            assert (part.arrays.edge_visits[:count].sum(axis=1) == part.arrays.visits[:count]).all()
            for node in range(count):
                for edge in range(4):
                    for outcome in part.outcomes(node, edge):
                        child = part.arrays.outcome_nodes[outcome]
                        assert part.arrays.parents[child] == node
            again = config.resume(env, part, seed=1)
            assert again.visit_counts.sum() == part.arrays.visits[0] + 300


# -- what can be set -------------------------------------------------------------------------------


def test_illegal_actions_are_never_taken() -> None:
    def not_left(observations: Any) -> Any:
        return np.tile([False, True, True, True], (len(observations), 1))

    for name in ("uct", "puct"):
        config = MCTS(num_simulations=200, legal_actions=not_left, selection=name, rollout_horizon=0)
        tree = plan(config, "FrozenLake-v1").search_data
        assert not tree.arrays.edge_visits[: tree.num_nodes, 0].any()


def test_legal_actions_are_read_from_the_info() -> None:
    config = MCTS(num_simulations=300, legal_actions="action_mask", rollout_horizon=0)
    with planvec.PlanEnv("Taxi-v4") as env:
        start = env.reset(seed=0)
        tree = config.plan(env, start.state, seed=0, info=start.info).search_data
        assert (tree.arrays.edge_visits[0][start.info["action_mask"] == 0] == 0).all()
        for node in np.flatnonzero(tree.arrays.visits[: tree.num_nodes] > 6)[1:]:
            parent, action = tree.arrays.parents[node], tree.arrays.parent_actions[node]
            info = env.step_batch([action], tree.states[parent : parent + 1]).infos
            assert (tree.arrays.edge_visits[node][info["action_mask"][0] == 0] == 0).all()
    with (
        planvec.PlanEnv("CartPole-v1") as env,
        pytest.raises(planvec.InvalidBatchError, match="legal_actions: expected the key of an info"),
    ):
        config.plan(env, env.reset(seed=0).state)


def test_priors_draw_the_visits() -> None:
    def up(observations: Any) -> Any:
        return np.tile([0.01, 0.01, 0.01, 0.97], (len(observations), 1))

    config = MCTS(num_simulations=100, selection="puct", prior_fn=up, rollout_horizon=0)
    assert plan(config, "FrozenLake-v1").visit_counts.argmax() == 3
    noisy = dataclasses.replace(config, root_noise=(1.0, 1.0))
    assert plan(noisy, "FrozenLake-v1").visit_counts[3] < plan(config, "FrozenLake-v1").visit_counts[3]


def test_a_root_that_was_a_node_before_gets_its_own_noise() -> None:
    config = MCTS(num_simulations=50, selection="puct", root_noise=(0.3, 0.5), rollout_horizon=0)
    with planvec.PlanEnv("FrozenLake-v1", env_kwargs=LAKE) as env:
        state = env.reset(seed=0).state
        first = config.plan(env, state, seed=0)
        after = env.step_batch([first.action], np.array([state])).new_states
        second = config.plan(env, after, seed=1, previous=first)
    for decision in (first, second):
        priors = decision.search_data.arrays.priors[: decision.search_data.num_nodes]
        assert priors[0].sum() == pytest.approx(1)
        assert len(set(priors[0])) == 4
        assert (priors[1:][~decision.search_data.arrays.ended[1 : len(priors)]] == 0.25).all()


def test_a_search_that_goes_on_adds_no_noise() -> None:
    config = MCTS(num_simulations=50, selection="puct", root_noise=(0.3, 0.5), rollout_horizon=0)
    with planvec.PlanEnv("FrozenLake-v1") as env:
        tree = config.plan(env, env.reset(seed=0).state, seed=0).search_data
        again = config.resume(env, tree, seed=1).search_data
    assert (again.arrays.priors[0] == tree.arrays.priors[0]).all()


def test_widening_counts_legal_actions_only() -> None:
    config = MCTS(
        num_simulations=50,
        widening=(1.0, 0.5),
        legal_actions=lambda seen: np.tile([False, False, True, False], (len(seen), 1)),
        rollout_horizon=0,
    )
    assert plan(config, "FrozenLake-v1").visit_counts.tolist() == [0, 0, 50, 0]


def test_widening_limits_the_actions_that_are_tried() -> None:
    config = MCTS(num_simulations=100, widening=(1.0, 0.5), rollout_horizon=4)
    decision = plan(config, "Pendulum-v1")
    assert len(decision.root_actions) == 10
    assert len(plan(dataclasses.replace(config, max_actions=3), "Pendulum-v1").root_actions) == 3
    assert (plan(dataclasses.replace(config, widening=(2.0, 0.0)), "Acrobot-v1").visit_counts > 0).sum() == 2


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"max_env_steps": 100, "num_simulations": None}, "max_env_steps"),
        ({"max_seconds": 0.05, "num_simulations": None}, "max_seconds"),
        ({"num_simulations": 50}, "num_simulations"),
    ],
)
def test_a_search_ends_when_a_budget_is_spent(options: dict[str, Any], reason: str) -> None:
    decision = plan(MCTS(rollout_horizon=0, **options), "CartPole-v1")
    assert decision.stop_reason == reason
    if reason == "max_env_steps":
        assert 100 <= decision.num_env_steps < 100 + 16


def test_a_search_of_a_tree_that_has_an_end_ends() -> None:
    config = MCTS(
        num_simulations=None,
        max_env_steps=1000,
        transpositions=lambda states: states["cell"],
        rollout_horizon=0,
    )
    decision = plan(config, "FrozenLake-v1", **LAKE)
    assert decision.stop_reason == "exhausted"
    assert decision.num_env_steps < 100


def test_a_search_that_needs_no_steps_ends_in_time() -> None:
    config = MCTS(num_simulations=10**7, max_seconds=0.2, max_depth=2, rollout_horizon=0)
    assert plan(config, "FrozenLake-v1", **LAKE).stop_reason == "max_seconds"


def test_workers_step_for_one_half_while_the_other_learns() -> None:
    class Counting:
        def __init__(self, env: Any) -> None:
            self._env, self.out, self.most = env, 0, 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self._env, name)

        def step_batch(self, *arguments: Any, **options: Any) -> Any:
            self.out += 1
            self.most = max(self.most, self.out)
            promise = self._env.step_batch(*arguments, **options)

            class Returning:
                def result(inner) -> Any:  # noqa: N805
                    self.out -= 1
                    return promise.result()

            return Returning()

    with planvec.PlanEnv("CartPole-v1") as env:
        counting = Counting(env)
        MCTS(num_simulations=300, value_fn=cell_value).plan(counting, env.reset(seed=0).state, seed=0)
    assert counting.most == 2


def test_a_reward_that_is_no_number_is_refused() -> None:
    def make() -> Any:
        return gymnasium.wrappers.TransformReward(gymnasium.make("CartPole-v1"), lambda reward: np.nan)

    with (
        planvec.PlanEnv(make, trust=True) as env,
        pytest.raises(planvec.InvalidBatchError, match="rewards: expected finite numbers, got nan"),
    ):
        MCTS().plan(env, env.reset(seed=0).state)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("horizon", [0, 3])
def test_numbers_that_make_means_nan_are_refused(value: float, horizon: int) -> None:
    """In steps, and in rollouts alone: rewards are numbers until the third step of an episode."""

    class Late(gymnasium.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            observation, reward, *rest = self.env.step(action)
            is_late = abs(observation[1]) > 0.5  # after three pushes to one side
            return observation, value if is_late else reward, *rest

    with planvec.PlanEnv(lambda: Late(gymnasium.make("CartPole-v1")), trust=True) as env:
        what = "returns of rollouts" if horizon else "rewards"
        planner = MCTS(num_simulations=400, rollout_horizon=horizon, max_depth=1 if horizon else 20)
        with pytest.raises(planvec.InvalidBatchError, match=f"{what}: expected finite numbers, got {value}"):
            planner.plan(env, env.reset(seed=0).state, seed=0)


@pytest.mark.slow
def test_standard_errors_are_those_of_the_returns() -> None:
    config = MCTS(num_simulations=400, rollout_horizon=20, max_depth=1, batch_size=1)
    decision = plan(config, "CartPole-v1")
    with planvec.PlanEnv("CartPole-v1") as env:
        out = env.step_batch([0, 1], np.repeat(env.reset(seed=1).state, 2))
        for action in (0, 1):
            returns = env.rollout_batch(np.repeat(out.new_states[[action]], 2000), 20, action_seed=1).returns
            expected = returns.std() / np.sqrt(decision.visit_counts[action])
            assert decision.standard_errors[action] == pytest.approx(expected, rel=0.3)


def test_the_callback_stops_a_search() -> None:
    seen = []

    def stop(num_simulations: int, num_env_steps: int) -> bool:
        seen.append((num_simulations, num_env_steps))
        return num_simulations >= 64

    with planvec.PlanEnv("CartPole-v1") as env:
        decision = MCTS(rollout_horizon=0).plan(env, env.reset(seed=0).state, callback=stop)
    assert decision.stop_reason == "callback"
    assert 64 <= decision.num_simulations < 64 + 16
    assert seen[-1] == (decision.num_simulations, decision.num_env_steps)


def test_a_search_that_would_take_too_much_memory_is_refused_with_the_figure() -> None:
    config = MCTS(num_simulations=1_000_000, max_memory=10_000_000)
    with pytest.raises(
        planvec.InvalidBatchError, match=r"max_memory: expected at least [\d,]{11,} bytes for 1,000,000"
    ):
        plan(config, "CartPole-v1")


def test_a_tree_that_leaves_no_room_for_the_next_decision_is_not_kept() -> None:
    sizes = []
    config = MCTS(num_simulations=1000, max_memory=500_000, rollout_horizon=5)
    with planvec.make("CartPole-v1") as env:
        episode = planvec.run_episode(
            env,
            config,
            seed=0,
            max_steps=20,
            callback=lambda step: sizes.append(step.plan.search_data.num_nodes),
        )
    assert episode.num_steps == 20
    assert 1001 < max(sizes) < 4000  # the tree was kept while there was room
    assert sizes.count(1001) > 1  # and begun anew


@pytest.mark.slow
def test_without_another_limit_memory_ends_a_search() -> None:
    config = MCTS(num_simulations=None, max_seconds=60, max_memory=120_000, rollout_horizon=0)
    decision = plan(config, "CartPole-v1")
    assert decision.stop_reason == "max_memory"
    arrays = [array for array in decision.search_data.arrays if array.size > 4]
    assert sum(array.nbytes for array in arrays) + decision.search_data.states.nbytes <= 120_000


def test_the_docstring_says_what_a_node_takes() -> None:
    factors = re.search(r"`N \* \((\d+) \+ (\d+) A \+ state\)` bytes", MCTS.__doc__ or "")
    assert factors is not None
    kind = TreeKind(False, False, False, False, SINGLE, 1.0, 1)
    assert bytes_per_node(7, 100, 4, kind) == int(factors[1]) + 7 * int(factors[2]) + 100


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_simulations": 0}, "num_simulations: expected an integer of at least 1, got 0"),
        ({"batch_size": 0}, "batch_size: expected"),
        ({"discount": 1.5}, "discount: expected a number from 0 to 1, got 1.5"),
        ({"selection": "ucb"}, r"selection: expected one of \('uct', 'puct'\), got 'ucb'"),
        ({"value_scale": "std"}, "value_scale: expected 'tree', 'node' or a number, got 'std'"),
        ({"widening": (0, 1)}, "widening: expected two numbers"),
        ({"prior_fn": cell_value}, "selection: expected 'puct' together with prior_fn"),
        ({"evaluate_fn": cell_value}, "selection: expected 'puct' together with"),
        ({"evaluate_fn": cell_value, "value_fn": cell_value}, "evaluate_fn: expected it alone"),
        ({"value_fn": cell_value, "rollout_horizon": 5}, "rollout_horizon: expected 0 or None"),
        ({"chance": "open_loop", "backup": "max"}, "chance: expected 'sample' together with"),
        ({"max_seconds": 0}, "max_seconds: expected more than 0"),
        (
            {"chance": "open_loop", "legal_actions": cell_value},
            "chance: expected 'sample' together with legal",
        ),
        ({"widening": (1.0, "a")}, "widening: expected two numbers"),
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MCTS(**options)


def test_a_function_that_returns_the_wrong_shape_is_named() -> None:
    for name, options in {
        "value_fn": {"value_fn": lambda seen: np.zeros((len(seen), 1))},
        "prior_fn": {"prior_fn": lambda seen: np.ones((len(seen), 9)), "selection": "puct"},
        "legal_actions": {"legal_actions": lambda seen: np.zeros((len(seen), 2), bool)},
    }.items():
        with pytest.raises(planvec.InvalidBatchError, match=f"{name}: expected .*got shape"):
            plan(MCTS(**options), "CartPole-v1")


def test_one_function_for_values_and_priors_gives_the_plan_of_two() -> None:
    def priors(observations: Any) -> Any:
        return np.abs(np.sin(np.arange(2) + cell_value(observations)[:, None])) + 0.1

    common: dict[str, Any] = {"num_simulations": 200, "selection": "puct"}
    calls: list[int] = []

    def evaluate(observations: Any) -> Any:
        calls.append(len(observations))
        return cell_value(observations), priors(observations)

    two = plan(MCTS(value_fn=cell_value, prior_fn=priors, **common), "CartPole-v1")
    one = plan(MCTS(evaluate_fn=evaluate, **common), "CartPole-v1")
    assert two.value == one.value
    assert np.array_equal(two.visit_counts, one.visit_counts)
    assert sum(calls) <= 201  # once for each new node


@pytest.mark.parametrize(
    ("evaluate_fn", "message"),
    [
        (lambda seen: np.zeros(len(seen)), r"evaluate_fn: expected a tuple \(values, priors\), got ndarray"),
        (lambda seen: (np.zeros(len(seen)),), r"evaluate_fn: expected a tuple .*, got 1 parts"),
        (lambda seen: (np.zeros((len(seen), 1)), np.ones((len(seen), 2))), "evaluate_fn, values: expected"),
        (lambda seen: (np.zeros(len(seen)), np.ones((len(seen), 3))), "evaluate_fn, priors: expected"),
    ],
)
def test_an_evaluation_of_another_form_is_named(evaluate_fn: Any, message: str) -> None:
    with pytest.raises(planvec.InvalidBatchError, match=message):
        plan(MCTS(evaluate_fn=evaluate_fn, selection="puct"), "CartPole-v1")


def test_nans_of_a_value_function_are_counted() -> None:
    def value(observations: Any) -> Any:
        values = np.zeros(len(observations))
        values[:3] = np.nan
        return values

    with pytest.raises(planvec.InvalidBatchError, match=r"value_fn: expected finite .*, NaN at \d of \d"):
        plan(MCTS(value_fn=value), "CartPole-v1")


def test_results_are_shown_in_one_short_line() -> None:
    planned = plan(MCTS(num_simulations=20), "CartPole-v1")
    assert re.fullmatch(r"<Plan: action \d, value \S+, 20 simulations, \d+ env steps, \w+>", repr(planned))
    assert repr(planned.search_data) == "<Tree: 21 nodes, 2 actions>"
    swarm = plan(planvec.Swarm(num_walkers=8, num_iterations=1, dt=1), "CartPole-v1")
    assert repr(swarm.search_data) == "<Walkers: 8, of which 0 have ended>"
    shot = plan(planvec.CEM(num_trajectories=16, horizon=5), "CartPole-v1")
    assert repr(shot.search_data) == "<Categorical: 5 actions, 8 elites>"


def test_names_of_fields_say_which_states_share_a_node() -> None:
    common: dict[str, Any] = {"num_simulations": 500, "rollout_horizon": 0, "backup": "max"}
    plans = [
        plan(MCTS(transpositions=shared, **common), "Taxi-v4")
        for shared in ("cell", ("cell",), lambda states: states["cell"], True)
    ]
    assert len({planned.search_data.num_nodes for planned in plans[:3]}) == 1
    assert plans[3].search_data.num_nodes > plans[0].search_data.num_nodes
    for planned in plans[1:3]:
        assert np.array_equal(planned.visit_counts, plans[0].visit_counts)
    with pytest.raises(
        planvec.InvalidBatchError, match=r"expected fields of the states \(cell, .*got 'sell'"
    ):
        plan(MCTS(transpositions="sell", **common), "Taxi-v4")
    with pytest.raises(planvec.InvalidBatchError, match=r"transpositions: expected a key for each of"):
        plan(MCTS(transpositions=lambda states: np.zeros(1 + len(states)), **common), "Taxi-v4")


@pytest.mark.slow
def test_progress_is_shown_without_pauses_of_the_search() -> None:
    seen: list[tuple[int, int]] = []
    shown = PlanProgress(lambda *counts: seen.append(counts), seconds=0.0)
    planner = MCTS(num_simulations=3000, rollout_horizon=0)
    for compiled in (True, False):
        with planvec.PlanEnv("CartPole-v1", compiled=compiled) as env:
            state = env.reset(seed=0).state
            planned = planner.plan(env, state, seed=0, callback=shown)
            assert np.array_equal(planned.visit_counts, planner.plan(env, state, seed=0).visit_counts)
        assert seen
        assert seen[-1][0] <= 3000
        seen.clear()


def test_an_ended_state_is_refused() -> None:
    with planvec.PlanEnv("FrozenLake-v1", env_kwargs=LAKE) as env:
        state = env.reset(seed=0).state
        for action in (2, 1):
            state = env.step_batch([action], np.array([state])).new_states[0]
        with pytest.raises(planvec.InvalidBatchError, match="state: expected one whose episode goes on"):
            MCTS().plan(env, state)


@pytest.mark.slow
def test_kernels_are_compiled_once_for_every_kind_of_search() -> None:
    warm_up(MCTS())
    compiled = [simulations.init, *simulations.ENTRANCES]
    for config in CONFIGS.values():
        if config.rollout_policy is None:
            plan(config, "FrozenLake-v1")
            plan(config, "Pendulum-v1")
    assert [len(kernel.signatures) for kernel in compiled] == [1] * len(compiled)


@pytest.mark.slow
def test_a_prepared_planner_compiles_nothing_when_it_plans() -> None:
    program = """
        import planvec
        planner = planvec.MCTS(num_simulations=20)
        planner.prepare()
        from planvec.planners.mcts import compiled, simulations

        def compiled_now(loop, *types):
            raise AssertionError(loop)

        compiled.compile_loop = simulations.compile_loop = compiled_now
        class Driven(planvec.PlanEnv):
            def step_batch(self, *args, **options):
                return super().step_batch(*args, **options)

        for kind in (planvec.PlanEnv, Driven):
            with kind("CartPole-v1", compiled=False) as env:
                planner.plan(env, env.reset(seed=0).state, seed=0)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=100)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        *[(name, lambda part: part[:-1]) for name in ("rewards", "new_states", "terminated")],
        ("terminated", lambda flags: flags.astype(float)),
        ("rewards", lambda rewards: rewards[:, None]),
        ("rewards", lambda rewards: rewards.tolist()),
        ("new_states", lambda states: states[:, None]),
    ],
)
def test_a_stepper_that_returns_other_sizes_or_types_is_refused(name: str, change: Any) -> None:
    """Compiled code would read beyond the results, or take the bytes of floats for flags."""

    class Other(planvec.PlanEnv):
        def step_batch(self, *args: Any, **kwargs: Any) -> Any:
            out = super().step_batch(*args, **{**kwargs, "blocking": True})
            return Completed(out._replace(**{name: change(getattr(out, name))}))

    message = rf"step_batch: expected arrays of \d+ rows: .*got .*{name} "
    with Other("CartPole-v1", compiled=False) as env, pytest.raises(planvec.InvalidBatchError, match=message):
        MCTS(num_simulations=20).plan(env, env.reset(seed=0).state, seed=0)


# -- the previous decision ------------------------------------------------------------------------------


@pytest.mark.parametrize("planner", [MCTS(num_simulations=8), planvec.Swarm(num_walkers=8), planvec.IW()])
def test_a_previous_plan_of_another_environment_is_refused(planner: planvec.Planner) -> None:
    with planvec.PlanEnv("MountainCar-v0") as other:
        before = planner.plan(other, other.reset(seed=0).state, seed=0)
    with planvec.PlanEnv("CartPole-v1") as env:
        state = env.reset(seed=0).state
        with pytest.raises(planvec.InvalidBatchError, match="previous: expected a plan of this environment"):
            planner.plan(env, state, seed=0, previous=before)
        with pytest.raises(planvec.InvalidBatchError, match="previous: expected a plan of this environment"):
            planner.plan_batch(env, np.array([state]), previous=[before])
        with pytest.raises(TypeError, match=r"previous: expected a planvec.Plan or None, got 'x'"):
            planner.plan(env, state, seed=0, previous="x")  # type: ignore[arg-type]


def test_what_is_no_tree_is_not_resumed() -> None:
    with planvec.PlanEnv("CartPole-v1") as env:
        plan = planvec.IW(num_simulations=9).plan(env, env.reset(seed=0).state, seed=0)
        for wrong in (plan, plan.search_data, "tree.npz"):
            with pytest.raises(TypeError, match=r"tree: expected the search_data of a plan of MCTS, or Tree"):
                MCTS().resume(env, wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_seconds: expected more than 0, or None, got 'x'"):
        MCTS(max_seconds="x")  # type: ignore[arg-type]


def test_a_tree_that_a_look_has_shaped_is_resumed_without_settings_of_its_own() -> None:
    with planvec.PlanEnv("FrozenLake-v1", env_kwargs={"is_slippery": False}) as env:
        tree = MCTS(num_simulations=500).plan(env, env.reset(seed=0).state, seed=0).search_data
        assert MCTS(num_simulations=50).resume(env, tree, seed=1).value == pytest.approx(1, rel=1e-4)
        with pytest.raises(planvec.InvalidBatchError, match="for which a look at the environment has chosen"):
            MCTS(num_simulations=50, rollout_horizon=0).resume(env, tree, seed=1)


# -- searches that go on -----------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 16])
@pytest.mark.parametrize(("num_cells", "steps"), [(9, 60), (17, 100), (33, 180)])
def test_a_graph_that_knows_a_reward_finds_a_higher_one_far_away(
    num_cells: int, steps: int, batch_size: int
) -> None:
    planner = dataclasses.replace(GRAPH, max_env_steps=steps, batch_size=batch_size)
    with planvec.make(partial(Corridor, num_cells), num_workers=0) as env:
        decision = planner.plan(env, env.reset(seed=0).state, seed=1)
    assert decision.action == 1
    assert decision.value == pytest.approx(0.99 ** (num_cells - 3))


def test_no_untried_action_is_nearer_than_a_node_says() -> None:
    """The distances that nodes hold are at most the true ones, in a graph without chance."""
    with planvec.make("CliffWalking-v1", num_workers=0) as env:
        planner = dataclasses.replace(GRAPH, num_simulations=120, discount=1.0, batch_size=4)
        tree = planner.plan(env, env.reset(seed=0).state, seed=1).search_data
    arrays, count = tree.arrays, tree.num_nodes
    is_tried = arrays.first_outcomes[:count] >= 0
    distances = np.where(arrays.ended[:count] | is_tried.all(axis=1), 10**9, 0)
    for _ in range(count):
        for node in np.flatnonzero(~arrays.ended[:count]):
            for action in np.flatnonzero(is_tried[node]):
                for outcome in tree.outcomes(node, action):
                    next_one = arrays.outcome_nodes[outcome]
                    distances[node] = min(distances[node], distances[next_one] + 1)
    assert (distances == 0).any()
    assert (distances > 2).any()
    is_open = ~arrays.ended[:count]
    assert (arrays.frontiers[:count] <= distances)[is_open].all()
    assert arrays.frontiers[0] > 0


class RandomWays(gymnasium.Env[Any, int]):
    """Places from which every action leads to one of a few others, by chance; reward 1 in the last one."""

    def __init__(self, num_places: int, num_actions: int, num_ways: int) -> None:
        self.observation_space = gymnasium.spaces.Discrete(num_places)
        self.action_space = gymnasium.spaces.Discrete(num_actions)
        self.ways = np.random.default_rng(5).integers(num_places, size=(num_places, num_actions, num_ways))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.place = 0
        return 0, {}

    def step(self, action: int) -> Any:
        ways = self.ways[self.place, action]
        self.place = int(ways[self.np_random.integers(len(ways))])
        is_last = self.place == self.observation_space.n - 1
        return self.place, float(is_last), is_last, False, {}


@pytest.mark.parametrize(("num_places", "num_actions", "batch_size"), [(40, 2, 8), (60, 1, 16)])
def test_nothing_stays_in_flight_where_steps_are_random(
    num_places: int, num_actions: int, batch_size: int
) -> None:
    planner = dataclasses.replace(
        GRAPH, num_simulations=400, batch_size=batch_size, outcome_widening=(1.0, 0.5)
    )
    with planvec.make(partial(RandomWays, num_places, num_actions, 3), num_workers=0) as env:
        state = env.reset(seed=0).state
        for seed in range(6):
            tree = planner.plan(env, state, seed=seed).search_data
            assert not tree.arrays.edge_unobserved[: tree.num_nodes].any()
            assert not tree.arrays.unobserved[: tree.num_nodes].any()


def test_an_action_without_a_prior_is_not_taken_to_find_something_new() -> None:
    def priors(observations: np.ndarray) -> np.ndarray:
        return np.repeat([[0.0, 0.3, 0.3, 0.4]], len(observations), axis=0)

    planner = dataclasses.replace(GRAPH, num_simulations=200, selection="puct", prior_fn=priors)
    tree = plan(planner, "FrozenLake-v1", is_slippery=False).search_data
    assert tree.arrays.edge_visits[: tree.num_nodes, 1].any()
    assert not tree.arrays.edge_visits[: tree.num_nodes, 0].any()


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize(
    "planner", [GRAPH, MCTS(backup="max", rollout_horizon=8)], ids=["graph", "tree with rollouts"]
)
def test_several_roots_of_a_graph_give_the_plans_that_each_gives_alone(
    planner: MCTS, num_workers: int
) -> None:
    planner = dataclasses.replace(planner, num_simulations=300)
    options = {"is_slippery": False}
    with planvec.make("FrozenLake-v1", num_workers=num_workers, env_kwargs=options) as env:
        states = np.repeat(env.reset(seed=0).state, 4)
        states["cell"] = [0, 1, 4, 8]
        for seed in range(4):
            seeds = [10 * seed + number for number in range(4)]
            together = planner.plan_batch(env, states, seeds=seeds)
            for state, one, decision in zip(states, seeds, together, strict=True):
                assert same_plans(planner.plan(env, state, seed=one), decision)
