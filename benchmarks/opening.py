"""How long workers take to open, and to come back after a kill, by each start method.

    python benchmarks/opening.py

Each figure comes from a new interpreter, so that helpers (the template, the fork server) are started anew
and their time counts; what an interpreter takes to import planvec does not. The start methods take turns. The
best of some rounds is shown, since other processes can only make it longer; for a kill, best and median.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

METHODS = ["template", "spawn", "forkserver", "fork"]

OPEN = """
import time
import planvec, planvec.envs.opening
started = time.perf_counter()
with planvec.make("CartPole-v1", num_workers={num_workers}, start_method={method!r}):
    print(time.perf_counter() - started, flush=True)
"""

KILL = """
import logging, os, signal, time
import planvec
logging.disable()
with planvec.make("CartPole-v1", num_workers=1, start_method={method!r}) as env:
    for _ in range({times}):
        env.step_batch([0])
        started = time.perf_counter()
        os.kill(env.workers[0].pid, signal.SIGKILL)
        env.step_batch([0])
        print(time.perf_counter() - started, flush=True)
    assert env.stats.restarts == {times}
"""


def seconds(code: str, **values: object) -> list[float]:
    """Run a script in a new interpreter; returns the seconds that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code.format(**values)], stdout=subprocess.PIPE, text=True, check=True
    )
    return [float(line) for line in done.stdout.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kills", type=int, default=20)
    arguments = parser.parse_args()
    for num_workers in arguments.workers:
        times: dict[str, list[float]] = {method: [] for method in arguments.methods}
        for _ in range(arguments.rounds):
            for method in times:
                times[method] += seconds(OPEN, num_workers=num_workers, method=method)
        best = "  ".join(f"{method} {min(taken):.2f} s" for method, taken in times.items())
        print(f"{num_workers:>2} workers are open after  {best}", flush=True)
    kills = {
        method: [1000 * taken for taken in seconds(KILL, times=arguments.kills, method=method)]
        for method in arguments.methods
    }
    shown = "  ".join(
        f"{method} {statistics.median(taken):.0f} ms (best {min(taken):.0f})"
        for method, taken in kills.items()
    )
    print(f"a killed worker is replaced after  {shown}")


if __name__ == "__main__":
    main()
