"""Measure what tree search scores with few simulations per decision: Gumbel at the root, UCT and PUCT.

    python benchmarks/few_simulations.py                       # 4 tasks, 10 seeds: about 10 minutes on 1 core
    python benchmarks/few_simulations.py --only CartPole --seeds 20

All contenders have the settings of their task, one simulation in flight, and no priors. Each figure is the
mean return of the episodes, with its standard error. Seeds begin at 100; none was used to choose settings.
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any, NamedTuple

import numpy as np

import planvec

FIRST_SEED = 100
NUM_SIMULATIONS = (4, 8, 16, 32, 64)
CONTENDERS: dict[str, dict[str, Any]] = {
    "UCT": {},
    "PUCT": {"selection": "puct"},
    "Gumbel, then UCT": {"root_selection": "gumbel"},
    "Gumbel without noise, then UCT": {"root_selection": "gumbel", "gumbel_scale": 0.0},
}


class Task(NamedTuple):
    """Describes one task.

    Attributes:
        name: How it is called in the table.
        env_id: The environment.
        planner: The settings of all contenders.
        max_steps: Largest number of steps of an episode.
        options: The `env_kwargs` of `planvec.make`.
    """

    name: str
    env_id: str
    planner: planvec.MCTS
    max_steps: int | None = None
    options: dict[str, Any] = {}  # noqa: RUF012 - never written


ROLLOUTS = planvec.MCTS(batch_size=1, rollout_horizon=20)
CELLS = planvec.MCTS(
    batch_size=1, rollout_horizon=0, transpositions="observation", backup="max", discount=0.99
)
TASKS = [
    Task("Taxi", "Taxi-v4", CELLS, 100),
    Task("CliffWalking", "CliffWalking-v1", CELLS, 100),
    Task("FrozenLake 8x8", "FrozenLake-v1", CELLS, 100, {"map_name": "8x8", "is_slippery": False}),
    Task("CartPole", "CartPole-v1", ROLLOUTS),
]


def returns(task: Task, contender: dict[str, Any], num_simulations: int, num_seeds: int) -> Any:
    """Return the returns of episodes, `[num_seeds]`."""
    planner = dataclasses.replace(task.planner, num_simulations=num_simulations, **contender)
    with planvec.make(task.env_id, num_workers=0, info_keys=(), env_kwargs=task.options) as env:
        seeds = range(FIRST_SEED, FIRST_SEED + num_seeds)
        episodes = [planvec.run_episode(env, planner, seed=seed, max_steps=task.max_steps) for seed in seeds]
    return np.array([episode.total_return for episode in episodes])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="WORD", help="tasks whose name has one of these in it")
    parser.add_argument("--seeds", type=int, default=10)
    arguments = parser.parse_args()
    print(f"| task | root | {' | '.join(map(str, NUM_SIMULATIONS))} |")
    print(f"| --- | --- |{' --- |' * len(NUM_SIMULATIONS)}")
    for task in TASKS:
        if arguments.only is None or any(word in task.name for word in arguments.only):
            for name, contender in CONTENDERS.items():
                columns = []
                for num_simulations in NUM_SIMULATIONS:
                    scores = returns(task, contender, num_simulations, arguments.seeds)
                    error = scores.std(ddof=1) / np.sqrt(len(scores))
                    columns.append(f"{scores.mean():,.1f} ± {error:,.1f}")
                print(f"| {task.name} | {name} | {' | '.join(columns)} |", flush=True)


if __name__ == "__main__":
    main()
