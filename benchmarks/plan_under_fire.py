"""Run `planvec plan` with and without kills of its workers, and compare the bytes of the trajectories.

    python benchmarks/plan_under_fire.py --every 0.3

Every 0.3 s a random worker, ready or just starting, gets SIGKILL.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from planvec.backends.processes import system


def workers_of(pid: int) -> list[int]:
    """Return the worker processes of one: its template's children."""
    templates = [child for child in system.children(pid) if "processes.template" in system.command(child)]
    return [worker for template in templates for worker in system.children(template)]


def plan(command: list[str], out: Path, every: float | None, max_kills: float) -> tuple[str, int, float]:
    """Run a plan; returns the hash of its trajectory, the number of kills, and the seconds it took."""
    started, kills = time.monotonic(), 0
    with subprocess.Popen(
        [sys.executable, "-m", "planvec", *command, "--out", str(out), "--no-progress", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        while process.poll() is None:
            time.sleep(every or 0.1)
            if every is not None and kills < max_kills:
                try:
                    os.kill(random.choice(workers_of(process.pid)), signal.SIGKILL)
                    kills += 1
                except (OSError, IndexError):  # it has just ended, or was killed already
                    continue
        assert process.stdout is not None
        output = process.stdout.read()
    if process.returncode:
        raise SystemExit(f"planvec ended with status {process.returncode}")
    print(f"    {kills} kills, {json.loads(output)['workers_replaced']} workers replaced", file=sys.stderr)
    digest = hashlib.sha256((out / "trajectory.npz").read_bytes()).hexdigest()
    return digest, kills, time.monotonic() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--every", type=float, default=0.3, help="seconds between two kills")
    parser.add_argument("--max-kills", type=float, default=math.inf)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--num-workers", default="2")
    parser.add_argument("--max-steps", help="default: until the episode ends")
    arguments = parser.parse_args()
    command = ["plan", arguments.env, "--seed", arguments.seed, "--num-workers", arguments.num_workers]
    if arguments.max_steps:
        command += ["--max-steps", arguments.max_steps]
    with tempfile.TemporaryDirectory() as directory:
        calm, _, seconds = plan(command, Path(directory) / "calm", None, 0)
        fire, kills, longer = plan(command, Path(directory) / "fire", arguments.every, arguments.max_kills)
    print(f"without kills {seconds:.1f} s, sha256 {calm}\nwith {kills} kills {longer:.1f} s, sha256 {fire}")
    print("the same bytes" if calm == fire else "DIFFERENT")
    return int(calm != fire)


if __name__ == "__main__":
    sys.exit(main())
