"""Measure how near batches of rows of uneven cost come to the limit `sum(cost) / num_workers`.

    python benchmarks/uneven_rows.py                   # everything, about three minutes
    python benchmarks/uneven_rows.py --repeats 1 --orders shuffled
    python benchmarks/uneven_rows.py --clock cpu       # on a machine that others use

The first half of 512 rows costs 2 ms each and the second half 0.1 ms. They are sent sorted with the expensive
rows first or the cheap ones first, or shuffled:

    step_batch                 one step that costs as much as the row
    rollout_batch              4 steps; each costs a quarter of the row
    rollout_batch, early ends  every step costs 0.1 ms; expensive rows take 20 steps, cheap ones end after 1

by calls that wait and by promises that are read at once. "cold" is the first call after opening, when nothing
is known of the cost of rows; "warm" are the calls after it, which learn from the one before.

The cost is a loop that looks at `time.perf_counter` until the time is over. A row then costs what it says
whatever the speed of the core, so that the limit is known and need not be measured in a run of its own. A
loop of calibrated length is not used: cores change their speed by more than the few percent that this is
about. A worker that has to wait for a core gets that time for nothing, but only for the row at work; a time
slice is longer than a row, so that two workers on one core reach about half of the limit. `--clock cpu` burns
CPU time of the worker's thread instead, and gives nothing for nothing.

Other processes on the machine keep workers from the cores. The kernel counts how long, and two more figures
come from that: the share of the time for which workers waited for a core, and the fraction of the limit
without these waits, `sum(cost) / (num_workers * elapsed - waits)`. Where workers waited for more than a few
percent, only the latter says something about how rows are divided among the workers, and only with
`--clock cpu`: by the other clock it may be above 1.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from figures import Figures, add_plain

import planvec

NUM_ROWS = 512
EXPENSIVE, CHEAP = 2e-3, 0.1e-3
"""Seconds that a row costs."""
WANTED = 0.93
NEVER = 2**31
CLOCKS = {"wall": time.perf_counter, "cpu": time.thread_time}


class Uneven(gymnasium.Env[Any, Any]):
    """Takes as long over a step as its state says.

    Args:
        clock: Measures how long a step takes; one of `CLOCKS`.
    """

    observation_space = gymnasium.spaces.Box(0, np.inf, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.seconds, self.steps_left = 0.0, NEVER

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin with steps that cost nothing."""
        super().reset(seed=seed)
        self.seconds, self.steps_left = 0.0, NEVER
        return np.array([self.seconds]), {}

    def step(self, action: Any) -> Any:
        """Burn the time that a step costs."""
        clock = self.clock
        end = clock() + self.seconds
        while clock() < end:
            pass
        self.steps_left -= 1
        return np.array([self.seconds]), 1.0, self.steps_left <= 0, False, {}


class UnevenCodec(planvec.Codec):
    """Saves an `Uneven`."""

    dtype = np.dtype([("seconds", "f8"), ("steps_left", "i8")])
    draws = False

    def get(self, env: Any) -> Any:
        """Return the state."""
        return env.seconds, env.steps_left

    def set(self, env: Any, value: Any) -> None:
        """Restore a state."""
        env.seconds, env.steps_left = value

    def observe(self, env: Any) -> Any:
        """Return the seconds that a step takes."""
        return np.array([env.seconds])


class Kind(NamedTuple):
    """Describes how rows spend their cost.

    Attributes:
        horizon: Steps that a rollout is asked for; 0: one step by `step_batch`.
        ends_early: Whether cheap rows take fewer steps, rather than cheaper ones.
    """

    horizon: int
    ends_early: bool = False

    def states(self, base: Any, costs: Any) -> Any:
        """Return the states of rows of these costs, in seconds."""
        states = np.repeat(base, len(costs))
        if self.ends_early:
            states["seconds"] = EXPENSIVE / self.horizon
            states["steps_left"] = np.rint(costs / EXPENSIVE * self.horizon)
        else:
            states["seconds"] = costs / max(self.horizon, 1)
        return states

    def call(self, env: Any, states: Any, blocking: bool) -> Any:
        """Step the rows, or roll them out."""
        if self.horizon:
            actions = np.zeros((len(states), self.horizon), int)
            out = env.rollout_batch(states, actions=actions, blocking=blocking)
        else:
            out = env.step_batch(np.zeros(len(states), int), states, blocking=blocking)
        return out if blocking else out.result()


