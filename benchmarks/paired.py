"""Run one benchmark alternately on two checkouts, and compare its figures.

    python benchmarks/paired.py ../old . benchmarks/throughput.py --rounds 5 -- --quick
    python benchmarks/paired.py ../old . benchmarks/fast_path.py -- --env Ant-v5 --seconds 5
    python benchmarks/paired.py ../old . benchmarks/supervision.py -- --contenders with

The options after `--` are for the benchmark. It is called with `--plain` too, and prints lines `name value`.
The same script runs on both checkouts, each in a new interpreter that finds planvec by PYTHONPATH, from an
empty folder. Every second round begins with the new checkout.

The figures of a round are a pair: what slows the machine for longer than a round slows both. A line shows the
medians with their ranges, the ratio of the medians, the range of the ratios of the pairs, and for times the
ratio of the best: other processes can only make them longer. The unit at the end of a name says whether
more is better.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from figures import Figures, add_plain

Runs = list[dict[str, float]]
"""Figures of one checkout, by name; one entry per round."""
TIMES = ("/us", "/ms", "/s")
"""Ends of the names of times."""


def environment(checkout: Path) -> dict[str, str]:
    """Return the environment variables with which planvec comes from a checkout."""
    return os.environ | {"PYTHONPATH": str(checkout)}


def check(checkout: Path, cwd: str) -> None:
    """Refuse a checkout that Python does not import planvec from."""
    done = subprocess.run(
        [sys.executable, "-c", "import planvec; print(planvec.__file__)"],
        env=environment(checkout),
        cwd=cwd,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    if not Path(done.stdout.strip()).is_relative_to(checkout):
        raise SystemExit(f"{checkout}: expected a checkout of planvec, got {done.stdout.strip()}")


def run(checkout: Path, script: Path, options: list[str], cwd: str) -> dict[str, float]:
    """Run the benchmark once; returns its figures."""
    command = [sys.executable, str(script), "--plain", *options]
    done = subprocess.run(
        command, env=environment(checkout), cwd=cwd, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed on {checkout}:\n{done.stderr[-3000:]}")
    lines = [line.rpartition(" ") for line in done.stdout.splitlines()]
    return {name: float(value) for name, _, value in lines}


def compare(name: str, old: Runs, new: Runs, figures: Figures) -> None:
    """Print one figure of both checkouts, and its ratio."""
    before, after = [run[name] for run in old], [run[name] for run in new]
    ratios = sorted(b / a if a else float("nan") for a, b in zip(before, after, strict=True))
    medians = statistics.median(before), statistics.median(after)
    ratio = medians[1] / medians[0] if medians[0] else float("nan")
    best = f", best {min(after) / min(before):.3f}" if name.endswith(TIMES) else ""
    figures.text(
        f"{name:<52} old {shown(before):<26} new {shown(after):<26} "
        f"new/old {ratio:.3f} (pairs {ratios[0]:.3f} to {ratios[-1]:.3f}{best})"
    )
    for which, value in (("old", medians[0]), ("new", medians[1]), ("new/old/ratio", ratio)):
        figures.figure(f"{name}/{which}", value)


def shown(values: list[float]) -> str:
    """Return "median [lowest to highest]"."""
    numbers = statistics.median(values), min(values), max(values)
    median, low, high = (f"{n:,.0f}" if abs(n) >= 1000 else f"{n:.4g}" for n in numbers)
    return f"{median} [{low} to {high}]"


def main() -> None:
    """Run all rounds, and print one line per figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("old", type=Path, help="folder of a checkout")
    parser.add_argument("new", type=Path, help="folder of another")
    parser.add_argument("script", type=Path, help="the benchmark, run on both")
    parser.add_argument("--rounds", type=int, default=5)
    add_plain(parser)
    given = sys.argv[1:]
    split = given.index("--") if "--" in given else len(given)
    arguments, options = parser.parse_args(given[:split]), given[split + 1 :]
    checkouts = {"old": arguments.old.resolve(), "new": arguments.new.resolve()}
    runs: dict[str, Runs] = {which: [] for which in checkouts}
    with tempfile.TemporaryDirectory() as cwd:
        for checkout in checkouts.values():
            check(checkout, cwd)
        for number in range(arguments.rounds):
            for which in checkouts if number % 2 == 0 else reversed(checkouts):
                runs[which].append(run(checkouts[which], arguments.script.resolve(), options, cwd))
            print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
    figures = Figures(arguments.plain)
    names = [set.intersection(*(set(figures) for figures in runs[which])) for which in checkouts]
    for name in runs["new"][0]:
        if name in names[0] & names[1]:
            compare(name, runs["old"], runs["new"], figures)
    for which, own, other in (("old", *names), ("new", *reversed(names))):
        for name in sorted(own - other):
            figures.text(f"{name:<60} only {which}")


if __name__ == "__main__":
    main()
