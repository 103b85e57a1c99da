"""What a batch of transitions costs, beside a naive loop and beside plangym.

    python benchmarks/throughput.py            # everything, about three minutes
    python benchmarks/throughput.py --quick    # fewer repetitions

Everything runs in one process tree and in turn (A, B, C, A, B, C, ...), and medians are compared, so that a
machine whose speed drifts treats all alike. The limit is `num_workers / naive time per row`: what workers
could reach if crossing a process boundary cost nothing. `plangym` (0.1.32) is measured where it is
installed: `pip install plangym`.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv

import planvec

NUM_ROWS = (1, 16, 256, 4096)
NUM_SUBSTEPS = 2700


class SlowCartPole(CartPoleEnv):
    """CartPole with about 200 us of extra work a step: a pendulum integrated in Python."""

    def step(self, action: Any) -> Any:
        """Step, after some work that cannot be left out."""
        angle, velocity = 1.0, 0.0
        for _ in range(NUM_SUBSTEPS):
            velocity -= 1e-3 * math.sin(angle)
            angle += 1e-3 * velocity
        if math.isnan(angle):
            raise ArithmeticError
        return super().step(action)


class SlowCodec(planvec.Codec):
    """As for CartPole itself."""

    dtype = np.dtype([("physics", "f8", 4)])
    draws = False

    def get(self, env: Any) -> Any:
        """The state."""
        return (env.state,)

    def set(self, env: Any, value: Any) -> None:
        """Put it back."""
        (env.state,) = value
        env.steps_beyond_terminated = None

    def observe(self, env: Any) -> Any:
        """The state in single precision."""
        return np.array(env.state, np.float32)


def make_fast() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("CartPole-v1")


def make_slow() -> gymnasium.Env[Any, Any]:
    return gymnasium.wrappers.TimeLimit(SlowCartPole(), 500)


def naive_loop(env: Any) -> Callable[[Any, Any], Any]:
    """Set, step and get by hand on the unwrapped environment, results in arrays: one core."""
    step = env.step

    def run(states: Any, actions: Any) -> Any:
        num_rows = len(actions)
        news, observations = np.empty((num_rows, 4)), np.empty((num_rows, 4), np.float32)
        rewards = np.empty(num_rows)
        terminated, truncated = np.empty(num_rows, bool), np.empty(num_rows, bool)
        for row in range(num_rows):
            env.state = states[row]
            env.steps_beyond_terminated = None
            observations[row], rewards[row], terminated[row], truncated[row], _ = step(actions[row])
            news[row] = env.state
        return news, observations, rewards, terminated, truncated

    return run


def measure(contenders: dict[str, Callable[[], Any]], repeats: int, seconds: float) -> dict[str, float]:
    """Median seconds per call of each, run in turn."""
    calls = {}
    for name, run in contenders.items():
        run()
        started = time.perf_counter()
        run()
        once = max(time.perf_counter() - started, 1e-7)
        calls[name] = max(1, min(2000, int(seconds / once)))
    times: dict[str, list[float]] = {name: [] for name in contenders}
    gc.collect()
    gc.disable()
    try:
        for _ in range(repeats):
            for name, run in contenders.items():
                run()  # not counted: processes that have slept are placed on cores anew
                started = time.perf_counter()
                for _ in range(calls[name]):
                    run()
                times[name].append((time.perf_counter() - started) / calls[name])
    finally:
        gc.enable()
    return {name: statistics.median(values) for name, values in times.items()}


def open_plangym(slow: bool) -> Any:
    """plangym's ParallelEnv with two workers, or None where it is not installed."""
    if importlib.util.find_spec("plangym") is None or slow:
        return None
    from plangym.registry import make

    peer = make(name="CartPole-v1", n_workers=2)
    peer.reset()
    return peer


