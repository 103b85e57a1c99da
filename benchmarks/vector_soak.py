"""Step vector environments of all interfaces while their workers are killed; compare every bit.

    python benchmarks/vector_soak.py --minutes 5

The interfaces take turns: `EnvPool`, Gymnasium's `AsyncVectorEnv`, and those of stable-baselines3 and
DI-engine where they are installed. Each is opened twice with environments drawn at random, once with workers
and once in this process, and both take the same walk, with subsets, states that are saved and restored, and
files, where the interface has them. Meanwhile a thread sends SIGKILL to workers, whether they are busy, idle
or just starting.

It ends with status 1 if a result differed, a call raised, or a process or shared memory was left.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import logging
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from planvec.backends.processes import system
from planvec.vector import AsyncVectorEnv, EnvPool

ENVIRONMENTS = ("CartPole-v1", "FrozenLake-v1", "Pendulum-v1", "Blackjack-v1", "Taxi-v4", "MountainCar-v0")
OTHERS = {"HalfCheetah-v5": "mujoco", "LunarLander-v3": "Box2D", "ALE/MsPacman-v5": "ale_py"}
"""Environments, and the modules that they need."""
NUM_STEPS = 150


def has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def make(env_id: str) -> Any:
    if env_id.startswith("ALE/"):
        import ale_py  # noqa: F401
    return gymnasium.make(env_id)


def actions_of(space: Any, num_envs: int, seed: int) -> Iterator[Any]:
    space.seed(seed)
    while True:
        yield np.array([space.sample() for _ in range(num_envs)])


def walk_pool(
    env_id: str, num_envs: int, num_workers: int, seed: int, note: Callable[[Any], None]
) -> list[Any]:
    rng = random.Random(seed)
    mode = rng.choice(["NextStep", "SameStep", "Disabled"])
    pool = EnvPool([functools.partial(make, env_id)] * num_envs, num_workers=num_workers, autoreset_mode=mode)
    note(pool)
    seen: list[Any] = [pool.reset(seed=seed)]
    walk = actions_of(pool.single_action_space, num_envs, seed)
    for index in range(NUM_STEPS):
        action = next(walk)
        match rng.randrange(12):
            case 0:
                rows = np.array(sorted(rng.sample(range(num_envs), max(1, num_envs // 2))))
                seen.append(pool.step(action[rows], rows=rows))
            case 1:
                pool.send(action)
                received = []
                while sum(len(part.rows) for part in received) < num_envs:
                    received.append(pool.recv(min_ready=1))
                order = np.argsort(np.concatenate([part.rows for part in received]))
                for column in range(1, 4):  # the observations have a structure of their own
                    seen.append(np.concatenate([part[column] for part in received])[order])
            case 2:
                states = pool.get_states()
                seen.append(pool.step(action)[:4])
                seen.append(pool.set_states(states))
            case 3:
                seen.append(pool.branch(rng.randrange(num_envs), [0]))
            case 4:
                with tempfile.TemporaryDirectory() as folder:
                    pool.save(Path(folder) / "rows")
                    seen.append(pool.step(action)[:4])
                    seen.append(pool.load(Path(folder) / "rows"))
            case _:
                seen.append(tuple(pool.step(action)))
        if mode == "Disabled" and index % 20 == 19:
            seen.append(pool.reset())
    pool.close()
    return seen


def walk_gymnasium(
    env_id: str,
    num_envs: int,
    num_workers: int,
    seed: int,
    note: Callable[[Any], None],
    make: Callable[[str], Any] = make,
) -> list[Any]:
    env = AsyncVectorEnv([functools.partial(make, env_id)] * num_envs, num_workers=num_workers)
    note(env)
    seen: list[Any] = [env.reset(seed=seed)]
    walk = actions_of(env.single_action_space, num_envs, seed)
    for index in range(NUM_STEPS):
        if index % 40 == 39:
            mask = np.arange(num_envs) % 2 == 0
            seen.append(env.reset(options={"reset_mask": mask}))
        env.step_async(next(walk))
        seen.append(env.step_wait())
    env.close()
    return seen


def walk_sb3(
    env_id: str, num_envs: int, num_workers: int, seed: int, note: Callable[[Any], None]
) -> list[Any]:
    from planvec.vector import SubprocVecEnv

    env = SubprocVecEnv([functools.partial(make, env_id)] * num_envs, num_workers=num_workers)
    note(env)
    env.seed(seed)
    seen: list[Any] = [env.reset()]
    walk = actions_of(env.action_space, num_envs, seed)
    for _ in range(NUM_STEPS):
        seen.append(env.step(next(walk)))
        seen.append(list(env.reset_infos))
    env.close()
    return seen


def walk_ding(
    env_id: str, num_envs: int, num_workers: int, seed: int, note: Callable[[Any], None]
) -> list[Any]:
    from ding.envs import DingEnvWrapper

    from planvec.vector.ding import SyncSubprocessEnvManager

    config = {**SyncSubprocessEnvManager.default_config(), "num_workers": num_workers}
    env = SyncSubprocessEnvManager([lambda: DingEnvWrapper(make("CartPole-v1"))] * num_envs, config)
    env.seed(seed)
    env.launch()
    note(env._fleet)
    rng = np.random.default_rng(seed)
    seen: list[Any] = []
    for _ in range(NUM_STEPS):
        seen.append(dict(env.ready_obs))
        steps = env.step({env_id: rng.integers(2, size=1) for env_id in env.ready_obs})
        seen.append({env_id: tuple(step) for env_id, step in steps.items()})
    env.close()
    return seen


def same(one: Any, other: Any) -> bool:
    """Return whether two results have the same bits. `inf` and `nan` equal themselves."""
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray) and one.dtype.hasobject:
        return one.shape == other.shape and all(map(same, one.ravel(), other.ravel()))
    if isinstance(one, (np.ndarray, np.generic)):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    return bool(one == other or (one != one and other != other))


class Killer(threading.Thread):
    """Sends SIGKILL to workers of the vector environment that is open."""

    def __init__(self, per_second: float) -> None:
        super().__init__(daemon=True)
        self.per_second = per_second
        self.open: Any = None
        self.num_kills = 0
        self.is_over = False

    def run(self) -> None:
        own = random.Random()  # an environment that draws from the global generator is refused
        while not self.is_over:
            time.sleep(own.expovariate(self.per_second))
            processes = getattr(getattr(self.open, "_engine", None), "_processes", None)
            if processes is None:
                continue
            worker = own.choice(processes.workers)
            try:
                os.kill(worker.pid, signal.SIGKILL)
                self.num_kills += 1
            except (OSError, TypeError):
                continue  # it has just ended


def left_over() -> list[str]:
    """Return what is left of closed vector environments."""
    helpers = ("resource_tracker", "processes.template")
    direct = system.children(os.getpid())
    workers = [
        f"process {pid}: {command}"
        for pid in system.descendants(os.getpid())
        if (command := system.command(pid))
        and not (pid in direct and any(helper in command for helper in helpers))
    ]
    return workers + [str(path) for path in Path("/dev/shm").glob("*planvec*")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--kills-per-second", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logging.getLogger("planvec").setLevel(logging.ERROR)
    walks: dict[str, Callable[..., list[Any]]] = {"EnvPool": walk_pool, "Gymnasium": walk_gymnasium}
    if has("stable_baselines3"):
        walks["stable-baselines3"] = walk_sb3
    if has("ding"):
        walks["DI-engine"] = walk_ding
    env_ids = [*ENVIRONMENTS, *(env_id for env_id, module in OTHERS.items() if has(module))]
    killer = Killer(options.kills_per_second)
    killer.start()
    random.seed(options.seed)
    num_walks, num_rows, failures = Counter[str](), 0, list[str]()
    end = time.monotonic() + options.minutes * 60
    seed = options.seed
    while time.monotonic() < end:
        name = list(walks)[seed % len(walks)]
        env_id, num_envs = random.choice(env_ids), random.choice([2, 3, 5, 8])
        seed += 1
        what = f"{name}, {num_envs} x {env_id}, seed {seed}"
        try:
            expected = walks[name](env_id, num_envs, 0, seed, lambda env: None)
            got = walks[name](env_id, num_envs, 2, seed, lambda env: setattr(killer, "open", env))
            wrong = [index for index, pair in enumerate(zip(got, expected, strict=True)) if not same(*pair)]
            if wrong:
                failures.append(f"{what}: result {wrong[0]} differs")
        except Exception as error:
            failures.append(f"{what}: {type(error).__name__}: {error}")
        killer.open = None
        failures += [f"{what}: left: {left}" for left in left_over()]
        num_walks[name] += 1
        num_rows += NUM_STEPS * num_envs
    killer.is_over = True
    print(f"{sum(num_walks.values())} walks ({dict(num_walks)}), {num_rows} rows, {killer.num_kills} kills")
    print(f"{len(failures)} failures", *failures, sep="\n")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
