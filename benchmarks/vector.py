"""Measure vector environments: those of planvec, Gymnasium, stable-baselines3, DI-engine and EnvPool.

    python benchmarks/vector.py                     # all cases
    python benchmarks/vector.py --cases 2 64        # some
    python benchmarks/vector.py --only DI-engine Sync    # contenders with one of these in their names
    python benchmarks/vector.py --price --repeats 4 --seconds 15    # what snapshots for crashes cost

Peers that are not installed are left out. All contenders of a case are open at the same time and take turns
of a third of a second; the table has the median time of a step of all environments, in microseconds. The
managers of DI-engine return some environments at a time; a step is as many results as environments.

Two processes at once are often slower than one alone: "two alone" is the time of a step of half of the
environments in each of two processes that know nothing of each other. It is what two workers can reach.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import multiprocessing
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
MOST_PROCESSES = 64
"""Peers that start a process per environment are left out above this."""
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
    if num_envs <= MOST_PROCESSES:
        makers["Gymnasium Async"] = lambda: gymnasium.vector.AsyncVectorEnv(env_fns)
    if has("stable_baselines3"):
        from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

        from planvec.vector import SubprocVecEnv as OurSubprocVecEnv

        makers["planvec as SB3, 2 workers"] = lambda: OurSubprocVecEnv(env_fns, num_workers=2)
        makers["planvec as SB3, in process"] = lambda: OurSubprocVecEnv(env_fns, num_workers=0)
        makers["SB3 Dummy"] = lambda: DummyVecEnv(env_fns)
        if num_envs <= MOST_PROCESSES:
            makers["SB3 Subproc"] = lambda: SubprocVecEnv(env_fns)
    if has("ding") and num_envs <= MOST_PROCESSES:
        makers |= ding_contenders(env_id, num_envs)
    if has("envpool"):
        import envpool

        makers["EnvPool (C++)"] = lambda: envpool.make_gymnasium(
            env_id.removeprefix("ALE/"), num_envs=num_envs
        )
    return makers


def make_for_ding(env_id: str) -> Any:
    from ding.envs import DingEnvWrapper

    return DingEnvWrapper(make(env_id))


def ding_contenders(env_id: str, num_envs: int) -> dict[str, Callable[[], Any]]:
    """Return the makers of DI-engine's managers, and of planvec's in their place."""
    from ding.envs.env_manager import AsyncSubprocessEnvManager, SyncSubprocessEnvManager
    from easydict import EasyDict

    from planvec.vector import ding

    def launched(cls: Any, **config: Any) -> Any:
        env_fns = [functools.partial(make_for_ding, env_id)] * num_envs
        manager = cls(env_fns, EasyDict({**cls.default_config(), **config}))
        manager.launch()
        return manager

    return {
        "DI-engine Async": lambda: launched(AsyncSubprocessEnvManager),
        "DI-engine Sync": lambda: launched(SyncSubprocessEnvManager),
        "planvec as DI-engine Async": lambda: launched(ding.AsyncSubprocessEnvManager, num_workers=2),
        "planvec as DI-engine Sync": lambda: launched(ding.SyncSubprocessEnvManager, num_workers=2),
        "planvec as DI-engine, in process": lambda: launched(ding.SyncSubprocessEnvManager, num_workers=0),
    }


def stepper(env: Any, actions: list[Any]) -> Callable[[], None]:
    """Return a function that steps all environments."""
    if hasattr(env, "ready_obs"):
        return ding_stepper(env, actions)
    count = 0

    def step() -> None:
        nonlocal count
        env.step(actions[count % len(actions)])
        count += 1

    return step


def ding_stepper(manager: Any, actions: list[Any]) -> Callable[[], None]:
    """Return a function that steps environments of DI-engine until there is a result for each."""
    num_envs = len(actions[0])
    count = num_more = 0

    def step() -> None:
        nonlocal count, num_more
        given = actions[count % len(actions)]
        count += 1
        while num_more < num_envs:
            ready = list(manager.ready_obs)
            num_more += len(manager.step({env_id: np.atleast_1d(given[env_id]) for env_id in ready}))
        num_more -= num_envs

    return step


class TwoAlone:
    """Steps half of the environments in each of two processes, `NUM_STEPS` times per call."""

    NUM_STEPS = 100

    def __init__(self, env_id: str, num_envs: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Any] = []
        self._processes: list[Any] = []
        for half in (num_envs // 2, num_envs - num_envs // 2):
            ours, theirs = context.Pipe()
            process = context.Process(target=step_alone, args=(theirs, env_id, half), daemon=True)
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)

    def __call__(self) -> None:
        for pipe in self._pipes:
            pipe.send(self.NUM_STEPS)
        for pipe in self._pipes:
            pipe.recv()

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.send(0)
        for process in self._processes:
            process.join()


def step_alone(pipe: Any, env_id: str, num_envs: int) -> None:
    """Step environments as often as the other process says."""
    env = AsyncVectorEnv([functools.partial(make, env_id)] * num_envs, num_workers=0)
    env.reset(seed=0)
    env.action_space.seed(0)
    step = stepper(env, [env.action_space.sample() for _ in range(64)])
    while number := pipe.recv():
        for _ in range(number):
            step()
        pipe.send(None)


def run_case(name: str, repeats: int, seconds: float, only: list[str]) -> dict[str, float]:
    """Return the median seconds of a step, of each contender."""
    env_id, num_envs = CASES[name]
    space = make(env_id).action_space
    space.seed(0)
    actions = [np.array([space.sample() for _ in range(num_envs)]) for _ in range(64)]
    steps = {}
    with ExitStack() as stack:
        for contender, open_env in contenders(env_id, num_envs).items():
            if not any(part in contender for part in only):
                continue
            env = open_env()
            stack.callback(close, env)
            env.reset()
            steps[contender] = stepper(env, actions)
        two_alone = TwoAlone(env_id, num_envs)
        stack.callback(two_alone.close)
        times = measure({**steps, "two alone": two_alone}, repeats, seconds)
        times["two alone"] /= TwoAlone.NUM_STEPS
        return times


def close(env: Any) -> None:
    with contextlib.suppress(ConnectionError):  # DI-engine's, now and then
        env.close()


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


def print_table(times: dict[str, dict[str, float]]) -> None:
    """Print a table in Markdown: case -> contender -> seconds of a step."""
    cells = [["us a step", *(f"{CASES[case][1]} {CASES[case][0].split('/')[-1]}" for case in times)]]
    cells.append(["---"] * len(cells[0]))
    for name in dict.fromkeys(name for case in times.values() for name in case):
        values = [case.get(name) for case in times.values()]
        cells.append([name, *("" if value is None else f"{value * 1e6:,.0f}" for value in values)])
    for row in cells:
        print(f"| {' | '.join(row)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--repeats", type=int, default=9, help="turns, or openings with --price")
    parser.add_argument("--seconds", type=float, default=0.3, help="of a turn, or of an opening with --price")
    parser.add_argument("--only", nargs="*", default=[""], help="parts of the names of contenders")
    parser.add_argument("--price", action="store_true", help="what snapshots cost")
    options = parser.parse_args()
    all_times = {}
    for case in options.cases:
        if options.price:
            print_price(case, options.repeats, options.seconds)
            continue
        env_id, num_envs = CASES[case]
        print(f"\n{num_envs} x {env_id}")
        times = all_times[case] = run_case(case, options.repeats, options.seconds, options.only)
        for name, value in sorted(times.items(), key=lambda item: item[1]):
            per_env = value / num_envs * 1e6
            print(f"  {name:33s} {value * 1e6:9.1f} us a step {per_env:8.2f} us an environment", flush=True)
    if all_times:
        print()
        print_table(all_times)


if __name__ == "__main__":
    main()
