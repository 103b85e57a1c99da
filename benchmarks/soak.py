"""Step random batches while workers are killed, stopped and crashed; every result is compared bit for bit.

    python benchmarks/soak.py --minutes 10
    python benchmarks/soak.py --minutes 10 --kills-per-second 4 --num-workers 2

Three client threads, and three workers unless `--num-workers` says otherwise. A client steps or rolls out a
random batch of random states (its size, `dt` and seeds are drawn, blocking or up to three promises at once,
read in any order) and compares every result with what the same call gives with `num_workers=0`. Meanwhile
another thread sends SIGKILL, SIGSTOP, SIGSEGV, SIGABRT and SIGBUS to workers at random, whether they are
busy, idle or just starting; one of the environments also crashes from within (a null pointer, an exit) when
it is told to. With `--kills-per-second` it sends SIGKILL alone, at that rate on average. Every few seconds
all is closed, checked for what is left, and opened anew with the next environment and start method; "default"
is the one that `planvec.make` takes by itself.

It ends with status 1 if a row was wrong, a call was given up, a result was lost, or anything was left.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import ctypes
import itertools
import logging
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import planvec
from planvec.backends.processes import system

SIGNALS = {
    signal.SIGKILL: 60,
    signal.SIGSTOP: 8,
    signal.SIGSEGV: 10,
    signal.SIGABRT: 6,
    signal.SIGBUS: 6,
}
"""Signal -> how often, in percent; the rest are crashes from within, where the environment has them."""
CRASH = 10
METHODS = ("default", "template", "spawn", "fork")
ENVIRONMENTS = {
    "CartPole-v1": 3000,
    "crashing": 1500,
    "FrozenLake-v1": 2000,
    "Hopper-v5": 400,
    "LunarLander-v3": 200,
    "ALE/MsPacman-v5": 60,
    "MiniGrid-DoorKey-8x8-v0": 100,
}
"""Environment -> the largest batch."""


class Crashing(gymnasium.Env):
    """Walks at random. Its process ends in a step that finds a certain file, which it deletes.

    Args:
        path: Of the file.
        spared: The id of a process that does not crash.
    """

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, path: str, spared: int) -> None:
        self.path = path
        self.spared = spared

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin at the origin."""
        super().reset(seed=seed)
        self.x, self.count = 0.0, 0
        return np.array([self.x, self.count]), {}

    def step(self, action: Any) -> Any:
        """Walk, or crash."""
        if os.path.exists(self.path) and os.getpid() != self.spared:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)
                if random.random() < 0.5:
                    os._exit(7)
                ctypes.string_at(0)
        self.x += self.np_random.normal() + (1.0 if action else -1.0)
        self.count += 1
        return np.array([self.x, self.count]), -abs(self.x), abs(self.x) > 12, self.count >= 300, {}


@dataclass
class Score:
    """Counts what has happened so far.

    Attributes:
        given_up: Calls that raised one of planvec's errors.
        lost: Clients that ended otherwise, or did not end.
    """

    batches: int = 0
    rows: int = 0
    wrong_rows: int = 0
    given_up: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    recoveries: dict[str, list[float]] = field(default_factory=dict)
    slowest: float = 0.0
    leaks: list[str] = field(default_factory=list)
    restarts: int = 0
    retries: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


def wrong_rows(got: Any, expected: Any) -> int:
    """Return how many rows of two results differ in any bit."""
    differ = np.zeros(len(expected[0] if expected[0] is not None else expected[2]), bool)
    for one, other in zip(leaves(got), leaves(expected), strict=True):
        if one.shape != other.shape or one.dtype != other.dtype:
            return len(differ)
        if one.dtype.hasobject:
            differ |= np.array([a != b for a, b in zip(one, other, strict=True)], bool)
        elif len(one):
            size = len(one)
            differ |= (
                np.ascontiguousarray(one).view(np.uint8).reshape(size, -1)
                != np.ascontiguousarray(other).view(np.uint8).reshape(size, -1)
            ).any(axis=1)
    return int(differ.sum())


def leaves(value: Any) -> list[Any]:
    """Return the arrays of a nested result."""
    if isinstance(value, dict):
        return [leaf for key in sorted(value) for leaf in leaves(value[key])]
    if isinstance(value, tuple) and value and isinstance(value[0], str):
        return [np.array(value, object)]  # a batch of texts
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in leaves(part)]
    return [np.asarray(value)] if value is not None else []


