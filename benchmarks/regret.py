"""Measure the regret of tree search against value iteration, by number of simulations.

    python benchmarks/regret.py [--starts 50] [--simulations 100 1000 10000 100000] [--only NAME ...]

For each environment of Gymnasium's toy text, three discounts and 50 states: how often the action at the root
is optimal, what it loses on average, and how far its value is from the optimal one.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

import planvec

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from tabular import TABULAR, Optimum

DISCOUNTS = (0.9, 0.95, 0.99)


def planner(discount: float, num_simulations: int) -> planvec.MCTS:
    """Return UCT on the graph of cells, without rollouts."""
    return planvec.MCTS(
        num_simulations=num_simulations,
        batch_size=64,
        discount=discount,
        rollout_horizon=0,
        transpositions=lambda states: states["cell"],
        backup="max",
        exploration=1.0,
        outcome_widening=(4.0, 0.5),
    )


def measure(name: str, discount: float, num_simulations: int, num_starts: int) -> str:
    """Return one line of the table."""
    optimum = Optimum(name, discount)
    env_id, options = TABULAR[name]
    regrets, errors, num_env_steps = [], [], 0
    started = time.perf_counter()
    with planvec.PlanEnv(env_id, env_kwargs={"max_episode_steps": 10**6, **options}) as env:
        states = np.repeat(env.reset(seed=0).state, 1)
        cells = optimum.starts(num_starts)
        for seed, cell in enumerate(cells):
            states["cell"] = cell
            plan = planner(discount, num_simulations).plan(env, states, seed=seed)
            regrets.append(optimum.regret(cell, plan.action))
            errors.append(abs(plan.value - optimum.values[cell]))
            num_env_steps += plan.num_env_steps
    elapsed = (time.perf_counter() - started) / len(cells)
    cells_of_row = [
        name,
        str(discount),
        f"{num_simulations:,}",
        str(len(cells)),
        f"{np.mean(np.array(regrets) < 1e-9):.0%}",
        f"{np.mean(regrets):.5f}",
        f"{np.mean(errors):.4f}",
        f"{num_env_steps / len(cells):,.0f}",
        f"{elapsed:.2f}",
    ]
    return f"| {' | '.join(cells_of_row)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--starts", type=int, default=50)
    parser.add_argument("--simulations", type=int, nargs="+", default=[100, 1_000, 10_000, 100_000])
    parser.add_argument("--only", nargs="+", choices=list(TABULAR), default=list(TABULAR))
    arguments = parser.parse_args()
    columns = "environment, discount, simulations, states, optimal, regret, value error, env steps, s a plan"
    print(f"| {columns.replace(', ', ' | ')} |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in arguments.only:
        for discount in DISCOUNTS:
            for num_simulations in arguments.simulations:
                print(measure(name, discount, num_simulations, arguments.starts), flush=True)


if __name__ == "__main__":
    main()
