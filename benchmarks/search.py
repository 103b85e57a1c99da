"""Measure tree search: in a compiled loop where the environment has a kernel, and with a Python environment.

    python benchmarks/search.py

Prints the median and the quartiles over several rounds, in each of which every line is measured once.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import gymnasium
import numpy as np

import planvec
from planvec import MCTS, PlanEnv

Measure = Callable[[int], float]


def seconds(planner: planvec.Planner, env: PlanEnv) -> Callable[[int], tuple[float, planvec.Plan]]:
    """Return a function that plans once, by seed, and returns the seconds and the plan."""
    state = env.reset(seed=0).state

    def run(seed: int) -> tuple[float, planvec.Plan]:
        started = time.perf_counter()
        plan = planner.plan(env, state, seed=seed)
        return time.perf_counter() - started, plan

    run(0)  # loads what is compiled
    return run


PLANS = 10
"""Plans of a measurement, each with another seed."""


def simulations_per_second(env: PlanEnv, num_simulations: int, batch_size: int) -> Measure:
    """Million simulations a second without rollouts."""
    run = seconds(MCTS(num_simulations=num_simulations, batch_size=batch_size, rollout_horizon=0), env)

    def measure(seed: int) -> float:
        elapsed = sum(run(PLANS * seed + number)[0] for number in range(PLANS))
        return PLANS * num_simulations / elapsed / 1e6

    return measure


def steps_per_second(env: PlanEnv, num_simulations: int, batch_size: int) -> Measure:
    """Million environment steps a second with rollouts of at most 50 steps."""
    run = seconds(MCTS(num_simulations=num_simulations, batch_size=batch_size, rollout_horizon=50), env)

    def measure(seed: int) -> float:
        results = [run(PLANS * seed + number) for number in range(PLANS)]
        num_steps = sum(plan.num_env_steps for _, plan in results)
        return num_steps / sum(elapsed for elapsed, _ in results) / 1e6

    return measure


def seconds_of_lake(env: PlanEnv, batch_size: int, rollout_horizon: int) -> Measure:
    """Seconds of 100,000 simulations."""
    planner = MCTS(num_simulations=100_000, batch_size=batch_size, rollout_horizon=rollout_horizon)
    run = seconds(planner, env)
    return lambda seed: run(seed)[0]


def microseconds_per_simulation(env: PlanEnv, num_simulations: int, batch_size: int) -> Measure:
    """Microseconds of a simulation without rollouts."""
    run = seconds(MCTS(num_simulations=num_simulations, batch_size=batch_size, rollout_horizon=0), env)
    return lambda seed: run(seed)[0] / num_simulations * 1e6


def microseconds_per_row(env: PlanEnv, num_rows: int) -> Measure:
    """Microseconds of a row of `step_batch`."""
    states = np.repeat(env.reset(seed=0).state, num_rows)
    actions = np.zeros(num_rows, int)
    repeats = max(1, 4096 // num_rows)

    def measure(seed: int) -> float:
        started = time.perf_counter()
        for _ in range(repeats):
            env.step_batch(actions, states)
        return (time.perf_counter() - started) / repeats / num_rows * 1e6

    return measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    compiled = PlanEnv("CartPole-v1", compiled=True)
    python = PlanEnv("CartPole-v1", compiled=False)
    lake = PlanEnv(lambda: gymnasium.make("FrozenLake8x8-v1"), compiled=True)
    lines: dict[str, Measure] = {}
    for num_simulations in (2_000, 20_000):
        for batch_size in (1, 16, 64, 256):
            name = (
                f"CartPole, kernel, {num_simulations:,} simulations, {batch_size} in flight: M simulations/s"
            )
            lines[name] = simulations_per_second(compiled, num_simulations, batch_size)
    for batch_size in (16, 64):
        name = f"CartPole, kernel, rollouts, {batch_size} in flight: M environment steps/s"
        lines[name] = steps_per_second(compiled, 2_000, batch_size)
        for horizon in (0, 50):
            name = f"FrozenLake 8x8, kernel, 100,000, rollouts of {horizon}, {batch_size} in flight: s"
            lines[name] = seconds_of_lake(lake, batch_size, horizon)
    for batch_size, num_simulations in ((1, 500), (16, 2_000), (64, 4_000)):
        name = f"CartPole, Python, {batch_size} in flight: us per simulation"
        lines[name] = microseconds_per_simulation(python, num_simulations, batch_size)
    lines["CartPole, Python, step_batch of 4,096: us per row"] = microseconds_per_row(python, 4096)
    results = {name: [measure(seed) for seed in range(1)] for name, measure in lines.items()}
    for seed in range(1, rounds):
        for name, measure in lines.items():
            results[name].append(measure(seed))
    width = max(map(len, lines))
    print(f"{'':{width}}  median  (quartiles)")
    for name, values in results.items():
        low, median, high = np.percentile(values, [25, 50, 75])
        print(f"{name:{width}}  {median:.3g}  ({low:.3g} to {high:.3g})")


if __name__ == "__main__":
    main()
