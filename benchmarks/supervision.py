"""Measure what it costs to supervise workers: the same batches with and without supervision.

    python benchmarks/supervision.py
    python benchmarks/paired.py ../old . benchmarks/supervision.py -- --contenders with

with      `planvec.make` with everything on: `timeout`, `max_restarts`, `max_worker_rss`
without   the same workers, slabs and messages without supervision (see `unsupervised`), and as many chunks
static    without supervision, and one chunk per worker: the chunks do not follow the work either

All run in turn in one process, and medians are compared. "without" needs the modules of this checkout; on
another one, only "with" can run.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from figures import Figures, add_plain

import planvec

ENV_ID = "CartPole-v1"
NUM_WORKERS = 2
CONTENDERS = ("with", "without", "static")


def seconds(stepper: Any, actions: Any, states: Any, calls: int) -> float:
    """Return the seconds of one call."""
    stepper.step_batch(actions, states)
    started = time.perf_counter()
    for _ in range(calls):
        stepper.step_batch(actions, states)
    return (time.perf_counter() - started) / calls


def chunks_per_call(env: planvec.BatchEnv, actions: Any, states: Any) -> int:
    """Return how many chunks a batch is cut into, once the cost of rows is known."""
    for _ in range(20):
        env.step_batch(actions, states)
    before = env.stats.num_chunks
    for _ in range(20):
        env.step_batch(actions, states)
    return max(1, round((env.stats.num_chunks - before) / 20))


def open_rivals(names: Sequence[str], num_chunks: int) -> dict[str, Any]:
    """Open the contenders without supervision."""
    if not names:
        return {}
    from unsupervised import Unsupervised

    rivals = {name: Unsupervised(ENV_ID, NUM_WORKERS) for name in names}
    if "without" in rivals:
        rivals["without"].num_chunks = num_chunks
    return rivals


def compare(num_rows: int, contenders: Sequence[str], rounds: int) -> dict[str, float]:
    """Return the median seconds of a call of each contender; in new processes, in turn."""
    limits: dict[str, Any] = {"timeout": 60.0, "max_worker_rss": 8 << 30}
    with planvec.make(ENV_ID, num_workers=NUM_WORKERS, info_keys=(), **limits) as env:
        actions = np.random.default_rng(0).integers(2, size=num_rows)
        states = np.repeat(env.reset(seed=0).state, num_rows)
        rivals = open_rivals(contenders[1:], chunks_per_call(env, actions, states))
        expected = env.step_batch(actions, states)
        for rival in rivals.values():
            out = rival.step_batch(actions, states)
            assert out.new_states.tobytes() == expected.new_states.tobytes()
            assert out.observations.tobytes() == expected.observations.tobytes()
        runs: dict[str, Any] = {"with": env, **rivals}
        times: dict[str, list[float]] = {name: [] for name in runs}
        calls = max(1, min(2000, 40_000 // num_rows))
        gc.disable()
        for number in range(rounds):
            for name in runs if number % 2 else reversed(runs):
                times[name].append(seconds(runs[name], actions, states, calls))
        gc.enable()
        for rival in rivals.values():
            rival.close()
    return {name: statistics.median(values) for name, values in times.items()}


def report(num_rows: int, openings: list[dict[str, float]], figures: Figures) -> None:
    """Print the medians over all openings, and the ratios to the contender with supervision."""
    for name in openings[0]:
        median = statistics.median(times[name] for times in openings)
        line = f"{num_rows} rows, {name:<8} {median * 1e6:9,.0f} us"
        if name != "with":
            ratios = sorted(times["with"] / times[name] for times in openings)
            low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
            line += (
                f"; with / {name} {statistics.median(ratios):.4f} "
                f"(quartiles {low:.4f} to {high:.4f} over {len(ratios)} openings)"
            )
            figures.figure(f"{num_rows} rows/with to {name}/ratio", statistics.median(ratios))
        figures.text(line)
        figures.figure(f"{num_rows} rows/{name}/us", median * 1e6)


def main() -> None:
    """Compare the contenders at each number of rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--openings", type=int, default=12, help="new processes: each has its own luck")
    parser.add_argument("--rounds", type=int, default=12, help="per opening")
    parser.add_argument("--rows", type=int, nargs="+", default=[4096])
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=CONTENDERS)
    add_plain(parser)
    arguments = parser.parse_args()
    figures = Figures(arguments.plain)
    contenders = ["with", *(name for name in CONTENDERS[1:] if name in arguments.contenders)]
    for num_rows in arguments.rows:
        openings = [compare(num_rows, contenders, arguments.rounds) for _ in range(arguments.openings)]
        report(num_rows, openings, figures)


if __name__ == "__main__":
    main()