class Client(threading.Thread):
    """Sends random batches and checks what comes back."""

    def __init__(self, session: Session, seed: int) -> None:
        super().__init__(daemon=True)
        self.session = session
        self.rng = np.random.default_rng(seed)
        self.space = copy.deepcopy(session.env.action_space)
        self.space.seed(seed)

    def run(self) -> None:
        """Work until the session stops; what is pending then is still read."""
        try:
            self.work()
        except Exception as error:
            with self.session.score.lock:
                self.session.score.lost.append(f"{self.session.name}: {type(error).__name__}: {error}")

    def work(self) -> None:
        """Call, read and compare."""
        env, score = self.session.env, self.session.score
        states = np.repeat(env.get_state(), 1)
        while not self.session.stop.is_set():
            calls = [self.draw(states) for _ in range(int(self.rng.integers(1, 4)))]
            started = time.monotonic()
            try:
                results = self.results(calls)
            except planvec.PlanvecError as error:
                with score.lock:
                    score.given_up.append(f"{self.session.name}: {type(error).__name__}: {error}")
                continue
            elapsed = time.monotonic() - started
            for (name, given), result in zip(calls, results, strict=True):
                expected = getattr(self.session.reference, name)(**given)
                wrong = wrong_rows(result, expected)
                with score.lock:
                    score.batches += 1
                    score.rows += len(given["states"])
                    score.wrong_rows += wrong
                    score.slowest = max(score.slowest, elapsed)
            news = result.new_states if name == "step_batch" else result.final_states
            states = np.concatenate([news[-30:], np.repeat(env.get_state(), 2)])

    def results(self, calls: list[tuple[str, dict[str, Any]]]) -> list[Any]:
        """Return the results of calls: of one that waits, or of several promises."""
        env = self.session.env
        if len(calls) == 1:
            return [getattr(env, calls[0][0])(**calls[0][1])]
        promises = [getattr(env, name)(**given, blocking=False) for name, given in calls]
        results = [None] * len(calls)
        for index in self.rng.permutation(len(calls)):
            results[index] = promises[index].result(timeout=120)
        return results

    def draw(self, pool: Any) -> tuple[str, dict[str, Any]]:
        """Return a random call: the name of the method, and its arguments."""
        rng, largest = self.rng, self.session.largest
        size = int(np.exp(rng.uniform(0, np.log(largest))))
        states = pool[rng.integers(len(pool), size=size)]
        seeds = rng.integers(2**63, size=size) if rng.random() < 0.5 else None
        if rng.random() < 0.2:
            horizon = int(rng.integers(1, 12))
            given = {"states": states[: size // 4 + 1], "horizon": horizon}
            given["action_seed"] = int(rng.integers(2**63))
            return "rollout_batch", {**given, "seeds": None if seeds is None else seeds[: size // 4 + 1]}
        few = np.array([self.space.sample() for _ in range(min(size, 50))])
        actions = few[rng.integers(len(few), size=size)]
        dt = rng.integers(1, 5, size)
        return "step_batch", {"states": states, "actions": actions, "dt": dt, "seeds": seeds}


class Saboteur(threading.Thread):
    """Kills, stops and crashes workers, and notes how long it takes until they are replaced.

    Args:
        session: Whose workers.
        seed: Of what it does.
        per_second: Faults on average.
        kills_only: Whether it sends SIGKILL alone, and again at once where it met a process that had ended.
    """

    def __init__(self, session: Session, seed: int, per_second: float, kills_only: bool) -> None:
        super().__init__(daemon=True)
        self.session = session
        self.random = random.Random(seed)
        self.pause = 1 / per_second
        self.kills_only = kills_only
        self.waiting: list[tuple[Any, int, float, str]] = []

    def run(self) -> None:
        """Cause faults until the session stops."""
        due = time.monotonic()
        while not self.session.stop.wait(0.002):
            self.look()
            now = time.monotonic()
            if now >= due:
                has_struck = self.strike(self.random.choice(self.session.env.workers))
                if has_struck or not self.kills_only:
                    # From when it was due: a kill that came late must not lower the rate.
                    due = (due if self.kills_only else now) + self.random.expovariate(1 / self.pause)

    def strike(self, worker: Any) -> bool:
        """Cause one fault; returns whether there was a process to cause it in."""
        path = self.session.crash_path
        weights = [*SIGNALS.values(), CRASH if path else 0]
        kind = signal.SIGKILL if self.kills_only else self.random.choices([*SIGNALS, None], weights)[0]
        score = self.session.score
        if kind is None:
            if not path.exists():  # the one before was found
                path.touch()
                score.faults["crash from within"] += 1
            return True
        pid = worker.pid
        if any(pid == struck for _, struck, _, _ in self.waiting):
            return False  # it has its fault already
        if system.state(pid) in ("", "Z"):
            return False  # it has ended already
        try:
            os.kill(pid, kind)
        except ProcessLookupError:
            return False
        name = ("starting, " if not worker.is_ready else "") + signal.Signals(kind).name
        score.faults[name] += 1
        self.waiting.append((worker, pid, time.monotonic(), signal.Signals(kind).name))
        return True

    def look(self) -> None:
        """Note which workers have been replaced."""
        for entry in list(self.waiting):
            worker, pid, since, name = entry
            if worker.pid != pid and worker.is_ready:
                self.waiting.remove(entry)
                key = f"{self.session.name}: {name}"
                self.session.score.recoveries.setdefault(key, []).append(time.monotonic() - since)


class Session:
    """Runs clients and a saboteur on one environment, opened once.

    Args:
        name: One of `ENVIRONMENTS`.
        method: The start method.
        num_workers: At least 1.
        score: Counts.
        directory: For files that tell an environment to crash.
    """

    def __init__(self, name: str, method: str, num_workers: int, score: Score, directory: Path) -> None:
        self.name = name
        self.score = score
        self.largest = ENVIRONMENTS[name]
        self.stop = threading.Event()
        self.crash_path = directory / "crash" if name == "crashing" else None
        source: Any = name
        if self.crash_path is not None:
            path, spared = str(self.crash_path), os.getpid()  # the reference steps in this process
            source = lambda: Crashing(path, spared)  # noqa: E731
        self.reference = planvec.make(source, num_workers=0, info_keys=(), compiled=False)
        self.env = planvec.make(
            source,
            num_workers=num_workers,
            info_keys=(),
            start_method=None if method == "default" else method,
            timeout=20.0,
        )

    def run(self, seconds: float, seed: int, per_second: float, kills_only: bool) -> None:
        """Run clients and saboteur, and close the environment. Args: as of `Saboteur`."""
        clients = [Client(self, seed + number) for number in range(3)]
        saboteur = Saboteur(self, seed, per_second, kills_only)
        for thread in (*clients, saboteur):
            thread.start()
        time.sleep(seconds)
        self.stop.set()
        for client in clients:
            client.join(180)
            if client.is_alive():
                self.score.lost.append(f"{self.name}: a call does not return")
        saboteur.join()
        self.score.restarts += self.env.stats.restarts
        self.score.retries += self.env.stats.retries
        self.env.close()
        self.reference.close()


def left_over() -> list[str]:
    """Return processes and shared memory that should be gone."""
    left = []
    helpers = ("resource_tracker", "processes.template")
    own = system.children(os.getpid())
    for pid in system.descendants(os.getpid()):
        command = system.command(pid)
        # Helpers end with this process; not what they have started.
        is_helper = any(helper in command for helper in helpers)
        if system.exists(pid) and not (is_helper and pid in own):
            left.append(f"process {pid}: {command[:80]}")
    for file in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if "memfd:planvec" in os.readlink(file):
                left.append(f"shared memory of {file.stat().st_size} bytes")
    return left


def report(score: Score, elapsed: float) -> None:
    """Print the counts."""
    total = sum(score.faults.values())
    print(f"{elapsed / 60:.1f} minutes: {score.batches:,} batches, {score.rows:,} rows compared")
    print(f"faults: {total:,}, {total / elapsed:.2f} a second")
    print(f"{score.restarts:,} workers replaced, {score.retries:,} chunks tried again")
    for name, count in score.faults.most_common():
        print(f"    {name:<24}{count:>6}")
    print("recovery, from the fault to a new worker that is ready (seconds):")
    print(f"    {'':<34}{'count':>6}{'median':>9}{'slowest':>9}")
    for name in sorted(score.recoveries):
        times = score.recoveries[name]
        print(f"    {name:<34}{len(times):>6}{statistics.median(times):>9.3f}{max(times):>9.3f}")
    print(f"slowest batch: {score.slowest:.2f} s")
    print(f"wrong rows: {score.wrong_rows}")
    print(f"calls given up: {len(score.given_up)}", *score.given_up[:20], sep="\n    ")
    print(f"lost results: {len(score.lost)}", *score.lost, sep="\n    ")
    print(f"left over: {len(score.leaks)}", *score.leaks, sep="\n    ")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    rate = parser.add_mutually_exclusive_group()
    rate.add_argument("--faults-per-second", type=float, default=7.0, help="of all kinds")
    rate.add_argument("--kills-per-second", type=float, help="SIGKILL alone, instead")
    parser.add_argument("--num-workers", type=int, default=3)
    parser.add_argument("--seconds-each", type=float, default=12.0, help="per environment and start method")
    parser.add_argument("--only", nargs="+", choices=ENVIRONMENTS, default=list(ENVIRONMENTS))
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--verbose", action="store_true", help="show planvec's log")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING if arguments.verbose else logging.CRITICAL)

    # Workers that crash have much to say, and an emulator greets: that is not what is to be read here.
    shown = sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
    if not arguments.verbose:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    score, started = Score(), time.monotonic()
    end = started + 60 * arguments.minutes
    turns = itertools.cycle(itertools.product(arguments.methods, arguments.only))
    with tempfile.TemporaryDirectory() as directory:
        for number, (method, name) in enumerate(turns):
            left = end - time.monotonic()
            if left <= 0 or score.lost:
                break
            session = Session(name, method, arguments.num_workers, score, Path(directory))
            seed = arguments.seed * 1_000_003 + 10 * number
            kills_only = arguments.kills_per_second is not None
            per_second = arguments.kills_per_second if kills_only else arguments.faults_per_second
            session.run(min(left, arguments.seconds_each), seed, per_second, kills_only)
            score.leaks += left_over()
            faults = sum(score.faults.values())
            print(
                f"{time.monotonic() - started:6.0f} s  {name}, {method}: {score.batches:,} batches, "
                f"{faults:,} faults, {score.wrong_rows} wrong rows, "
                f"{len(score.given_up)} calls given up so far",
                file=shown,
            )
    report(score, time.monotonic() - started)
    return int(bool(score.wrong_rows or score.given_up or score.lost or score.leaks))


if __name__ == "__main__":
    sys.exit(main())
