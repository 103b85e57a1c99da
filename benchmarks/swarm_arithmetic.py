"""Measure the share of a swarm's plan that is not the environment: its own arithmetic, and all calls between.

    python benchmarks/swarm_arithmetic.py
    python benchmarks/swarm_arithmetic.py --num-walkers 192 --turns 30
    python benchmarks/paired.py ../old . benchmarks/swarm_arithmetic.py

The environment takes the time of the loop over its rows (`EnvStepper.perform`); everything else of a plan
counts as its own. The part of it outside `step_batch` is the swarm and the loop that drives it; the rest are
the checks and promises of `step_batch`. The environment in Python and its compiled kernel take turns. A turn
is some plans, long enough that another process on the same core interrupts both parts alike; the figures are
the medians of the turns, with their range.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from typing import Any, NamedTuple

from figures import Figures, add_plain

import planvec

TURN = 0.4
"""Seconds of a turn."""


class Turn(NamedTuple):
    """Seconds of a plan, of all calls of `step_batch` in it, and of the environment in these."""

    plan: float
    calls: float
    env: float


class Watch:
    """Adds up the seconds that a function takes.

    Args:
        owner: The object that has the function as an attribute. It is replaced.
        name: The name of the attribute.
    """

    def __init__(self, owner: Any, name: str) -> None:
        self.seconds = 0.0
        self._function = getattr(owner, name)
        setattr(owner, name, self._timed)

    def _timed(self, *args: Any, **options: Any) -> Any:
        started = time.perf_counter()
        result = self._function(*args, **options)
        self.seconds += time.perf_counter() - started
        return result


class Contender:
    """Plans in one environment, and watches it.

    Args:
        env: The environment.
        planner: The planner.
    """

    def __init__(self, env: planvec.PlanEnv, planner: planvec.Swarm) -> None:
        self.env, self._planner = env, planner
        self._calls, self._performed = Watch(env, "step_batch"), Watch(env.stepper, "perform")
        self._planner.plan(env, seed=0)

    def turn(self, first_seed: int) -> Turn:
        """Plan several times."""
        gc.collect()
        self._calls.seconds = self._performed.seconds = 0.0
        started, num_plans = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - started) < TURN:
            self._planner.plan(self.env, seed=first_seed + num_plans)
            num_plans += 1
        return Turn(*(each / num_plans for each in (elapsed, self._calls.seconds, self._performed.seconds)))


def show(name: str, turns: list[Turn], figures: Figures) -> None:
    """Print the shares and the times of one environment."""
    own = [1 - each.env / each.plan for each in turns]
    outside = [1 - each.calls / each.plan for each in turns]
    seconds = statistics.median(each.plan - each.env for each in turns)
    plan = statistics.median(each.plan for each in turns)
    figures.text(
        f"{name:<22} own {shown(own)} of a plan, {shown(outside)} outside step_batch: "
        f"{seconds * 1e3:.2f} of {plan * 1e3:.2f} ms"
    )
    figures.figure(f"{name}/own_share", statistics.median(own))
    figures.figure(f"{name}/outside_step_batch_share", statistics.median(outside))
    figures.figure(f"{name}/own/ms", seconds * 1e3)
    figures.figure(f"{name}/plan/ms", plan * 1e3)


def shown(shares: list[float]) -> str:
    """Return "median (lowest to highest)"."""
    return f"{statistics.median(shares):.1%} ({min(shares):.1%} to {max(shares):.1%})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--num-walkers", type=int, default=48)
    parser.add_argument("--turns", type=int, default=15)
    add_plain(parser)
    arguments = parser.parse_args()
    figures = Figures(arguments.plain)
    planner = planvec.Swarm(num_walkers=arguments.num_walkers)
    contenders = {
        name: Contender(planvec.PlanEnv(arguments.env, compiled=compiled), planner)
        for name, compiled in (("Python", False), ("compiled", True))
    }
    turns: dict[str, list[Turn]] = {name: [] for name in contenders}
    for number in range(arguments.turns):
        for name, contender in contenders.items():
            turns[name].append(contender.turn(number))
    for name, contender in contenders.items():
        show(f"{arguments.env}, {name}", turns[name], figures)
        contender.env.close()


if __name__ == "__main__":
    main()
