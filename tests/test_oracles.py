"""Tree search against value iteration. `benchmarks/regret.py` prints the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tabular import TABULAR, Optimum

import planvec
from planvec import MCTS

DISCOUNTS = [0.9, *(pytest.param(discount, marks=pytest.mark.slow) for discount in (0.95, 0.99))]


def uct(discount: float, num_simulations: int, **options: Any) -> MCTS:
    """Return UCT on the graph of cells, without rollouts."""
    return MCTS(
        num_simulations=num_simulations,
        discount=discount,
        **{
            "batch_size": 64,
            "rollout_horizon": 0,
            "transpositions": lambda states: states["cell"],
            "backup": "max",
            "exploration": 1.0,
            "outcome_widening": (4.0, 0.5),
            **options,
        },
    )


def regrets(name: str, planner: MCTS, num_starts: int) -> tuple[list[float], list[float]]:
    """Return the regret of each action, and the error of each value."""
    optimum = Optimum(name, planner.discount)
    env_id, options = TABULAR[name]
    lost, off = [], []
    with planvec.PlanEnv(env_id, env_kwargs={"max_episode_steps": 10**6, **options}) as env:
        states = np.repeat(env.reset(seed=0).state, 1)
        for seed, cell in enumerate(optimum.starts(num_starts)):
            states["cell"] = cell
            plan = planner.plan(env, states, seed=seed)
            lost.append(optimum.regret(cell, plan.action))
            off.append(abs(plan.value - optimum.values[cell]))
    return lost, off


@pytest.mark.parametrize("discount", DISCOUNTS)
@pytest.mark.parametrize(
    ("name", "num_simulations", "num_starts"),
    [
        ("FrozenLake 4x4", 2_000, 11),
        ("FrozenLake 8x8", 20_000, 8),
        ("Taxi", 2_000, 12),
        ("CliffWalking", 2_000, 12),
    ],
)
def test_without_chance_the_action_and_the_value_are_optimal(
    name: str, num_simulations: int, num_starts: int, discount: float
) -> None:
    lost, off = regrets(name, uct(discount, num_simulations), num_starts)
    assert max(lost) < 1e-9
    assert max(off) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("discount", DISCOUNTS)
def test_with_chance_the_action_is_optimal_within_the_error_of_its_value(discount: float) -> None:
    lost, off = regrets("FrozenLake 4x4 slippery", uct(discount, 4_000), num_starts=6)
    assert np.mean(lost) < 0.002
    assert np.mean(off) < 0.05
    assert (np.array(lost) <= 2 * np.maximum(off, 1e-9)).all()


def test_regret_falls_with_simulations() -> None:
    lost = [np.mean(regrets("FrozenLake 8x8", uct(0.95, count), 12)[0]) for count in (100, 1_000, 10_000)]
    assert lost[0] > lost[1] > lost[2] == 0


def test_means_of_returns_on_a_tree_find_the_optimal_action_too() -> None:
    lost, _ = regrets(
        "FrozenLake 4x4",
        MCTS(num_simulations=3_000, discount=0.95, rollout_horizon=30, batch_size=64),
        num_starts=6,
    )
    assert np.mean(lost) < 0.01


@pytest.mark.parametrize(
    "name", ["FrozenLake 4x4", pytest.param("FrozenLake 4x4 slippery", marks=pytest.mark.slow)]
)
def test_many_in_flight_lose_little_against_one_at_a_time(name: str) -> None:
    optimum = Optimum(name, 0.95)
    best = np.mean([optimum.values[cell] for cell in optimum.starts(6)])
    values = {}
    for batch_size in (1, 8, 64):
        lost, _ = regrets(name, uct(0.95, 500, batch_size=batch_size), num_starts=6)
        values[batch_size] = best - np.mean(lost)
    assert min(values[8], values[64]) >= 0.95 * values[1]


@pytest.mark.parametrize("batch_size", [8, *(pytest.param(size, marks=pytest.mark.slow) for size in (1, 64))])
def test_cartpole_is_held_with_any_number_in_flight(batch_size: int) -> None:
    planner = MCTS(num_simulations=64, batch_size=batch_size, rollout_horizon=40)
    with planvec.PlanEnv("CartPole-v1") as env:
        episode = planvec.run_episode(env, planner, seed=0, max_steps=60)
    assert episode.total_return == 60
