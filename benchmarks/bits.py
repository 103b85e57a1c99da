"""Compare the bits of plans, trajectories, archives and vector environments of two checkouts.

    python benchmarks/bits.py OLD NEW            two minutes for each checkout
    python benchmarks/bits.py OLD NEW --num 200

Draws random configurations (environment, planner, settings, workers), runs each with both checkouts, and
prints those whose digests differ. The exit status is 1 if there are any. The number of a configuration is the
seed that it is drawn with. Needs the packages of `planvec[test]`.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from paired import check, environment

DISCRETE = (
    *("CartPole-v1", "Taxi-v4", "FrozenLake-v1", "CliffWalking-v1", "Acrobot-v1", "MountainCar-v0"),
    *("MiniGrid-Empty-5x5-v0", "MiniGrid-DoorKey-6x6-v0", "ALE/MsPacman-v5", "LunarLander-v3"),
)
CONTINUOUS = (
    *("Pendulum-v1", "MountainCarContinuous-v0", "HalfCheetah-v5", "Hopper-v5", "InvertedPendulum-v5"),
    "Reacher-v5",
)
SLOW = ("ALE", "MiniGrid", "LunarLander")
NUM_CONFIGURATIONS = 50
PLAN_FIELDS = (
    *("action", "value", "root_actions", "visit_counts", "action_values", "standard_errors", "best_actions"),
    *("best_num_steps", "best_return", "depth_histogram", "num_simulations", "num_env_steps", "stop_reason"),
)

Random = np.random.Generator
Run = Callable[[Random, int], tuple[str, str]]


class Digest:
    """Collects arrays, trees of arrays and texts."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, *values: Any) -> None:
        for value in values:
            if isinstance(value, dict):
                for key in sorted(value, key=str):
                    self.add(str(key), value[key])
            elif isinstance(value, (tuple, list)):
                self.add(*value)
            elif isinstance(value, str):
                self._hash.update(value.encode())
            elif hasattr(value, "__bytes__"):  # bytes, and states of variable size
                self._hash.update(bytes(value))
            elif value is not None:
                self._add_array(np.asarray(value))

    def _add_array(self, array: np.ndarray) -> None:
        if array.dtype == object:
            self.add(*array.ravel().tolist())
            return
        self.add(str(array.dtype), str(array.shape))
        self._hash.update(np.ascontiguousarray(array).tobytes())

    def __str__(self) -> str:
        return self._hash.hexdigest()[:16]


def first_number(observations: Any) -> np.ndarray:
    """A value function."""
    return np.asarray(observations, np.float64).reshape(len(observations), -1)[:, 0] * 0.01


def mcts(random: Random, number: int) -> tuple[str, str, dict[str, Any]]:
    env_id = str(random.choice(DISCRETE + CONTINUOUS))
    options: dict[str, Any] = {
        "num_simulations": 30 if env_id.startswith(SLOW) else int(random.choice([20, 60, 150])),
        "batch_size": int(random.choice([1, 4, 16])),
        "discount": float(random.choice([0.95, 0.99, 1.0])),
        "exploration": float(random.choice([0.3, 0.5, 1.4])),
        "max_depth": int(random.choice([8, 50])),
        "dt": int(random.choice([1, 2])),
        "reuse_tree": bool(random.integers(2)),
        "selection": str(random.choice(["uct", "puct"])),
        "value_scale": str(random.choice(["node", "tree"])),
    }
    if random.integers(3) == 0 and env_id in (*CONTINUOUS, "CartPole-v1", "Acrobot-v1", "MountainCar-v0"):
        options["value_fn"] = first_number
    elif random.integers(2):
        options["rollout_horizon"] = int(random.choice([0, 5, 20]))
    if random.integers(4) == 0:
        options |= {"chance": "open_loop", "reuse_tree": False}
    else:
        if random.integers(3) == 0:
            options["transpositions"] = True
        if random.integers(4) == 0:
            options["backup"] = "max"
    if options["selection"] == "puct" and random.integers(4) == 0:
        options["root_noise"] = (0.3, 0.25)
    return env_id, "MCTS", options


def swarm(random: Random, number: int) -> tuple[str, str, dict[str, Any]]:
    options = {
        "num_walkers": int(random.choice([8, 24])),
        "num_iterations": int(random.choice([6, 15])),
        "reward_scale": float(random.choice([1.0, 2.0])),
        "distance_scale": float(random.choice([0.5, 1.0])),
        "num_elites": int(random.choice([0, 1, 3])),
    }
    return str(random.choice(DISCRETE + CONTINUOUS)), "Swarm", options


def width(random: Random, number: int) -> tuple[str, str, dict[str, Any]]:
    options = {
        "num_simulations": int(random.choice([40, 100])),
        "batch_size": int(random.choice([1, 8])),
        "dt": int(random.choice([1, 3])),
        "reuse_tree": bool(random.integers(2)),
    }
    env_ids = ["CartPole-v1", "MiniGrid-DoorKey-6x6-v0", "ALE/MsPacman-v5", "Taxi-v4"]
    return str(random.choice(env_ids)), str(random.choice(["IW", "RolloutIW"])), options


