"""Kill `planvec plan` at random moments, resume it, and compare the bytes with those of a run in one piece.

    python benchmarks/resume.py                 # 20 runs of four planners, about 15 minutes
    python benchmarks/resume.py --runs 3

Each run is killed by SIGKILL, resumed, killed again, and so on, three times; then it is left to its end. One
kill of four comes at any moment from the start of Python on, the others at a random moment of the work, after
the first new step: within a decision, between two, or while a checkpoint is written. The exit status is 1 if
any trajectory has other bytes.
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
    ("CartPole-v1", "--planner mcts --num-simulations 100000 --max-steps 25"),
    ("CartPole-v1", "--planner swarm --num-walkers 2000 --max-steps 200"),
    ("Pendulum-v1", "--planner icem --num-trajectories 4000 --horizon 60 --max-steps 100"),
    ("MiniGrid-Empty-5x5-v0", "--planner mcts --num-simulations 300 --max-steps 12"),
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


def steps_in(directory: Path) -> int:
    """Return how many steps a run has made."""
    log = directory / "steps.csv"
    return max(0, len(log.read_text().splitlines()) - 1) if log.exists() else 0


def killed_run(arguments: list[str], directory: Path, seconds: float, rng: np.random.Generator) -> list[int]:
    """Run with kills at random moments, and return how many steps the run had made at each.

    Args:
        arguments: Those of a run that begins.
        directory: The directory of the run.
        seconds: Those of a run without kills.
        rng: Chooses the moments.
    """
    given, steps = [*arguments, "--out", str(directory)], []
    for _ in range(NUM_KILLS):
        before = steps_in(directory)
        process = subprocess.Popen(command(*given), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if rng.random() < 0.25:
            delay = rng.uniform(0.1, 1.0) * seconds
        else:
            while process.poll() is None and steps_in(directory) <= before:
                time.sleep(0.005)
            delay = rng.uniform(0.0, 0.25) * seconds
        try:
            process.wait(delay)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        steps.append(steps_in(directory))
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
            print(f"{' '.join(run[:3])}: killed after {steps} steps, {outcome} bytes", flush=True)
    print(f"{num_same} of {arguments.runs} trajectories have the same bytes")
    return 0 if num_same == arguments.runs else 1


if __name__ == "__main__":
    sys.exit(main())
