"""Measure how late planners are with `max_seconds`, and what they reach with it.

    python benchmarks/deadlines.py                         # how late: about 6 minutes
    python benchmarks/deadlines.py --only ICEM MPPI --workers 0
    python benchmarks/deadlines.py quality                 # returns against the deadline: about 15 minutes

"Late" is the time of `plan` minus `max_seconds`; below 0 a planner has used up its iterations. The first
decisions, which compile, do not count. The quality of a deadline is the return of an episode in which every
decision takes that long, whatever the time of a step of the real system would be.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import statistics
import time
from typing import Any

import numpy as np
from figures import Figures, add_plain

import planvec

MANY = 100_000
PLANNERS: dict[str, planvec.Planner] = {
    "MCTS": planvec.MCTS(),
    "MCTS, no rollouts": planvec.MCTS(rollout_horizon=0),
    "RandomShooting": planvec.RandomShooting(num_trajectories=2048),
    "CEM": planvec.CEM(num_iterations=MANY),
    "ICEM": planvec.ICEM(num_iterations=MANY),
    "MPPI": planvec.MPPI(num_iterations=MANY),
    "Swarm": planvec.Swarm(num_iterations=MANY),
    "IW": planvec.IW(),
    "RolloutIW": planvec.RolloutIW(),
}
DISCRETE = ("IW", "RolloutIW")  # they need actions that can be listed
ENVS = {"Pendulum-v1": {}, "HalfCheetah-v5": {}, "ALE/MsPacman-v5": {"obs_type": "ram"}}
DEADLINES = (0.001, 0.005, 0.020, 0.050)
NUM_WARM = 5


def lateness(env: Any, planner: planvec.Planner, num_decisions: int) -> np.ndarray:
    """Return how late the decisions of an episode are, `[num_decisions]`, in milliseconds."""
    state, plan, late = env.reset(seed=0).state, None, []
    seconds = planner.max_seconds
    assert seconds is not None
    gc.collect()  # so that the garbage of one planner is not paid for by the next one
    for seed in range(num_decisions + NUM_WARM):
        started = time.perf_counter()
        plan = planner.plan(env, state, seed=seed, previous=plan)
        late.append(1e3 * (time.perf_counter() - started - seconds))
        out = env.step_batch(np.array([plan.action]), np.array([state]), blocking=True)
        if (out.terminated | out.truncated).any():
            state, plan = env.reset(seed=seed).state, None
        else:
            state = out.new_states[0]
    return np.array(late[NUM_WARM:])


def measure_lateness(
    figures: Figures, only: list[str] | None, workers: list[int], num_decisions: int
) -> None:
    """Print the table of how late planners are."""
    figures.text("Milliseconds after the deadline: median, 99th percentile, largest\n")
    titles = " | ".join(f"{1e3 * seconds:.0f} ms" for seconds in DEADLINES)
    worst = []  # lines of the summary
    figures.text(f"| environment | stepped by | planner | {titles} |")
    figures.text("| --- | --- | --- |" + " --- |" * len(DEADLINES))
    for env_id, kwargs in ENVS.items():
        for num_workers in workers:
            where = f"{num_workers} workers" if num_workers else "this process"
            found: dict[float, dict[str, np.ndarray]] = {seconds: {} for seconds in DEADLINES}
            with planvec.make(env_id, num_workers=num_workers, env_kwargs=kwargs) as env:
                for name, planner in PLANNERS.items():
                    is_box = not hasattr(env.action_space, "n")
                    if (only and name not in only) or (name in DISCRETE and is_box):
                        continue
                    if name in ("ICEM", "MPPI") and not is_box:
                        continue
                    row = []
                    for seconds in DEADLINES:
                        hurried = dataclasses.replace(planner, max_seconds=seconds)
                        late = lateness(env, hurried, num_decisions)
                        numbers = found[seconds][name] = np.quantile(late, [0.5, 0.99, 1.0])
                        row.append(" / ".join(f"{number:.2f}" for number in numbers))
                        key = f"late/{env_id}/{where}/{name}/{1e3 * seconds:.0f} ms/p99 ms"
                        figures.figure(key, float(numbers[1]))
                    figures.text(f"| {env_id} | {where} | {name} | {' | '.join(row)} |")
            if not found[DEADLINES[0]]:
                continue  # none of the planners suits it
            cells = []
            for of_planners in found.values():
                median = statistics.median(numbers[0] for numbers in of_planners.values())
                last = max(of_planners, key=lambda name: of_planners[name][1])
                cells.append(f"{median:.1f} / {of_planners[last][1]:.1f} ({last})")
            worst.append(f"| {env_id} | {where} | {' | '.join(cells)} |")
    figures.text("\nMedian of the planners / the highest 99th percentile of one of them\n")
    figures.text(f"| environment | stepped by | {titles} |")
    figures.text("\n".join(["| --- | --- |" + " --- |" * len(DEADLINES), *worst]))


PAPER: dict[str, Any] = {"std": 0.5, "temperature": 0.2, "fine": 0.0}
"""Settings of `MPPI` with one kind of noise."""
QUALITY: dict[str, dict[str, planvec.Planner]] = {
    "Pendulum-v1": {
        "MCTS": planvec.MCTS(rollout_horizon=30, discount=0.98),
        "CEM": planvec.CEM(num_iterations=MANY, horizon=30),
        "ICEM": planvec.ICEM(40, 30, dt=1, num_iterations=MANY, noise_beta=2.0),
        "MPPI": planvec.MPPI(64, 30, dt=1, num_iterations=MANY, noise_beta=2.0, **PAPER),
    },
    "HalfCheetah-v5": {
        "MCTS": planvec.MCTS(rollout_horizon=15, dt=2),
        "CEM": planvec.CEM(num_iterations=MANY, horizon=15),
        "ICEM": planvec.ICEM(40, 15, dt=1, num_iterations=MANY, noise_beta=0.25),
        "MPPI": planvec.MPPI(64, 15, dt=1, num_iterations=MANY, noise_beta=1.0, **PAPER),
    },
}


def measure_quality(figures: Figures, num_seeds: int, max_steps: int) -> None:
    """Print the table of returns."""
    titles = " | ".join(f"{1e3 * seconds:.0f} ms" for seconds in DEADLINES)
    figures.text(f"Return of {max_steps} steps: mean of {num_seeds} seeds (lowest to highest)\n")
    figures.text(f"| environment | planner | {titles} |")
    figures.text("| --- | --- |" + " --- |" * len(DEADLINES))
    for env_id, planners in QUALITY.items():
        with planvec.make(env_id, num_workers=0) as env:
            for name, planner in planners.items():
                cells = []
                for seconds in DEADLINES:
                    hurried = dataclasses.replace(planner, max_seconds=seconds)
                    returns = [
                        planvec.run_episode(env, hurried, seed=seed, max_steps=max_steps).total_return
                        for seed in range(100, 100 + num_seeds)
                    ]
                    mean = statistics.mean(returns)
                    cells.append(f"{mean:.0f} ({min(returns):.0f} to {max(returns):.0f})")
                    figures.figure(f"return/{env_id}/{name}/{1e3 * seconds:.0f} ms/mean return", mean)
                figures.text(f"| {env_id} | {name} | {' | '.join(cells)} |")


def main() -> None:
    """Print one of the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=["late", "quality"], default="late")
    parser.add_argument("--only", nargs="+", choices=list(PLANNERS), help="planners of the first table")
    parser.add_argument("--workers", nargs="+", type=int, default=[0, 2])
    parser.add_argument("--decisions", type=int, default=100, help="of each planner with each deadline")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100)
    add_plain(parser)
    arguments = parser.parse_args()
    figures = Figures(arguments.plain)
    if arguments.what == "late":
        measure_lateness(figures, arguments.only, arguments.workers, arguments.decisions)
    else:
        measure_quality(figures, arguments.seeds, arguments.steps)


if __name__ == "__main__":
    main()
