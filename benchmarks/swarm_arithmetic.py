"""Measure the share of a swarm's plan that is not the environment: its own arithmetic, and all calls between.

    python benchmarks/swarm_arithmetic.py
    python benchmarks/swarm_arithmetic.py --num-walkers 192 --turns 30
    python benchmarks/paired.py ../old . benchmarks/swarm_arithmetic.py

The time of the environment is that of the loop over its rows (`EnvStepper.perform`); everything else of a
plan counts as its own. The environment in Python and its compiled kernel take turns. A turn is some plans,
long enough that another process on the same core interrupts both parts alike; the figures are the medians of
the turns, with their range.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from typing import Any

from figures import Figures, add_plain

import planvec

TURN = 0.4
"""Seconds of a turn."""
NAMES = {False: "Python", True: "compiled"}


class Watch:
    """Adds up the seconds that the environment of a `PlanEnv` steps.

    Args:
        env: The environment. Its stepper is watched from now on.
    """

    def __init__(self, env: planvec.PlanEnv) -> None:
        self.seconds = 0.0
        self._perform = env.stepper.perform
        env.stepper.perform = self._timed  # type: ignore[method-assign]

    def _timed(self, *args: Any, **options: Any) -> Any:
        started = time.perf_counter()
        answer = self._perform(*args, **options)
        self.seconds += time.perf_counter() - started
        return answer


def turn(env: planvec.PlanEnv, watch: Watch, planner: planvec.Swarm, first_seed: int) -> tuple[float, float]:
    """Plan several times; returns the seconds of a plan and those of the environment in it."""
    gc.collect()
    state = env.get_state()
    watch.seconds = 0.0
    started, num_plans = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - started) < TURN:
        planner.plan(env, state, seed=first_seed + num_plans)
        num_plans += 1
    return elapsed / num_plans, watch.seconds / num_plans


def show(name: str, turns: list[tuple[float, float]], figures: Figures) -> None:
    """Print the share and the times of one environment."""
    shares = [1 - inside / total for total, inside in turns]
    own, plan = [total - inside for total, inside in turns], [total for total, _ in turns]
    figures.text(
        f"{name:<24} own arithmetic {statistics.median(shares):.1%} of a plan "
        f"({min(shares):.1%} to {max(shares):.1%}): {statistics.median(own) * 1e3:.2f} ms "
        f"({min(own) * 1e3:.2f} to {max(own) * 1e3:.2f}) of {statistics.median(plan) * 1e3:.2f} ms"
    )
    figures.figure(f"{name}/own_share", statistics.median(shares))
    figures.figure(f"{name}/own/ms", statistics.median(own) * 1e3)
    figures.figure(f"{name}/plan/ms", statistics.median(plan) * 1e3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--num-walkers", type=int, default=48)
    parser.add_argument("--turns", type=int, default=15)
    add_plain(parser)
    arguments = parser.parse_args()
    figures = Figures(arguments.plain)
    planner = planvec.Swarm(num_walkers=arguments.num_walkers)
    envs = {compiled: planvec.PlanEnv(arguments.env, compiled=compiled) for compiled in NAMES}
    watches = {compiled: Watch(env) for compiled, env in envs.items()}
    turns: dict[bool, list[tuple[float, float]]] = {compiled: [] for compiled in NAMES}
    for compiled, env in envs.items():
        turn(env, watches[compiled], planner, 0)
    for number in range(arguments.turns):
        for compiled, env in envs.items():
            turns[compiled].append(turn(env, watches[compiled], planner, number))
    for compiled, name in NAMES.items():
        show(f"{arguments.env}, {name}", turns[compiled], figures)
        envs[compiled].close()


if __name__ == "__main__":
    main()
