"""Compare kernels with the environments: bits, and speed.

    python benchmarks/kernels.py bits                 # 10 million transitions per environment and map, 70 min
    python benchmarks/kernels.py bits --rows 100000   # fewer
    python benchmarks/kernels.py speed                # rows and steps a second, beside other ways to step

`bits` lets Gymnasium's own step and the kernel step the same rows, with random actions, repeats, seeds, ended
episodes and time limits, and counts the bytes that differ in any result. `speed` measures all ways in turn;
EnvPool is measured where it is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from timing import measure

import planvec
from planvec.rows import actions_of, leaves

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "CartPole": ("CartPole-v1", {}),
    "CartPole, Sutton and Barto's reward": ("CartPole-v1", {"sutton_barto_reward": True}),
    "MountainCar": ("MountainCar-v0", {}),
    "MountainCar, continuous": ("MountainCarContinuous-v0", {}),
    "Pendulum": ("Pendulum-v1", {}),
    "Acrobot": ("Acrobot-v1", {}),
    "FrozenLake 4x4": ("FrozenLake-v1", {}),
    "FrozenLake 4x4, not slippery": ("FrozenLake-v1", {"is_slippery": False}),
    "FrozenLake 8x8": ("FrozenLake8x8-v1", {}),
    "FrozenLake 8x8, not slippery": ("FrozenLake8x8-v1", {"is_slippery": False}),
    "CliffWalking": ("CliffWalking-v1", {}),
    "CliffWalking, slippery": ("CliffWalking-v1", {"is_slippery": True}),
    "Taxi": ("Taxi-v4", {}),
    "Taxi, rainy, fickle": ("Taxi-v4", {"is_rainy": True, "fickle_passenger": True}),
    "Blackjack": ("Blackjack-v1", {}),
    "Blackjack, natural": ("Blackjack-v1", {"natural": True}),
    "Blackjack, Sutton and Barto's": ("Blackjack-v1", {"sab": True}),
}
NUM_ROWS = 20_000
FIELDS = ("new_states", "observations", "rewards", "terminated", "truncated")


def random_actions(env: Any, rng: np.random.Generator, num_rows: int) -> NDArray[Any]:
    """Return random actions `[num_rows, ...]`."""
    return actions_of(env.action_space, rng.random((num_rows, *(env.action_space.shape or ()))))


def walk(env: Any, rng: np.random.Generator, num_rows: int) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield the arguments of batches of random steps, and the results of the environment."""
    starts = np.empty(NUM_ROWS, env.state_dtype)
    for row in range(NUM_ROWS):
        starts[row] = env.reset(seed=int(rng.integers(2**32))).state if row < 2000 else starts[row % 2000]
    states = starts
    for number in range(-(-num_rows // NUM_ROWS)):
        arguments = {
            "actions": random_actions(env, rng, NUM_ROWS),
            "states": states,
            "dt": rng.integers(1, 5, NUM_ROWS) if number % 3 == 0 else 1,
            "seeds": rng.integers(0, 2**64, NUM_ROWS, dtype=np.uint64) if number % 2 else None,
        }
        out = env.step_batch(**arguments)
        yield arguments, out
        ended = out.terminated | out.truncated
        restarts = ended & (rng.random(NUM_ROWS) < 0.9)  # the others are stepped on
        states = np.where(restarts, rng.permutation(starts), out.new_states)


def compare_bits(num_rows: int) -> None:
    """Print the number of differing values of each environment."""
    print(f"{'':40s} {'transitions':>12s} {'steps':>12s} {'differing':>10s}")
    for name, (env_id, options) in CASES.items():
        plain, compiled = (
            planvec.PlanEnv(env_id, env_kwargs=options, compiled=flag) for flag in (False, True)
        )
        num_compared = num_steps = num_different = 0
        for arguments, expected in walk(plain, np.random.default_rng(0), num_rows):
            got = compiled.step_batch(**arguments)
            for field in FIELDS:
                pairs = zip(leaves(getattr(expected, field)), leaves(getattr(got, field)), strict=True)
                num_different += sum(int((a != b).sum()) for a, b in pairs if a.tobytes() != b.tobytes())
            num_different += any(
                not np.array_equal(value, got.infos.get(key)) for key, value in expected.infos.items()
            )
            num_compared += NUM_ROWS
            num_steps += int(expected.infos["num_steps"].sum())
        print(f"{name:40s} {num_compared:12,} {num_steps:12,} {num_different:10,}", flush=True)


def opened(env_id: str, num_rows: int, **options: Any) -> tuple[Any, Callable[[], Any]]:
    """Return an environment, and a call that steps a batch of random actions from its start."""
    env = planvec.make(env_id, audit=0.0, **options)
    states = np.repeat(env.reset(seed=0).state, num_rows)
    actions = random_actions(env, np.random.default_rng(0), num_rows)
    return env, lambda: env.step_batch(actions, states)


def envpool_call(num_rows: int) -> Callable[[], Any] | None:
    """Return a call that steps `num_rows` CartPoles of EnvPool; None if it is not installed."""
    if importlib.util.find_spec("envpool") is None:
        return None
    import envpool

    env = envpool.make_gymnasium("CartPole-v1", num_envs=num_rows)
    env.reset()
    actions = np.random.default_rng(0).integers(0, 2, num_rows)
    return lambda: env.step(actions)


def compare_speed(repeats: int) -> None:
    """Print rows and steps a second."""
    for env_id in ("CartPole-v1", "FrozenLake-v1", "Taxi-v4"):
        for num_rows in (1, 16, 256, 65_536, 1_000_000):
            few = min(num_rows, 4096)
            contenders = {
                "kernel": opened(env_id, num_rows, num_workers=0, compiled=True)[1],
                "kernel, no infos": opened(env_id, num_rows, num_workers=0, compiled=True, info_keys=())[1],
            }
            rows = dict.fromkeys(contenders, num_rows)
            workers, contenders["2 workers"] = opened(env_id, few, num_workers=2)
            contenders["in process"] = opened(env_id, few, num_workers=0, compiled=False)[1]
            pool = envpool_call(few) if env_id == "CartPole-v1" else None
            if pool is not None:
                contenders["EnvPool"] = pool
            rows = {name: rows.get(name, few) for name in contenders}
            seconds = measure(contenders, repeats, 0.05)
            workers.close()
            rates = {name: rows[name] / seconds[name] for name in contenders}
            texts = [f"{name} {rate / 1e6:9.3f}" for name, rate in rates.items()]
            print(f"{env_id:15s} {num_rows:9,} rows, million rows/s: {', '.join(texts)}", flush=True)
    for env_id, horizon in (("CartPole-v1", 200), ("FrozenLake-v1", 100), ("Pendulum-v1", 200)):
        env, _ = opened(env_id, 1, num_workers=0, compiled=True)
        states = np.repeat(env.get_state(), 20_000)
        num_steps = env.rollout_batch(states, horizon, action_seed=0).num_steps.sum()
        call = measure(
            {"": lambda e=env, s=states, h=horizon: e.rollout_batch(s, h, action_seed=0)}, repeats, 0
        )
        print(f"{env_id:15s} random rollouts of {horizon} steps: {num_steps / call[''] / 1e6:.1f} M steps/s")
    started = time.perf_counter()
    planvec.PlanEnv("MountainCar-v0", compiled=True)
    print(f"opening with a kernel from the cache: {time.perf_counter() - started:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=["bits", "speed"])
    parser.add_argument("--rows", type=int, default=10_000_000, help="transitions of each environment")
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    if arguments.what == "bits":
        compare_bits(arguments.rows)
    else:
        compare_speed(arguments.repeats)


if __name__ == "__main__":
    main()
