"""Measure what functions of the user cost in a tree search, and how much of them overlaps with steps.

    python benchmarks/networks.py              # about a minute
    python benchmarks/networks.py --repeats 9

The first table shows the time of a simulation on CartPole in this process, with an `evaluate_fn` that costs
nothing and without one. In the second one, both a batch of steps and a call of the function wait for 2 ms
without a core, as networks on a GPU and slow simulators do: the overlap is `max(function, steps) / wall`,
where `steps` is the time of the same search with a function that costs nothing, and `function` that of the
calls alone. 1 would be perfect: the shorter of the two is free.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import functools
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from figures import Figures, add_plain
from gymnasium.envs.classic_control import CartPoleEnv

import planvec

NUM_SIMULATIONS = 4000
SECONDS = 2e-3
VALUES, PRIORS = np.zeros(4096), np.full((4096, 2), 0.5)


def free(observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return values and priors at no cost."""
    return VALUES[: len(observations)], PRIORS[: len(observations)]


def waiting(observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the same after 2 ms."""
    wait(SECONDS)
    return free(observations)


@functools.cache
def wake_up_in_time() -> None:
    """Let sleeps of this thread end in time; by default, Linux lets them take 50 us more."""
    set_timer_slack = 29  # PR_SET_TIMERSLACK
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(set_timer_slack, 1, 0, 0, 0)


def wait(seconds: float) -> None:
    """Wait without a core."""
    wake_up_in_time()
    time.sleep(seconds)


class Waits(CartPoleEnv):
    """A CartPole whose steps take longer."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def step(self, action: Any) -> Any:
        wait(self.seconds)
        return super().step(action)


def simulation_times(planner: planvec.MCTS, env: planvec.BatchEnv[Any], repeats: int) -> list[float]:
    """Return the seconds per simulation of several decisions."""
    times = []
    for seed in range(repeats + 1):
        plan = planner.plan(env, seed=seed)
        times.append(plan.elapsed / plan.num_simulations)
    return times[1:]  # the first one may compile


def cost(figures: Figures, repeats: int) -> None:
    """Print what a simulation takes with a function that costs nothing, and without functions."""
    figures.text("CartPole in this process, microseconds a simulation: median (lowest to highest)\n")
    figures.text("| in flight | without functions | `evaluate_fn` that costs nothing | ratio |")
    figures.text("| --- | --- | --- | --- |")
    with planvec.make("CartPole-v1", num_workers=0, compiled=True) as env:
        env.reset(seed=0)
        for batch_size in (1, 16):
            plan = partial(planvec.MCTS, NUM_SIMULATIONS, batch_size, reuse_tree=False)
            plain, with_function = (
                [1e6 * seconds for seconds in simulation_times(planner, env, repeats)]
                for planner in (plan(rollout_horizon=0), plan(selection="puct", evaluate_fn=free))
            )
            cells = [
                f"{statistics.median(times):.2f} ({min(times):.2f} to {max(times):.2f})"
                for times in (plain, with_function)
            ]
            ratio = statistics.median(with_function) / statistics.median(plain)
            figures.text(f"| {batch_size} | {' | '.join(cells)} | {ratio:.1f} |")
            figures.figure(f"function/{batch_size} in flight/ratio", ratio)


def wall(planner: planvec.MCTS, env: planvec.BatchEnv[Any], repeats: int) -> float:
    """Return the median seconds of a decision."""
    return statistics.median([planner.plan(env, seed=seed).elapsed for seed in range(repeats)])


def overlap(figures: Figures, repeats: int, num_workers: int) -> None:
    """Print how much of the function and of the steps overlaps."""
    figures.text(f"\n{num_workers} workers; a batch of steps and a call of the function wait for 2 ms each\n")
    figures.text("| in flight | steps | function | both | overlap |")
    figures.text("| --- | --- | --- | --- | --- |")
    for batch_size in (16, 64, 256):
        half = batch_size // 2
        seconds = SECONDS / -(-half // num_workers)
        make: Callable[[], gymnasium.Env[Any, Any]] = partial(Waits, seconds)
        options: dict[str, Any] = {"selection": "puct", "chance": "foresee", "reuse_tree": False}
        plan = partial(planvec.MCTS, 40 * batch_size, batch_size, **options)
        with planvec.make(make, num_workers=num_workers, compiled=False) as env:
            env.reset(seed=0)
            wall(plan(evaluate_fn=free), env, 2)
            steps = wall(plan(evaluate_fn=free), env, repeats)
            calls: list[int] = []

            def count(observations: np.ndarray, calls: list[int] = calls) -> tuple[np.ndarray, np.ndarray]:
                calls.append(len(observations))
                return waiting(observations)

            both = wall(plan(evaluate_fn=count), env, repeats)
        started = time.perf_counter()
        for num_rows in calls[: len(calls) // repeats]:
            waiting(np.empty((num_rows, 4)))
        function = time.perf_counter() - started
        share = max(steps, function) / both
        cells = " | ".join(f"{1e3 * seconds:.0f} ms" for seconds in (steps, function, both))
        figures.text(f"| {batch_size} | {cells} | {share:.2f} |")
        figures.figure(f"overlap/{batch_size} in flight/share", share)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    add_plain(parser)
    arguments = parser.parse_args()
    figures = Figures(arguments.plain)
    cost(figures, arguments.repeats)
    overlap(figures, arguments.repeats, arguments.workers)


if __name__ == "__main__":
    main()
