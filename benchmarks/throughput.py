"""Measure what a batch of transitions costs, beside a naive loop and beside plangym.

    python benchmarks/throughput.py            # everything, about three minutes
    python benchmarks/throughput.py --quick    # fewer repetitions

Everything runs in one process tree and in turn, and medians are compared (see `timing`). The limit is
`num_workers / naive time per row`: what workers could reach if crossing a process boundary cost nothing.
`plangym` (0.1.32) is measured where it is installed: `pip install plangym`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from cart_pole_codec import CartPoleCodec
from figures import Figures, add_plain
from gymnasium.envs.classic_control import CartPoleEnv
from names import action_seed, rows_only
from timing import measure

import planvec

NUM_ROWS = (1, 16, 256, 4096)
NUM_SUBSTEPS = 2700


class SlowCartPole(CartPoleEnv):
    """Takes about 200 us more a step than CartPole: it integrates a pendulum in Python."""

    def step(self, action: Any) -> Any:
        """Step, after some work that cannot be left out."""
        angle, velocity = 1.0, 0.0
        for _ in range(NUM_SUBSTEPS):
            velocity -= 1e-3 * math.sin(angle)
            angle += 1e-3 * velocity
        if math.isnan(angle):
            raise ArithmeticError
        return super().step(action)


def make_fast() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("CartPole-v1")


def make_slow() -> gymnasium.Env[Any, Any]:
    return gymnasium.wrappers.TimeLimit(SlowCartPole(), 500)


def naive_loop(env: Any) -> Callable[[Any, Any], Any]:
    """Return a loop that sets, steps and gets states by hand, with results in arrays: one core."""
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


def open_plangym(slow: bool) -> Any:
    """Open plangym's ParallelEnv with two workers; returns None where it is not installed."""
    if importlib.util.find_spec("plangym") is None or slow:
        return None
    from plangym.registry import make

    peer = make(name="CartPole-v1", n_workers=2)
    peer.reset()
    return peer


def compare(
    name: str, factory: Callable[[], Any], repeats: int, seconds: float, figures: Figures
) -> list[dict[str, Any]]:
    """Measure one environment at every batch size; prints a line per contender."""
    slow = factory is make_slow
    envs = {
        f"{n} workers": planvec.make(factory, num_workers=n, **rows_only(planvec.make)) for n in (0, 1, 2)
    }
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
        results += report(name, num_rows, times, figures)
    for env in envs.values():
        env.close()
    if peer is not None:
        peer.close()
    return results


def report(name: str, num_rows: int, times: dict[str, float], figures: Figures) -> list[dict[str, Any]]:
    """Print a line per contender, and return the figures."""
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
        figures.text(
            f"{name:14s} {num_rows:5d} rows  {label:11s} {row['us_per_call']:11.1f} us/call "
            f"{row['rows_per_second']:11.0f} rows/s {row['of_limit']:7.1%} of limit {peer}"
        )
        figures.figure(f"{name}/{num_rows} rows/{label}/us", row["us_per_call"])
        if label.endswith("workers"):
            figures.figure(f"{name}/{num_rows} rows/{label}/of_limit_share", row["of_limit"])
    return rows


def compare_rollouts(repeats: int, figures: Figures) -> list[dict[str, Any]]:
    """Measure 256 rollouts of 50 CartPole steps that do not fall, against the naive loop's time per step."""
    naive = naive_loop(make_fast().unwrapped)
    with planvec.make(make_fast, num_workers=2) as env:
        state = env.reset(seed=0).state
        actions, states = balancing_actions(env, state, 256, 50)
        physics = np.repeat(state["physics"][None], 4096, axis=0)
        batch = np.zeros(4096, int)
        taken = int(env.rollout_batch(states, 50, actions=actions).num_steps.sum())
        seeded = action_seed(0)
        random_steps = int(env.rollout_batch(states, 50, **seeded).num_steps.sum())
        times = measure(
            {
                "naive": lambda: naive(physics, batch),
                "given": lambda: env.rollout_batch(states, 50, actions=actions),
                "random": lambda: env.rollout_batch(states, 50, **seeded),
            },
            repeats,
            0.1,
        )
    limit = 2 * 4096 / times["naive"]
    rows = []
    for label, steps in (("given", taken), ("random", random_steps)):
        rate = steps / times[label]
        rows.append({"env": "CartPole-v1", "rollouts": label, "steps": steps, "of_limit": rate / limit})
        figures.text(
            f"rollout_batch 256 x 50, {label} actions: {steps} steps, {rate:.0f} steps/s, "
            f"{rate / limit:.1%} of limit"
        )
        figures.figure(f"rollout_batch/256 x 50/{label} actions/us", times[label] * 1e6)
        figures.figure(f"rollout_batch/256 x 50/{label} actions/of_limit_share", rate / limit)
    return rows


def balancing_actions(env: Any, state: Any, num_rows: int, horizon: int) -> tuple[Any, Any]:
    """Return actions `[B, H]` that keep the pole up (they push to where it falls), and the starts."""
    states = start = np.repeat(state, num_rows)
    columns = []
    for _ in range(horizon):
        _, _, theta, omega = states["physics"].T
        columns.append((theta + 0.5 * omega > 0).astype(int))
        states = env.step_batch(columns[-1], states).new_states
    return np.stack(columns, axis=1), start


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to a file")
    add_plain(parser)
    arguments = parser.parse_args()
    planvec.register_codec(SlowCartPole, CartPoleCodec)
    repeats, seconds = (7, 0.05) if arguments.quick else (25, 0.1)
    figures = Figures(arguments.plain)
    results = compare("CartPole-v1", make_fast, repeats, seconds, figures)
    results += compare("slow CartPole", make_slow, max(5, repeats // 3), seconds, figures)
    results += compare_rollouts(repeats, figures)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
