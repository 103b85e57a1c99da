"""Measure what it costs to send the actions of rollouts to workers.

    python benchmarks/rollout_actions.py
    python benchmarks/paired.py ../old . benchmarks/rollout_actions.py

rollouts   `rollout_batch` with given actions, B rows x H steps x A numbers (float32): 64 x 30 x 6 as planners
           of HalfCheetah send them, and 512 x 50 x 17 as those of Humanoid. The environment costs next to
           nothing

               sent     the rows have ended before: their actions are checked, sent and not used
               empty    the same rows with one action each; the difference is what sending actions costs
               here     as "sent", with num_workers=0: the actions are checked and listed, and not sent
               stepped  the rows take their steps

planners   the seconds of one decision of CEM, ICEM and MPPI on Pendulum-v1, with the planners' own settings
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from figures import Figures, add_plain
from timing import measure

import planvec

SHAPES = ((64, 30, 6), (512, 50, 17))
"""B, H, A."""
PLANNERS = (planvec.CEM(), planvec.ICEM(), planvec.MPPI())
ENV_ID = "Pendulum-v1"


class Counter(gymnasium.Env[Any, Any]):
    """Counts its steps, and does nothing with their actions.

    Args:
        num_numbers: A, numbers of an action.
    """

    observation_space = gymnasium.spaces.Box(0, np.inf, (1,), np.float64)

    def __init__(self, num_numbers: int) -> None:
        self.action_space = gymnasium.spaces.Box(-1, 1, (num_numbers,), np.float32)
        self.count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin at 0."""
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1), {}

    def step(self, action: Any) -> Any:
        """Count."""
        self.count += 1
        return np.array([float(self.count)]), 1.0, False, False, {}


class CounterCodec(planvec.Codec):
    """Saves a `Counter`."""

    dtype = np.dtype([("count", "i8")])
    draws = False

    def get(self, env: Any) -> Any:
        """Return the state."""
        return (env.count,)

    def set(self, env: Any, value: Any) -> None:
        """Restore a state."""
        (env.count,) = value

    def observe(self, env: Any) -> Any:
        """Return the count."""
        return np.array([float(env.count)])


def show_rollouts(shape: tuple[int, int, int], arguments: argparse.Namespace, figures: Figures) -> None:
    """Measure rollouts of one shape."""
    num_rows, horizon, num_numbers = shape
    actions = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    factory = partial(Counter, num_numbers)
    with (
        planvec.make(factory, num_workers=arguments.num_workers, info_keys=()) as env,
        planvec.make(factory, num_workers=0, info_keys=(), compiled=False) as here,
    ):
        states = np.repeat(env.reset(seed=0).state, num_rows)
        ended = states.copy()
        ended["terminated"] = True
        assert env.rollout_batch(states, actions=actions).num_steps.sum() == num_rows * horizon
        assert not env.rollout_batch(ended, actions=actions).num_steps.any()
        times = measure(
            {
                "sent": lambda: env.rollout_batch(ended, actions=actions),
                "empty": lambda: env.rollout_batch(ended, actions=actions[:, :1]),
                "here": lambda: here.rollout_batch(ended, actions=actions),
                "stepped": lambda: env.rollout_batch(states, actions=actions),
            },
            arguments.repeats,
            arguments.seconds,
        )
    name = f"{num_rows} x {horizon} x {num_numbers}"
    sending = times["sent"] - times["empty"]
    figures.text(
        f"rollouts {name:<14} ({actions.nbytes / 1024:,.0f} KB)  sent {times['sent'] * 1e6:,.0f} us, "
        f"empty {times['empty'] * 1e6:,.0f}, here {times['here'] * 1e6:,.0f}, "
        f"stepped {times['stepped'] * 1e6:,.0f}; sent less empty {sending * 1e6:,.0f} us, "
        f"{sending / times['stepped']:.1%} of stepped"
    )
    for which, seconds in times.items():
        figures.figure(f"rollouts/{name}/{which}/us", seconds * 1e6)
    figures.figure(f"rollouts/{name}/sent less empty/us", sending * 1e6)


def show_planners(arguments: argparse.Namespace, figures: Figures) -> None:
    """Measure one decision of each planner."""
    with planvec.make(ENV_ID, num_workers=arguments.num_workers, info_keys=()) as env:
        state = env.reset(seed=0).state
        decisions = {
            type(planner).__name__: partial(planner.plan, env, state, seed=0) for planner in PLANNERS
        }
        num_steps = {name: decide().num_env_steps for name, decide in decisions.items()}
        times = measure(decisions, arguments.repeats, arguments.seconds)
    for name, seconds in times.items():
        figures.text(
            f"{name:<5} on {ENV_ID}: {seconds * 1e3:8.2f} ms a decision of {num_steps[name]:,} env steps"
        )
        figures.figure(f"{name}/{ENV_ID}/ms", seconds * 1e3)


def main() -> None:
    """Measure rollouts and planners."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("rollouts", "planners"))
    parser.add_argument("--repeats", type=int, default=15, help="turns of each")
    parser.add_argument("--seconds", type=float, default=0.1, help="of a turn")
    parser.add_argument("--num-workers", type=int, default=2)
    add_plain(parser)
    arguments = parser.parse_args()
    figures = Figures(arguments.plain)
    planvec.register_codec(Counter, CounterCodec)
    if arguments.only != "planners":
        for shape in SHAPES:
            show_rollouts(shape, arguments, figures)
    if arguments.only != "rollouts":
        show_planners(arguments, figures)


if __name__ == "__main__":
    main()