def shooting(random: Random, number: int) -> tuple[str, str, dict[str, Any]]:
    name = ("RandomShooting", "CEM", "ICEM", "MPPI")[number % 4]
    options = {
        "num_trajectories": int(random.choice([16, 33])),
        "horizon": int(random.choice([5, 12])),
        "discount": float(random.choice([0.97, 1.0])),
        **({"num_elites": 6} if "CEM" in name else {}),
    }
    return str(random.choice(DISCRETE[:6] if name == "RandomShooting" else CONTINUOUS)), name, options


def plans(draw: Callable[[Random, int], tuple[str, str, dict[str, Any]]], random: Random, number: int) -> Any:
    """Plan once, and play four steps of an episode."""
    import planvec

    env_id, name, options = draw(random, number)
    num_workers, digest = int(random.choice([0, 1, 2])), Digest()
    planner = getattr(planvec, name)
    with planvec.make(env_id, num_workers=num_workers) as env:
        plan = planner(**options).plan(env, env.reset(seed=number).state, seed=number)
        digest.add([getattr(plan, name) for name in PLAN_FIELDS])
        episode = planvec.run_episode(env, planner(**options), seed=number + 1, max_steps=4)
        digest.add(episode.actions, episode.rewards, episode.states, episode.observations)
    shown = {key: getattr(value, "__name__", value) for key, value in options.items()}
    return f"{name} {env_id} num_workers={num_workers} {shown}", str(digest)


def archive(random: Random, number: int) -> tuple[str, str]:
    """Explore, and digest the cells and the actions to ten of them."""
    import planvec

    env_ids = ["MountainCar-v0", "CartPole-v1", "MiniGrid-DoorKey-6x6-v0", "ALE/MsPacman-v5"]
    env_id, num_workers = str(random.choice(env_ids)), int(random.choice([0, 2]))
    num_steps, digest = int(random.choice([10, 30])), Digest()
    with planvec.make(env_id, num_workers=num_workers) as env:
        found = planvec.Explorer(num_steps=num_steps).run(env, seed=number, max_env_steps=6000)
        digest.add(found.keys, found.scores, found.num_steps, found.num_visits, found.num_choices)
        for cell in range(0, len(found.keys), max(1, len(found.keys) // 10)):
            digest.add(found.actions(cell))
    return f"Explorer {env_id} num_workers={num_workers} num_steps={num_steps}", str(digest)


def vector(random: Random, number: int) -> tuple[str, str]:
    """Step a vector environment 60 times, through ends of episodes."""
    from planvec.vector import AsyncVectorEnv

    env_ids = ["CartPole-v1", "Pendulum-v1", "Taxi-v4", "HalfCheetah-v5", "LunarLander-v3"]
    env_id, num_workers = str(random.choice(env_ids)), int(random.choice([0, 1, 2]))
    num_envs, digest = int(random.choice([2, 5])), Digest()
    env_fn = functools.partial(gymnasium.make, env_id, max_episode_steps=17)
    envs = AsyncVectorEnv([env_fn] * num_envs, num_workers=num_workers)
    envs.action_space.seed(number)
    digest.add(*envs.reset(seed=number))
    for _ in range(60):
        digest.add(*envs.step(envs.action_space.sample()))
    envs.close()
    return f"AsyncVectorEnv {env_id} num_workers={num_workers} num_envs={num_envs}", str(digest)


# of 25 configurations
KINDS: tuple[Run, ...] = (
    *(functools.partial(plans, mcts),) * 10,
    *(functools.partial(plans, swarm),) * 4,
    *(functools.partial(plans, width),) * 2,
    *(functools.partial(plans, shooting),) * 3,
    *(archive,) * 3,
    *(vector,) * 3,
)


def run(num: int) -> None:
    """Print a line for each configuration: its digest, and what it is."""
    import ale_py
    import minigrid  # noqa: F401 # registers its environments

    gymnasium.register_envs(ale_py)
    warnings.simplefilter("ignore")
    for number in range(num):
        what, digest = KINDS[number % len(KINDS)](np.random.default_rng(number), number)
        print(digest, number, what, flush=True)


def lines_of(checkout: Path, num: int) -> list[str]:
    """Run the configurations with a checkout."""
    command = [sys.executable, str(Path(__file__).resolve()), "--run", "--num", str(num)]
    with tempfile.TemporaryDirectory() as folder:
        check(checkout, folder)
        done = subprocess.run(
            command, env=environment(checkout), cwd=folder, stdout=subprocess.PIPE, text=True, check=True
        )
    return done.stdout.splitlines()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("checkouts", nargs="*", type=lambda name: Path(name).resolve(), metavar="OLD NEW")
    parser.add_argument("--num", type=int, default=NUM_CONFIGURATIONS, help="number of configurations")
    parser.add_argument("--run", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        run(arguments.num)
        return 0
    if len(arguments.checkouts) != 2:
        parser.error("expected two checkouts, OLD and NEW")
    old, new = (lines_of(checkout, arguments.num) for checkout in arguments.checkouts)
    differing = [pair for pair in zip(old, new, strict=True) if pair[0] != pair[1]]
    for pair in differing:
        print(*pair, sep="\n")
    print(f"{len(old)} configurations, {len(differing)} differ")
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main())
