"""Measure snapshots by fork: what a step from a deep state costs, a tree search, and what faults do to them.

    python benchmarks/snapshots.py cost          a step from states of some depths: by a fork, and by replay
    python benchmarks/snapshots.py search        MCTS with 200 simulations, with snapshots and without
    python benchmarks/snapshots.py soak          kills runners and workers for ten minutes, and compares bits
    python benchmarks/snapshots.py soak --seconds 60

The environments are those that are installed: PandaPush (`panda-gym`), Super Mario Bros. (`nes-py`,
`gym-super-mario-bros`), and one whose state lies in memory of the C library, with steps of a millisecond,
which needs nothing.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import importlib.util
import os
import random
import signal
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from foreign_environments import make as make_foreign
from gymnasium import spaces

import planvec
from planvec.backends.processes.system import descendants, state


class Memory(gymnasium.Env[Any, Any]):
    """Keeps its state in memory of the C library. A step takes a millisecond of computing."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(3)

    def __init__(self, seconds: float = 0.001) -> None:
        self.seconds = seconds
        malloc = ctypes.CDLL(None).malloc
        malloc.restype = ctypes.c_void_p
        self.address = malloc(64)

    @property
    def cells(self) -> Any:
        """The state, 8 numbers."""
        return (ctypes.c_double * 8).from_address(self.address)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Fill the memory."""
        super().reset(seed=seed)
        for index in range(8):
            self.cells[index] = self.np_random.random()
        return np.array(self.cells[:2]), {}

    def step(self, action: Any) -> Any:
        """Change the memory."""
        end = time.perf_counter() + self.seconds
        while time.perf_counter() < end:
            pass
        self.cells[0] = 0.99 * self.cells[0] + int(action) - 1 + 0.01 * self.np_random.normal()
        self.cells[1] = 0.9 * self.cells[1] + self.cells[0]
        return np.array(self.cells[:2]), float(self.cells[1]), False, False, {}


def environments() -> dict[str, Callable[[], Any]]:
    """Return a factory for each environment that is installed, by its name."""
    found: dict[str, Callable[[], Any]] = {"memory of the C library": Memory}
    if importlib.util.find_spec("panda_gym"):
        found["PandaPush-v3"] = functools.partial(
            make_foreign, "gymnasium", "PandaPush-v3", "panda_gym", max_episode_steps=10_000
        )
    if importlib.util.find_spec("gym_super_mario_bros"):
        found["SuperMarioBros-v0"] = functools.partial(make_foreign, "mario", "SuperMarioBros-v0")
    return found


def codecs_of(name: str) -> list[planvec.Replayed]:
    """Return how an environment is replayed: with snapshots, and without if it restarts exactly."""
    if name.startswith("Panda"):
        return [planvec.Replayed(resets_in_forks=True)]
    return [planvec.Replayed(), planvec.Replayed(num_snapshots=0)]


def one(state: Any) -> np.ndarray:
    """Return a batch of one state."""
    batch = np.empty(1, object)
    batch[0] = state
    return batch


def open_env(factory: Callable[[], Any], codec: Any, **options: Any) -> Any:
    """Open an environment with a worker; None if it cannot be replayed."""
    try:
        return planvec.make(factory, num_workers=1, codec=codec, timeout=600, **options)
    except planvec.UnsupportedEnvError as error:
        print(f"    {str(error)[:100]}")
        return None


# -- the cost of a step ------------------------------------------------------------------------------


def measure_cost(depths: list[int]) -> None:
    """Print the milliseconds of a step from a deep state, median and quartiles of 20."""
    for name, factory in environments().items():
        print(name)
        for codec in codecs_of(name):
            env = open_env(factory, codec)
            if env is None:
                continue
            with env:
                env.action_space.seed(0)
                way = "by a fork" if codec.num_snapshots else "by replay"
                state, depth = env.reset(seed=0).state, 0
                nothing = np.zeros_like([env.action_space.sample()])  # random actions end an episode
                for wanted in depths:
                    while depth < wanted:
                        out = env.step_batch(nothing, one(state))
                        ended = bool(out.terminated[0] or out.truncated[0])
                        if ended:
                            break
                        state, depth = out.new_states[0], depth + 1
                    times = []
                    for _ in range(22):
                        action = np.array([env.action_space.sample()])
                        started = time.perf_counter()
                        env.step_batch(action, one(state))
                        times.append(1e3 * (time.perf_counter() - started))
                    low, median, high = statistics.quantiles(times[2:], n=4)
                    print(
                        f"    {way}, depth {depth:5}: {median:8.1f} ms ({low:.1f} to {high:.1f})", flush=True
                    )
                    if depth < wanted:
                        print("    the episode has ended")
                        break


# -- a search ----------------------------------------------------------------------------------------


class _OneOf(gymnasium.ActionWrapper):  # type: ignore[type-arg]
    """Gives an environment some of its actions, numbered."""

    def __init__(self, env: Any, num_actions: int = 6) -> None:
        super().__init__(env)
        env.action_space.seed(0)
        self.actions = [env.action_space.sample() for _ in range(num_actions)]
        self.action_space = spaces.Discrete(num_actions)

    def action(self, action: Any) -> Any:
        """Return the action with a number."""
        return self.actions[int(action)]


def measure_search() -> None:
    """Print the seconds of a decision of MCTS with 200 simulations after 30 steps."""
    for name, factory in environments().items():
        print(name)
        plans = []
        for codec in codecs_of(name):
            env = open_env(lambda make=factory: _OneOf(make()), codec)
            if env is None:
                continue
            with env:
                state = env.reset(seed=0).state
                for number in range(30):
                    state = env.step_batch([number % 6], one(state)).new_states[0]
                started = time.perf_counter()
                plan = planvec.MCTS(num_simulations=200, rollout_horizon=0).plan(env, state, seed=0)
                seconds = time.perf_counter() - started
                way = "with snapshots" if codec.num_snapshots else "by replay"
                plans.append((plan.action, plan.visit_counts.tolist()))
                print(f"    {way}: {seconds:.1f} s, action {plan.action}", flush=True)
        print(f"    the same plans: {all(plan == plans[0] for plan in plans)}")


# -- faults ------------------------------------------------------------------------------------------


def soak(seconds: float, seed: int) -> int:
    """Kill runners and workers while states are stepped. Returns the number of problems."""
    rng = random.Random(seed)
    limits = planvec.Replayed(num_snapshots=16, megabytes=256)
    counts = dict.fromkeys(("rows", "wrong", "killed runners", "killed workers", "batches given up"), 0)
    most, most_memory, pids = 0, 0, set[int]()
    with (
        planvec.make(Memory, num_workers=2, codec=limits, max_restarts=10) as env,
        planvec.PlanEnv(functools.partial(Memory, 0.0), codec="replay") as reference,
    ):
        started = time.perf_counter()
        while time.perf_counter() - started < seconds:
            seed_of_tree = rng.randrange(1000)
            states, paths = [env.reset(seed=seed_of_tree).state], [[]]
            expected = {(): None}
            for _ in range(40):
                chosen = [max(0, len(states) - 1 - int(rng.expovariate(0.1))) for _ in range(8)]
                actions = np.array([rng.randrange(3) for _ in chosen])
                batch = np.empty(len(chosen), object)
                batch[:] = [states[index] for index in chosen]
                promise = env.step_batch(actions, batch, blocking=False)
                for worker in env.workers:
                    runners = [pid for pid in descendants(worker.pid) if state(pid) not in ("Z", "")]
                    pids |= {worker.pid, *runners}
                    most = max(most, len(runners))
                    if rng.random() < 0.02:
                        most_memory = max(most_memory, sum(map(private_bytes, runners)))
                    if runners and rng.random() < 0.2:
                        _kill(rng.choice(runners), counts, "killed runners")
                    if rng.random() < 0.01:
                        _kill(worker.pid, counts, "killed workers")
                try:
                    out = promise.result()
                except planvec.WorkerCrashedError:
                    counts["batches given up"] += 1
                    continue
                for row, index in enumerate(chosen):
                    path = [*paths[index], int(actions[row])]
                    paths.append(path)
                    states.append(out.new_states[row])
                    key = (seed_of_tree, *path)
                    if key not in expected:
                        start = reference.reset(seed=seed_of_tree).state
                        given = np.array([path])
                        rolled = reference.rollout_batch(one(start), actions=given).final_states
                        expected[key] = reference.observe(rolled)[0]
                    counts["rows"] += 1
                    counts["wrong"] += not np.array_equal(expected[key], out.observations[row])
    time.sleep(1.0)
    left = [pid for pid in pids if state(pid) not in ("Z", "")]
    print(", ".join(f"{number} {name}" for name, number in counts.items()))
    print(f"at most {most} runners of a worker at once (16 and those at work), {len(left)} processes left")
    print(f"at most {most_memory / 1e6:.0f} MB of private memory of these (of 256)")
    return counts["wrong"] + len(left)


def private_bytes(pid: int) -> int:
    """Return the bytes that a process shares with no other; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))


def _kill(pid: int, counts: dict[str, int], name: str) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
        counts[name] += 1
    except ProcessLookupError:
        pass


def main() -> int:
    """Run a measurement."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["cost", "search", "soak"])
    parser.add_argument("--depths", type=int, nargs="*", default=[10, 100, 1000])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.what == "soak":
        return int(soak(arguments.seconds, arguments.seed) > 0)
    if arguments.what == "cost":
        measure_cost(arguments.depths)
    else:
        measure_search()
    return 0


if __name__ == "__main__":
    sys.exit(main())