KINDS = {
    "step_batch": Kind(0),
    "rollout_batch": Kind(4),
    "rollout_batch, early ends": Kind(round(EXPENSIVE / CHEAP), ends_early=True),
}
MODES = ("blocking", "promise")
ORDERS = ("expensive first", "cheap first", "shuffled")


def costs_of(order: str, repeat: int) -> Any:
    """Return the seconds that each row costs, `[NUM_ROWS]`."""
    costs = np.repeat([EXPENSIVE, CHEAP], NUM_ROWS // 2)
    if order == "cheap first":
        return costs[::-1]
    return np.random.default_rng(repeat).permutation(costs) if order == "shuffled" else costs


class Sample(NamedTuple):
    """Holds the measurements of one call.

    Attributes:
        fraction: Of the limit.
        undisturbed: The same without the time for which workers waited for a core.
        waited: Share of the time for which workers waited for a core.
    """

    fraction: float
    undisturbed: float
    waited: float


def seconds_waited(env: Any) -> float:
    """Return the seconds for which workers were able to run, and had no core, since they were started."""
    nanoseconds = [Path(f"/proc/{worker.pid}/schedstat").read_text().split()[1] for worker in env.workers]
    return sum(map(int, nanoseconds)) * 1e-9


def measure(kind: Kind, order: str, blocking: bool, arguments: argparse.Namespace) -> dict[str, list[Sample]]:
    """Measure one kind of call in one order, with new workers for every repeat; returns "cold" and "warm"."""
    clock, num_workers = CLOCKS[arguments.clock], arguments.num_workers
    samples: dict[str, list[Sample]] = {"cold": [], "warm": []}
    for repeat in range(arguments.repeats):
        costs = costs_of(order, repeat)
        with planvec.make(lambda: Uneven(clock), num_workers=num_workers, info_keys=()) as env:
            states = kind.states(env.reset(seed=0).state, costs)
            for number in range(1 + arguments.warm):
                waited, started = seconds_waited(env), time.perf_counter()
                kind.call(env, states, blocking)
                available = num_workers * (time.perf_counter() - started)
                waited = seconds_waited(env) - waited
                cost = costs.sum()
                sample = Sample(cost / available, cost / (available - waited), waited / available)
                samples["warm" if number else "cold"].append(sample)
    return samples


def report(name: str, samples: list[Sample], figures: Figures) -> None:
    """Print the medians of some calls."""
    fractions, undisturbed, waited = ([*column] for column in zip(*samples, strict=True))
    median = statistics.median(fractions)
    figures.text(
        f"{name:<56} {median:6.1%} of the limit ({min(fractions):.1%} to {max(fractions):.1%}); "
        f"waited for a core {statistics.median(waited):.1%}; "
        f"without that {statistics.median(undisturbed):.1%} "
        f"({min(undisturbed):.1%} to {max(undisturbed):.1%}){'' if median >= WANTED else '  below 93 %'}"
    )
    figures.figure(f"{name}/of_limit_share", median)
    figures.figure(f"{name}/of_limit_without_waits_share", statistics.median(undisturbed))
    figures.figure(f"{name}/waited_share", statistics.median(waited))


def main() -> None:
    """Measure every kind of call in every order."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5, help="openings, each with one cold call")
    parser.add_argument("--warm", type=int, default=3, help="further calls of each opening")
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND")
    parser.add_argument("--orders", nargs="+", choices=ORDERS, default=list(ORDERS), metavar="ORDER")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    add_plain(parser)
    arguments = parser.parse_args()
    figures = Figures(arguments.plain)
    planvec.register_codec(Uneven, UnevenCodec)
    for kind, order, mode in itertools.product(arguments.kinds, arguments.orders, arguments.modes):
        samples = measure(KINDS[kind], order, mode == "blocking", arguments)
        for when, calls in samples.items():
            if calls:
                report(f"{kind}/{order}/{mode}/{when}", calls, figures)


if __name__ == "__main__":
    main()
