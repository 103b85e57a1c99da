"""Gumbel root selection with sequential halving: with any batch, priors, masks and saved trees."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from compare import same_plans
from gymnasium import spaces
from marks import slow_after

import planvec
from planvec import MCTS
from planvec.planners.mcts.simulations import considered_visits
from planvec.planners.mcts.tree import Tree

GUMBEL = MCTS(num_simulations=32, root_selection="gumbel", rollout_horizon=10)


class Bandit(gymnasium.Env[Any, Any]):
    """One of eight actions ends the episode with its reward."""

    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(8)
    rewards = np.random.default_rng(3).normal(size=8)

    def __init__(self, rewards: Any = rewards) -> None:
        self.rewards = rewards

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: Any) -> Any:
        return 1, float(self.rewards[action]), True, False, {}


PRIORS = np.random.default_rng(4).dirichlet(np.ones(8))


def priors(observations: Any) -> Any:
    return np.tile(PRIORS, (len(observations), 1))


def plans(env_id: Any, planner: MCTS, num_plans: int) -> list[planvec.Plan]:
    with planvec.PlanEnv(env_id) as env:
        state = env.reset(seed=0).state
        return [planner.plan(env, state, seed=seed) for seed in range(num_plans)]


@pytest.mark.parametrize(("num_considered", "num_simulations"), [(2, 16), (4, 32), (8, 24), (16, 200)])
def test_all_simulations_are_shared_out_among_halves(num_considered: int, num_simulations: int) -> None:
    sequence = considered_visits(num_considered, num_simulations)
    assert len(sequence) == num_simulations
    assert (sequence[:num_considered] == 0).all()
    num_with = np.bincount(sequence)  # how many actions get one more visit than so many
    assert (np.diff(num_with[:-1]) <= 0).all()
    assert set(num_with[:-1].tolist()) <= {num_considered >> phase for phase in range(8)}


@pytest.mark.parametrize("batch_size", [1, 2, 16])
@pytest.mark.parametrize("num_considered", [1, 3, 4, 8])
def test_actions_are_visited_as_halving_says_with_any_number_in_flight(
    num_considered: int, batch_size: int
) -> None:
    planner = dataclasses.replace(
        GUMBEL, num_considered=num_considered, batch_size=batch_size, selection="puct", prior_fn=priors
    )
    wanted = considered_visits(num_considered, 32)
    for plan in plans(Bandit, planner, 5):
        assert plan.num_simulations == 32
        counts = np.sort(plan.visit_counts)[::-1]
        # Visit k of an action is a simulation that wanted an action with k visits.
        assert [int((counts > visits).sum()) for visits in range(counts[0])] == np.bincount(wanted).tolist()


@pytest.mark.parametrize("num_simulations", slow_after(2, [2, 4, 8, 16]))
def test_the_chosen_action_is_on_average_at_least_as_good_as_the_prior(num_simulations: int) -> None:
    planner = MCTS(
        num_simulations=num_simulations,
        root_selection="gumbel",
        selection="puct",
        prior_fn=priors,
        num_considered=num_simulations,
    )
    chosen = np.array([Bandit.rewards[plan.action] for plan in plans(Bandit, planner, 300)])
    margin = 3 * chosen.std() / np.sqrt(len(chosen))
    assert chosen.mean() + margin > PRIORS @ Bandit.rewards
    if num_simulations == 16:
        assert chosen.mean() > PRIORS @ Bandit.rewards + 3 * margin


def test_without_noise_and_with_enough_simulations_the_best_action_is_chosen() -> None:
    planner = dataclasses.replace(GUMBEL, gumbel_scale=0.0, gumbel_transform=(50.0, 10.0))
    assert {int(plan.action) for plan in plans(Bandit, planner, 3)} == {int(Bandit.rewards.argmax())}


@pytest.mark.parametrize("env_id", ["CartPole-v1", "FrozenLake-v1", "Pendulum-v1"])
def test_a_plan_begins_with_its_action_and_is_the_same_for_several_roots(env_id: str) -> None:
    with planvec.PlanEnv(env_id) as env:
        states = np.array([env.reset(seed=seed).state for seed in range(3)])
        together = GUMBEL.plan_batch(env, states, seeds=[4, 5, 6])
        alone = [GUMBEL.plan(env, state, seed=seed) for state, seed in zip(states, (4, 5, 6), strict=True)]
    for one, other in zip(together, alone, strict=True):
        assert same_plans(one, other)
        assert (one.best_actions[0] == one.action).all()
        assert one.num_simulations == 32


def test_workers_and_compiled_steps_give_the_same_gumbel_plan() -> None:
    got = []
    for num_workers, compiled in ((0, False), (2, False), (0, True)):
        with planvec.make("CartPole-v1", num_workers=num_workers, compiled=compiled) as env:
            got.append(GUMBEL.plan(env, env.reset(seed=0).state, seed=1))
    assert same_plans(got[0], got[1])
    assert same_plans(got[0], got[2])


def test_illegal_actions_are_not_considered() -> None:
    def odd(observations: Any) -> Any:
        return np.tile(np.arange(8) % 2 == 1, (len(observations), 1))

    planner = dataclasses.replace(GUMBEL, legal_actions=odd, rollout_horizon=0)
    for plan in plans(Bandit, planner, 5):
        assert (plan.visit_counts[::2] == 0).all()
        assert plan.action % 2 == 1


def test_halving_counts_the_simulations_of_its_own_search_only(tmp_path: Path) -> None:
    with planvec.PlanEnv("FrozenLake-v1") as env:
        state = env.reset(seed=0).state
        first = GUMBEL.plan(env, state, seed=0)
        after = env.step_batch([first.action], np.array([state])).new_states
        second = GUMBEL.plan(env, after, seed=1, previous=first)
        kept = first.search_data.advance(first.action, after)
        assert second.visit_counts.sum() == kept.arrays.visits[0] + 32
        own = np.sort(second.visit_counts - kept.arrays.edge_visits[0])
        wanted = np.bincount(considered_visits(4, 32))
        assert [int((own > visits).sum()) for visits in range(own[-1])] == wanted.tolist()
        second.search_data.save(tmp_path / "tree.npz")
        loaded = Tree.load(tmp_path / "tree.npz")
        assert same_plans(GUMBEL.resume(env, second.search_data, seed=5), GUMBEL.resume(env, loaded, seed=5))


def test_halving_needs_a_number_of_simulations() -> None:
    with pytest.raises(ValueError, match="num_simulations: expected a number together with root_selection"):
        MCTS(root_selection="gumbel", max_env_steps=100)
    for other in ({"root_noise": (0.3, 0.25), "selection": "puct"}, {"widening": (1.0, 0.5)}):
        with pytest.raises(ValueError, match="expected None together with root_selection='gumbel'"):
            MCTS(num_simulations=8, root_selection="gumbel", **other)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="gumbel_transform: expected two numbers"):
        MCTS(gumbel_transform=(0.0, 1.0))
