"""Measure batches of few rows over two workers, beside stepping in this process.

    python benchmarks/small_batches.py
    python benchmarks/small_batches.py --env Ant-v5 --rows 1 4 16
    python benchmarks/paired.py ../old . benchmarks/small_batches.py

    here       in this process (`num_workers=0`)
    workers    every row in one of the workers: a `timeout` needs them
    make       what `planvec.make(num_workers=2)` gives, which steps small batches here where it can and that
               is faster

All three step with the environment itself, without kernels, and take turns.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

from figures import Figures, add_plain
from timing import first_rows, measure

import planvec

OPTIONS: dict[str, dict[str, Any]] = {
    "here": {"num_workers": 0},
    "workers": {"num_workers": 2, "timeout": 600.0},
    "make": {"num_workers": 2},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 16, 64, 256])
    parser.add_argument("--repeats", type=int, default=9)
    add_plain(parser)
    arguments = parser.parse_args()
    figures = Figures(arguments.plain)
    envs = {name: planvec.make(arguments.env, compiled=False, **options) for name, options in OPTIONS.items()}
    figures.text(f"{arguments.env}: microseconds of one call of step_batch")
    figures.text(f"{'rows':>6}" + "".join(f"{name:>12}" for name in OPTIONS))
    for num_rows in arguments.rows:
        actions, states = first_rows(envs["here"], num_rows)
        calls: dict[str, Callable[[], Any]] = {
            name: partial(env.step_batch, actions, states) for name, env in envs.items()
        }
        for _ in range(300):  # so that `make` has decided
            calls["make"]()
        seconds = measure(calls, arguments.repeats, 0.05)
        figures.text(f"{num_rows:>6}" + "".join(f"{seconds[name] * 1e6:>12,.0f}" for name in OPTIONS))
        for name in OPTIONS:
            figures.figure(f"{arguments.env}/{num_rows}_rows/{name}/us", seconds[name] * 1e6)
    for env in envs.values():
        env.close()


if __name__ == "__main__":
    main()
