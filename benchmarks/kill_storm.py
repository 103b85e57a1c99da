"""Kill workers and their template process at random while they work; compare every result bit for bit.

    python benchmarks/kill_storm.py --minutes 10 --kills-per-second 2

A `BatchEnv` and Gymnasium's vector interface take turns, each with two workers. A batch of random states is
stepped or rolled out, and a vector environment with exact states takes a random walk; both are compared with
the same calls without workers. Meanwhile a thread sends SIGKILL to a random one of the workers and the
template processes, whether they are busy, idle or just starting.

It ends with status 1 if a result differed, a call was given up, or a process or shared memory was left.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import itertools
import logging
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from soak import left_over, wrong_rows
from vector_soak import same, walk_gymnasium

import planvec
from planvec.backends.processes import system

ENVIRONMENTS = ("CartPole-v1", "FrozenLake-v1", "Pendulum-v1", "Walk")
SECONDS_EACH = 5.0
"""Time for which a `BatchEnv` stays open."""


class Walk(gymnasium.Env[Any, Any]):
    """Walks at random, and keeps a list: it is saved by a copy of its attributes."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin at the origin."""
        super().reset(seed=seed)
        self.path = [0.0]
        return np.array([0.0, 0.0]), {}

    def step(self, action: Any) -> Any:
        """Take a step of random length."""
        self.path = [*self.path[-9:], self.path[-1] + self.np_random.normal() + int(action)]
        return np.array(self.path[-2:]), self.path[-1], abs(self.path[-1]) > 12, False, {}


class Storm(threading.Thread):
    """Sends SIGKILL to processes of planvec.

    Args:
        per_second: Kills per second, on average.

    Attributes:
        workers: The workers that are open.
        counts: Kills of each kind of process.
        killed: The processes that were killed.
    """

    def __init__(self, per_second: float) -> None:
        super().__init__(daemon=True)
        self.per_second = per_second
        self.workers: list[Any] = []
        self.counts = Counter[str]()
        self.killed: set[int] = set()
        self.is_over = threading.Event()

    def run(self) -> None:
        """Kill until `is_over` is set."""
        own = random.Random()  # an environment that draws from the global generator is refused
        while not self.is_over.wait(own.expovariate(self.per_second)):
            targets = dict.fromkeys(templates(), "template")
            for worker in self.workers:
                with contextlib.suppress(AttributeError):  # it is just started
                    targets[worker.pid] = "worker, ready" if worker.is_ready else "worker, starting"
            living = [pid for pid in targets if system.state(pid) not in ("", "Z")]
            if not living:
                continue
            pid = own.choice(living)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.counts[targets[pid]] += 1
                self.killed.add(pid)


def templates() -> list[int]:
    """Return the template processes of this process."""
    return [pid for pid in system.children(os.getpid()) if "processes.template" in system.command(pid)]


def make(env_id: str) -> Any:
    return Walk() if env_id == "Walk" else gymnasium.make(env_id)


def step_batches(env_id: str, storm: Storm, seed: int, until: float) -> tuple[int, int]:
    """Step batches until a time. Return the numbers of rows, and of those that differed."""
    rng = np.random.default_rng(seed)
    factory = functools.partial(make, env_id)
    num_rows = num_wrong = 0
    # With a timeout, since small batches of harmless environments would be stepped in this process.
    with (
        planvec.make(factory, num_workers=0) as reference,
        planvec.make(factory, num_workers=2, timeout=60.0) as env,
    ):
        storm.workers = list(env.workers)
        pool = np.concatenate([np.repeat(reference.reset(seed=seed).state, 1) for seed in range(20)])
        reference.action_space.seed(seed)
        while time.monotonic() < until:
            size = int(np.exp(rng.uniform(0, np.log(2000))))
            states = pool[rng.integers(len(pool), size=size)]
            seeds = rng.integers(2**63, size=size)
            if rng.random() < 0.3:
                given: dict[str, Any] = {"horizon": 10, "action_seed": int(rng.integers(2**63))}
                name = "rollout_batch"
            else:
                few = np.array([reference.action_space.sample() for _ in range(20)])
                given = {"actions": few[rng.integers(len(few), size=size)], "dt": rng.integers(1, 5, size)}
                name = "step_batch"
            got = getattr(env, name)(states=states, seeds=seeds, **given)
            expected = getattr(reference, name)(states=states, seeds=seeds, **given)
            num_wrong += wrong_rows(got, expected)
            num_rows += size
            if name == "step_batch":
                pool = np.concatenate([pool[-30:], got.new_states[-30:]])
        storm.workers = []
    return num_rows, num_wrong


def walk(env_id: str, storm: Storm, seed: int) -> tuple[int, int]:
    """Take a walk in a vector environment. Return the numbers of results, and of those that differed."""

    def note(env: Any) -> None:
        storm.workers = [] if env.num_workers == 0 else list(env._engine._processes.workers)

    expected = walk_gymnasium(env_id, 6, 0, seed, lambda env: None, make)
    got = walk_gymnasium(env_id, 6, 2, seed, note, make)
    storm.workers = []
    return len(got), sum(not same(*pair) for pair in zip(got, expected, strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--kills-per-second", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logging.getLogger("planvec").setLevel(logging.CRITICAL)
    random.seed(options.seed)
    storm, failures = Storm(options.kills_per_second), list[str]()
    end = time.monotonic() + options.minutes * 60
    counts = Counter[str]()
    storm.start()
    for number, env_id in enumerate(itertools.cycle(ENVIRONMENTS)):
        seed = options.seed + number
        if time.monotonic() >= end:
            break
        for kind in ("batches", "walk"):
            started = time.monotonic()
            try:
                if kind == "batches":
                    num, num_wrong = step_batches(env_id, storm, seed, started + SECONDS_EACH)
                else:
                    num, num_wrong = walk(env_id, storm, seed)
            except planvec.PlanvecError as error:
                failures.append(f"{kind} of {env_id}: {type(error).__name__}: {error}")
                continue
            counts[kind] += num
            if num_wrong:
                failures.append(f"{kind} of {env_id}, seed {seed}: {num_wrong} results differ")
    storm.is_over.set()
    storm.join()
    gc.collect()  # closed environments are in cycles
    failures += left_over()
    failures += [f"process {pid}" for pid in storm.killed if "planvec" in system.command(pid)]
    failures += [str(path) for path in Path("/dev/shm").glob("*planvec*")]
    print(f"{counts['batches']:,} rows of batches and {counts['walk']:,} results of vector environments")
    print(f"{sum(storm.counts.values())} kills: {dict(storm.counts)}")
    print(f"{len(failures)} failures", *failures, sep="\n")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
