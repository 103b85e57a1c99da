"""Measure vector environments: planvec's beside those of Gymnasium, stable-baselines3 and EnvPool.

    python benchmarks/vector.py                     # all cases
    python benchmarks/vector.py --cases 2 64        # some
    python benchmarks/vector.py --price --repeats 4 --seconds 15    # what snapshots for crashes cost

Peers that are not installed are left out. All contenders of a case are open at the same time and take turns
of a third of a second; the table has the median time of a step of all environments, in microseconds.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import gymnasium
import numpy as np
from timing import measure, ratio_of_totals

from planvec.vector import AsyncVectorEnv, EnvPool

CASES: dict[str, tuple[str, int]] = {
    "2": ("CartPole-v1", 2),
    "16": ("CartPole-v1", 16),
    "64": ("CartPole-v1", 64),
    "512": ("CartPole-v1", 512),
    "cheetah": ("HalfCheetah-v5", 16),
    "pacman": ("ALE/MsPacman-v5", 16),
}
"""The environment, and how many of them."""
ENVPOOL_IDS = {
    "CartPole-v1": "CartPole-v1",
    "HalfCheetah-v5": "HalfCheetah-v5",
    "ALE/MsPacman-v5": "MsPacman-v5",
}


def make(env_id: str) -> Any:
    if env_id.startswith("ALE/"):
        import ale_py  # noqa: F401
    return gymnasium.make(env_id)


def has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def contenders(env_id: str, num_envs: int) -> dict[str, Callable[[], Any]]:
    """Return the name and the maker of each vector environment, reset with seed 0."""
    env_fns = [functools.partial(make, env_id)] * num_envs
    makers: dict[str, Callable[[], Any]] = {
        "planvec, 2 workers": lambda: AsyncVectorEnv(env_fns, num_workers=2),
        "planvec, in process": lambda: AsyncVectorEnv(env_fns, num_workers=0),
        "Gymnasium Sync": lambda: gymnasium.vector.SyncVectorEnv(env_fns),
    }
    if num_envs <= 64:
        makers["Gymnasium Async"] = lambda: gymnasium.vector.AsyncVectorEnv(env_fns)
    if has("stable_baselines3"):
        from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

        from planvec.vector import SubprocVecEnv as OurSubprocVecEnv

        makers["planvec as SB3, 2 workers"] = lambda: OurSubprocVecEnv(env_fns, num_workers=2)
        makers["planvec as SB3, in process"] = lambda: OurSubprocVecEnv(env_fns, num_workers=0)
        makers["SB3 Dummy"] = lambda: DummyVecEnv(env_fns)
        if num_envs <= 64:
            makers["SB3 Subproc"] = lambda: SubprocVecEnv(env_fns)
    if has("envpool"):
        import envpool

        makers["EnvPool (C++)"] = lambda: envpool.make_gymnasium(
            env_id.removeprefix("ALE/"), num_envs=num_envs
        )
    return makers


def stepper(env: Any, actions: list[Any]) -> Callable[[], None]:
    """Return a function that steps all environments."""
    count = 0

    def step() -> None:
        nonlocal count
        env.step(actions[count % len(actions)])
        count += 1

    return step


def run_case(name: str, repeats: int, seconds: float) -> dict[str, float]:
    """Return the median seconds of a step, of each contender."""
    env_id, num_envs = CASES[name]
    space = make(env_id).action_space
    space.seed(0)
    actions = [np.array([space.sample() for _ in range(num_envs)]) for _ in range(64)]
    steps = {}
    with ExitStack() as stack:
        for contender, open_env in contenders(env_id, num_envs).items():
            env = open_env()
            stack.callback(env.close)
            env.reset()
            steps[contender] = stepper(env, actions)
        return measure(steps, repeats, seconds)


def price(name: str, on_crash: tuple[str, str], seconds: float) -> float:
    """Return the ratio of the time of steps with two values of `on_crash`, the first over the second."""
    env_id, num_envs = CASES[name]
    space = make(env_id).action_space
    space.seed(0)
    actions = [np.array([space.sample() for _ in range(num_envs)]) for _ in range(64)]
    env_fns = [functools.partial(make, env_id)] * num_envs
    steps = []
    with ExitStack() as stack:
        for what in on_crash:
            pool = stack.enter_context(EnvPool(env_fns, num_workers=2, on_crash=what))
            pool.reset(seed=0)
            steps.append(stepper(pool, actions))
        for step in steps * 30:  # the first snapshots take longer
            step()
        return ratio_of_totals((steps[0], steps[1]), seconds)


def print_price(case: str, openings: int, seconds: float) -> None:
    """Print what snapshots cost, beside the same comparison of two pools without them."""
    shown = []
    for label, on_crash in (("snapshots", ("restore", "raise")), ("noise", ("raise", "raise"))):
        ratios = [price(case, on_crash, seconds) for _ in range(openings)]
        shown.append(f"{label} {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
    env_id, num_envs = CASES[case]
    print(f"{num_envs} x {env_id:<20} {'; '.join(shown)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--repeats", type=int, default=9, help="turns, or openings with --price")
    parser.add_argument("--seconds", type=float, default=0.3, help="of a turn, or of an opening with --price")
    parser.add_argument("--price", action="store_true", help="what snapshots cost")
    options = parser.parse_args()
    for case in options.cases:
        if options.price:
            print_price(case, options.repeats, options.seconds)
            continue
        env_id, num_envs = CASES[case]
        print(f"\n{num_envs} x {env_id}")
        times = run_case(case, options.repeats, options.seconds)
        for name, value in sorted(times.items(), key=lambda item: item[1]):
            per_env = value / num_envs * 1e6
            print(f"  {name:28s} {value * 1e6:9.1f} us a step {per_env:8.2f} us an environment")


if __name__ == "__main__":
    main()
