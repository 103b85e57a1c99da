"""Kill `planvec plan` at random moments, resume it, and compare the bytes with those of a run in one piece.

    python benchmarks/resume.py                 # 20 runs of four planners, about 5 minutes
    python benchmarks/resume.py --runs 3

Each run is killed by SIGKILL at a random moment, resumed, killed again, and so on, three times; then it is
left to its end. The exit status is 1 if any trajectory has other bytes.
"""

from __future__ import annotations

import argparse
import itertools
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

CASES = (
    ("CartPole-v1", "--planner mcts --num-simulations 400 --max-steps 60"),
    ("CartPole-v1", "--planner swarm --max-steps 60"),
    ("Pendulum-v1", "--planner icem --max-steps 40"),
    ("MiniGrid-Empty-5x5-v0", "--planner mcts --num-simulations 100 --max-steps 12"),
)
NUM_KILLS = 3


def command(*arguments: str) -> list[str]:
    """Return the command line of a run without a progress bar, in its own process."""
    return [sys.executable, "-m", "planvec", "plan", *arguments, "--num-workers", "0", "--no-progress"]


def run_to_the_end(arguments: list[str]) -> float:
    """Run a command, and return its seconds."""
    started = time.monotonic()
    subprocess.run(command(*arguments), check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - started


def killed_run(arguments: list[str], directory: Path, seconds: float, rng: np.random.Generator) -> int:
    """Run with kills at random moments, and return how many steps the run had made at the first one."""
    given, steps = [*arguments, "--out", str(directory)], -1
    for _ in range(NUM_KILLS):
        process = subprocess.Popen(command(*given), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(rng.uniform(0.2, 1.1) * seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        log = directory / "steps.csv"
        if steps < 0:
            steps = max(0, len(log.read_text().splitlines()) - 1) if log.exists() else 0
        if (directory / "run.json").exists():
            given = ["--resume", str(directory)]
    run_to_the_end(given)
    return steps


def main() -> int:
    """Print a line for each run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng, num_same = np.random.default_rng(arguments.seed), 0
    with tempfile.TemporaryDirectory() as folder:
        whole = {}
        for index, (env_id, options) in enumerate(CASES):
            directory = Path(folder, f"whole-{index}")
            run = [env_id, *options.split(), "--seed", "0"]
            run_to_the_end([*run, "--out", str(directory)])  # compiles
            seconds = run_to_the_end([*run, "--out", str(directory), "--overwrite"])
            whole[index] = run, seconds, (directory / "trajectory.npz").read_bytes()
        for number, index in zip(range(arguments.runs), itertools.cycle(whole), strict=False):
            run, seconds, expected = whole[index]
            directory = Path(folder, f"killed-{number}")
            steps = killed_run(run, directory, seconds, rng)
            is_same = (directory / "trajectory.npz").read_bytes() == expected
            num_same += is_same
            outcome = "same" if is_same else "OTHER"
            print(f"{' '.join(run[:3])}: first killed after {steps} steps, {outcome} bytes")
    print(f"{num_same} of {arguments.runs} trajectories have the same bytes")
    return 0 if num_same == arguments.runs else 1


if __name__ == "__main__":
    sys.exit(main())
