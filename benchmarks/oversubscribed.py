"""Measure what more workers than cores cost.

    python benchmarks/oversubscribed.py                    # 2 to 64 workers: about a minute

CartPole keeps its core busy: no more workers step at once than find a core, and a row should cost what it
costs with one worker per core. Steps that wait for 20 ms, one row for each worker, should take 20 ms in any
number: all workers wait at once. The last column is the floor: bare processes that sleep and answer.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from figures import Figures, add_plain
from gymnasium.envs.classic_control import CartPoleEnv
from signalling import scatter_and_gather, stepping

import planvec

NUM_ROWS = 2048
SECONDS = 0.02


class Sleeps(CartPoleEnv):
    """A CartPole whose steps wait."""

    def step(self, action: Any) -> Any:
        time.sleep(SECONDS)
        return super().step(action)


def median_time(call: Callable[[], object], repeats: int) -> float:
    """Return the median seconds of a call."""
    times = []
    for turn in range(repeats + 10):
        started = time.perf_counter()
        call()
        if turn >= 10:
            times.append(time.perf_counter() - started)
    return statistics.median(times)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", nargs="+", type=int, default=[2, 4, 8, 16, 32, 64])
    parser.add_argument("--repeats", type=int, default=40)
    add_plain(parser)
    arguments = parser.parse_args()
    figures = Figures(arguments.plain)
    figures.text("| workers | CartPole, 2,048 rows | 16 rows | steps of 20 ms | bare processes |")
    figures.text("| --- | --- | --- | --- | --- |")
    for count in arguments.workers:
        with contextlib.ExitStack() as stack:
            floor = scatter_and_gather(count, partial(time.sleep, SECONDS), False, stack)
            bare = median_time(floor, arguments.repeats)
        with planvec.make("CartPole-v1", num_workers=count, compiled=False) as env:
            row = median_time(stepping(env, NUM_ROWS), arguments.repeats) / NUM_ROWS
            few = median_time(stepping(env, 16), 5 * arguments.repeats)
        with planvec.make(Sleeps, num_workers=count, compiled=False) as env:
            waits = median_time(stepping(env, count), arguments.repeats)
        cells = f"{1e6 * row:.2f} us a row | {1e6 * few:.0f} us | {1e3 * waits:.1f} ms | {1e3 * bare:.1f} ms"
        figures.text(f"| {count} | {cells} |")
        figures.figure(f"{count} workers/CartPole/us", 1e6 * row)
        figures.figure(f"{count} workers/16 rows/us", 1e6 * few)
        figures.figure(f"{count} workers/steps of 20 ms/ms", 1e3 * waits)


if __name__ == "__main__":
    main()
