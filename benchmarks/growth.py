"""Measure how costs grow: with the rows of a batch, with the workers, and with the nodes of a search tree.

    python benchmarks/growth.py --plot growth.png

Prints tables, and draws them if there is matplotlib (`pip install planvec[plot]`). It needs 4 GB of memory
for the largest tree. Each point is the median of several rounds; a round measures all points once, so that a
slow spell of the machine meets all of them.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np

import planvec

ROWS = [10**power for power in range(7)]
WORKERS = [1, 2, 4, 8, 16, 32, 64]
NODES = [10**power for power in range(3, 8)]


class Waits(gymnasium.Env[Any, int]):
    """A step that waits for 20 ms, as for a simulator in another process. Any number of workers can wait."""

    observation_space = gymnasium.spaces.Discrete(1_000_000)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return 0, {}

    def step(self, action: int) -> Any:
        time.sleep(0.02)
        self.count += 1
        return self.count, 0.0, False, False, {}


class Line(NamedTuple):
    """A line of a table and of the plot.

    Attributes:
        name: What is measured, with its unit.
        sizes: The sizes.
        measure: From a size to the cost, or None where it is not measured.
    """

    name: str
    sizes: list[int]
    measure: Callable[[int], float]


def per_row(env: Any, seconds: float = 0.05) -> Callable[[int], float]:
    """Return a function from a number of rows to the microseconds of a row."""
    state = env.reset(seed=0).state

    def measure(num_rows: int) -> float:
        states, actions = np.repeat(state, num_rows), np.zeros(num_rows, int)
        env.step_batch(actions, states)
        started, num_calls = time.perf_counter(), 0
        while time.perf_counter() - started < seconds or not num_calls:
            env.step_batch(actions, states)
            num_calls += 1
        return (time.perf_counter() - started) / num_calls / num_rows * 1e6

    return measure


def with_workers(env: Any, rows_per_worker: int | None) -> Callable[[int], float]:
    """Return a function from a number of workers to the microseconds of a row of a batch.

    Args:
        env: As in `planvec.make`.
        rows_per_worker: Number of rows for each worker; None: 4,096 for all of them.
    """

    def measure(num_workers: int) -> float:
        num_rows = 4096 if rows_per_worker is None else rows_per_worker * num_workers
        with planvec.make(env, num_workers=num_workers, compiled=False) as made:
            return per_row(made, 0.3)(num_rows) * (1 if rows_per_worker is None else num_workers)

    return measure


def per_simulation(env: Any, **options: Any) -> Callable[[int], float]:
    """Return a function from a number of simulations to the microseconds of one."""
    state = env.reset(seed=0).state

    def measure(num_simulations: int) -> float:
        planner = planvec.MCTS(
            num_simulations=num_simulations, batch_size=64, rollout_horizon=0, max_memory=2**33, **options
        )
        num_plans = max(1, 20_000 // num_simulations)
        started = time.perf_counter()
        for seed in range(num_plans):
            plan = planner.plan(env, state, seed=seed)
        elapsed = time.perf_counter() - started
        depths = plan.depth_histogram
        measure.depths[num_simulations] = float(depths @ np.arange(len(depths)) / depths.sum())  # type: ignore[attr-defined]
        return elapsed / num_plans / num_simulations * 1e6

    measure.depths = {}  # type: ignore[attr-defined]
    planvec.MCTS(num_simulations=100).plan(env, state)
    return measure


def run(lines: list[Line], rounds: int, largest: float = math.inf) -> list[list[float]]:
    """Return the median cost of each size of each line. What is above the largest size is measured once."""
    results: list[list[list[float]]] = [[[] for _ in line.sizes] for line in lines]
    for number in range(rounds):
        for line, costs in zip(lines, results, strict=True):
            for size, cost in zip(line.sizes, costs, strict=True):
                if number == 0 or size <= largest:
                    cost.append(line.measure(size))
    return [[float(np.median(cost)) for cost in costs] for costs in results]


def print_table(title: str, lines: list[Line], costs: list[list[float]]) -> None:
    """Print the costs as a table in Markdown."""
    sizes = sorted({size for line in lines for size in line.sizes})
    print(f"| {title} | {' | '.join(f'{size:,}' for size in sizes)} |")
    print(f"| --- |{' ---: |' * len(sizes)}")
    for line, values in zip(lines, costs, strict=True):
        known = dict(zip(line.sizes, values, strict=True))
        cells = [f"{known[size]:.3g}" if size in known else "" for size in sizes]
        print(f"| {line.name} | {' | '.join(cells)} |")
    print(flush=True)


def draw(path: Path, tables: list[tuple[str, list[Line], list[list[float]]]]) -> None:
    """Draw the tables side by side."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(tables), figsize=(5 * len(tables), 4.2), layout="constrained")
    for axis, (title, lines, costs) in zip(axes, tables, strict=True):
        for line, values in zip(lines, costs, strict=True):
            axis.plot(line.sizes, values, marker="o", label=line.name)
        axis.set(xscale="log", yscale="log", xlabel=title, ylabel="microseconds")
        axis.grid(alpha=0.3)
        axis.margins(y=0.3)
        axis.legend(fontsize=7, loc="upper left")
    figure.savefig(path, dpi=150)
    print(f"wrote {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--plot", type=Path, help="the file to draw to")
    parser.add_argument("--max-nodes", type=int, default=10**7)
    arguments = parser.parse_args()
    rounds, nodes = arguments.rounds, [size for size in NODES if size <= arguments.max_nodes]
    tables = []
    compiled, python = (planvec.PlanEnv("CartPole-v1", compiled=flag) for flag in (True, False))
    with planvec.make("CartPole-v1", num_workers=2, compiled=False) as workers:
        lines = [
            Line("CartPole, kernel: us per row", ROWS, per_row(compiled)),
            Line("CartPole, Python in this process", ROWS[:6], per_row(python)),
            Line("CartPole, Python in 2 workers", ROWS[:6], per_row(workers)),
        ]
        tables.append(("rows of a batch", lines, run(lines, rounds)))
    lines = [
        Line("CartPole, 4,096 rows: us per row", WORKERS, with_workers("CartPole-v1", None)),
        Line("20 ms of waiting, 4 rows each: us per row and worker", WORKERS, with_workers(Waits, 4)),
    ]
    tables.append(("workers", lines, run(lines, min(rounds, 3))))
    lake = planvec.PlanEnv("FrozenLake-v1", env_kwargs={"map_name": "8x8"}, compiled=True)
    tree, graph = per_simulation(compiled), per_simulation(lake, transpositions=True, max_depth=30)
    shallow = per_simulation(compiled, exploration=100.0)
    lines = [
        Line("CartPole: us per simulation", nodes, tree),
        Line("CartPole, much exploration", nodes, shallow),
        Line("FrozenLake 8x8, equal states share a node", nodes, graph),
    ]
    costs = run(lines, rounds, 10**5)
    for measure, name in ((tree, lines[0].name), (shallow, lines[1].name)):
        depths = measure.depths  # type: ignore[attr-defined]
        found = costs[0 if measure is tree else 1]
        lines.append(Line(f"{name.partition(':')[0]}: us per level", nodes, measure))
        costs.append([cost / depths[size] for size, cost in zip(nodes, found, strict=True)])
        print(f"{name}: mean depth {', '.join(f'{depths[size]:.1f}' for size in nodes)}")
    tables.append(("simulations", lines, costs))
    for table in tables:
        print_table(*table)
    if arguments.plot is not None:
        draw(arguments.plot, tables)


if __name__ == "__main__":
    main()