def compare(name: str, factory: Callable[[], Any], repeats: int, seconds: float) -> list[dict[str, Any]]:
    """Measure one environment at every batch size; prints a line per contender."""
    slow = factory is make_slow
    envs = {f"{n} workers": planvec.make(factory, num_workers=n) for n in (0, 1, 2)}
    peer = open_plangym(slow)
    naive = naive_loop(factory().unwrapped)
    rng = np.random.default_rng(0)
    start = envs["0 workers"].reset(seed=0).state
    results = []
    for num_rows in NUM_ROWS[:3] if slow else NUM_ROWS:
        actions = rng.integers(2, size=num_rows)
        states = np.repeat(start, num_rows)
        physics = states["physics"].copy()
        contenders = {"naive loop": lambda p=physics, a=actions: naive(p, a)}
        for label, env in envs.items():
            contenders[label] = lambda e=env, a=actions, s=states: e.step_batch(a, s)
        if peer is not None:
            listed = [peer.get_state() for _ in range(num_rows)]
            contenders["plangym, 2"] = lambda a=actions, s=listed: peer.step_batch(
                actions=a, states=s, return_state=True
            )
        times = measure(contenders, repeats, seconds)
        results += report(name, num_rows, times)
    for env in envs.values():
        env.close()
    if peer is not None:
        peer.close()
    return results


def report(name: str, num_rows: int, times: dict[str, float]) -> list[dict[str, Any]]:
    """One line per contender."""
    rows = []
    for label, seconds in times.items():
        num_workers = int(label.split()[0]) if label.endswith("workers") else 1
        limit = max(num_workers, 1) * num_rows / times["naive loop"]
        row = {
            "env": name,
            "rows": num_rows,
            "contender": label,
            "us_per_call": seconds * 1e6,
            "rows_per_second": num_rows / seconds,
            "of_limit": num_rows / seconds / limit,
            "times_naive": seconds / times["naive loop"],
            "times_plangym": times["plangym, 2"] / seconds if "plangym, 2" in times else None,
        }
        rows.append(row)
        peer = "" if row["times_plangym"] is None else f"{row['times_plangym']:8.2f} x plangym"
        print(
            f"{name:14s} {num_rows:5d} rows  {label:11s} {row['us_per_call']:11.1f} us/call "
            f"{row['rows_per_second']:11.0f} rows/s {row['of_limit']:7.1%} of limit {peer}",
            flush=True,
        )
    return rows


def compare_rollouts(repeats: int) -> list[dict[str, Any]]:
    """256 rollouts of 50 CartPole steps that do not fall, against the naive loop's time per step."""
    naive = naive_loop(make_fast().unwrapped)
    with planvec.make(make_fast, num_workers=2) as env:
        state = env.reset(seed=0).state
        actions, states = balancing_actions(env, state, 256, 50)
        physics = np.repeat(state["physics"][None], 4096, axis=0)
        batch = np.zeros(4096, int)
        taken = int(env.rollout_batch(states, 50, actions=actions).num_steps.sum())
        random_steps = int(env.rollout_batch(states, 50, action_seed=0).num_steps.sum())
        times = measure(
            {
                "naive": lambda: naive(physics, batch),
                "given": lambda: env.rollout_batch(states, 50, actions=actions),
                "random": lambda: env.rollout_batch(states, 50, action_seed=0),
            },
            repeats,
            0.1,
        )
    limit = 2 * 4096 / times["naive"]
    rows = []
    for label, steps in (("given", taken), ("random", random_steps)):
        rate = steps / times[label]
        rows.append({"env": "CartPole-v1", "rollouts": label, "steps": steps, "of_limit": rate / limit})
        print(
            f"rollout_batch 256 x 50, {label} actions: {steps} steps, {rate:.0f} steps/s, "
            f"{rate / limit:.1%} of limit"
        )
    return rows


def balancing_actions(env: Any, state: Any, num_rows: int, horizon: int) -> tuple[Any, Any]:
    """Actions `[B, H]` under which CartPole stands: push towards where the pole falls."""
    states = start = np.repeat(state, num_rows)
    columns = []
    for _ in range(horizon):
        _, _, theta, omega = states["physics"].T
        columns.append((theta + 0.5 * omega > 0).astype(int))
        states = env.step_batch(columns[-1], states).new_states
    return np.stack(columns, axis=1), start


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to a file")
    arguments = parser.parse_args()
    planvec.register_codec(SlowCartPole, SlowCodec)
    repeats, seconds = (7, 0.05) if arguments.quick else (25, 0.1)
    results = compare("CartPole-v1", make_fast, repeats, seconds)
    results += compare("slow CartPole", make_slow, max(5, repeats // 3), seconds)
    results += compare_rollouts(repeats)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
