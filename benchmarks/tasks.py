"""Measure what planners score on real tasks.

    python benchmarks/tasks.py                        # every task, 5 seeds: about an hour on 2 cores
    python benchmarks/tasks.py --only Taxi Pendulum --seeds 5
    python benchmarks/tasks.py --presets              # the presets of the command line
    python benchmarks/tasks.py --defaults             # MCTS(max_env_steps=1000) on small tasks
    python benchmarks/tasks.py --control              # ICEM and MPPI without settings: about half an hour
    python benchmarks/tasks.py --atari                # five games, one seed: some hours

Each line is one planner on one task: the return of every episode, their mean, and the target. Seeds begin at
100; none of them was used to choose the settings. That of Acrobot was chosen with `--first-seed 1000`; the
rules of `MCTS` without settings were tried on 100 to 104, so that `--defaults` needs others (2000).

Control: `ICEM(max_env_steps=1000)` and `MPPI(max_env_steps=1000)` on eight tasks of MuJoCo, beside both with
fixed horizons, and beside the best settings of a search over horizon, `dt`, colour and standard deviation of
the noise on the seeds 7 to 9. The share is `(return - random) / (best - random)`, where `random` is the
return of random actions.

Atari: about 100 env steps per decision, each of 15 frames, and episodes of at most 18,000 frames, as in
Bandres, Bonet and Geffner 2018 ("Planning with pixels in (almost) real time": Rollout-IW), whose scores at
0.5 s per decision are printed too. Rollout-IW searches for new features of the screen within a time limit;
here the budget is steps.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, NamedTuple

import numpy as np
from atari import FRAME_SKIP, MAX_STEPS, published

import planvec
from planvec.cli.plan import make_planner, preset_of

FIRST_SEED = 100


class Task(NamedTuple):
    """Describes one line of the table.

    Attributes:
        env_id: The environment.
        planner: The planner.
        target: The score to reach.
        max_steps: Largest number of steps of an episode.
        options: The `env_kwargs` of `planvec.make`.
    """

    env_id: str
    planner: planvec.Planner
    target: str = ""
    max_steps: int | None = None
    options: dict[str, Any] = {}  # noqa: RUF012 - never written


TAXI = planvec.MCTS(num_simulations=2_000, rollout_horizon=0, transpositions="cell", backup="max")
DEFAULT = planvec.MCTS(max_env_steps=1000)
CHEETAH = {"max_steps": 200, "target": "well above random shooting"}
TASKS = [
    Task("CartPole-v1", planvec.MCTS(num_simulations=128, dt=4, rollout_horizon=80), "500"),
    Task("CartPole-v1", planvec.Swarm(), "500"),
    Task("Acrobot-v1", planvec.Swarm(), "at least -65"),
    Task("Acrobot-v1", planvec.SwarmWave(num_walkers=2000, dt=(4, 8), reward_scale=2.0), "at least -65"),
    Task("MountainCar-v0", planvec.Swarm(num_walkers=128, num_iterations=16, dt=(2, 16)), "at least -110"),
    Task("MountainCar-v0", planvec.SwarmWave(num_walkers=512, dt=(2, 16)), "at least -110"),
    Task("MountainCarContinuous-v0", planvec.ICEM(horizon=100, dt=5, noise_beta=2.0), "at least 90"),
    Task("MountainCarContinuous-v0", planvec.MPPI(horizon=100, dt=5, noise_beta=2.0), "at least 90"),
    Task("Pendulum-v1", planvec.ICEM(horizon=30), "at least -160 on average"),
    Task("Pendulum-v1", planvec.MPPI(num_trajectories=98, horizon=30), "at least -160 on average"),
    Task("LunarLander-v3", planvec.Swarm(num_walkers=32, num_iterations=10, dt=(2, 10)), "above 200"),
    Task("HalfCheetah-v5", planvec.ICEM(horizon=30, dt=1, noise_beta=0.25), **CHEETAH),
    Task("HalfCheetah-v5", planvec.MPPI(num_trajectories=98, horizon=30), **CHEETAH),
    Task("HalfCheetah-v5", planvec.RandomShooting(num_trajectories=98), "(compare)", 200),
    Task("Hopper-v5", planvec.ICEM(horizon=80, dt=4, noise_beta=1.0), **CHEETAH),
    Task("Hopper-v5", planvec.MPPI(num_trajectories=98, horizon=80, dt=4), **CHEETAH),
    Task("Hopper-v5", planvec.RandomShooting(num_trajectories=98, horizon=80, dt=4), "(compare)", 200),
    Task("Taxi-v4", TAXI, "optimal"),
]
DEFAULTS = [
    Task("CliffWalking-v1", DEFAULT, "-13"),
    Task("FrozenLake-v1", DEFAULT, "1", None, {"map_name": "8x8", "is_slippery": False}),
    Task("Taxi-v4", DEFAULT, "optimal"),
    Task("MiniGrid-DoorKey-5x5-v0", DEFAULT, "solved: above 0"),
    Task("CartPole-v1", DEFAULT, "500"),
]
"""Tasks for which the planner chooses nodes and rollouts itself."""
STEPS = 1000
ICEM_FIXED = planvec.ICEM(40, 30, dt=1, num_iterations=3, num_elites=10, noise_beta=1.0, max_env_steps=STEPS)
MPPI_FIXED = planvec.MPPI(
    64, 30, dt=1, num_iterations=1, temperature=0.2, std=0.5, noise_beta=1.0, fine=0.0, max_env_steps=STEPS
)


def icem(horizon: int, dt: int, noise_beta: float, num_trajectories: int) -> planvec.ICEM:
    """Return an ICEM with settings, which has as many iterations as `STEPS` pay for."""
    return planvec.ICEM(num_trajectories, horizon, dt=dt, noise_beta=noise_beta, max_env_steps=STEPS)


CONTROL: dict[str, tuple[int, list[planvec.Planner]]] = {
    "HalfCheetah-v5": (100, [icem(20, 2, 0.5, 24), icem(20, 1, 0.5, 24)]),
    "Hopper-v5": (150, [icem(72, 3, 0.5, 13), icem(20, 2, 1.0, 26)]),
    "Walker2d-v5": (150, [icem(40, 1, 1.0, 13), icem(36, 3, 0.5, 13)]),
    "Ant-v5": (100, [icem(20, 2, 0.5, 25), icem(20, 1, 1.0, 16)]),
    "Swimmer-v5": (100, [icem(80, 4, 2.5, 6), icem(20, 2, 0.5, 24)]),
    "InvertedDoublePendulum-v5": (100, [icem(32, 2, 0.5, 15), icem(24, 2, 2.0, 20), icem(40, 4, 0.5, 13)]),
    "Reacher-v5": (50, [icem(20, 4, 2.5, 26), icem(20, 2, 0.5, 24)]),
    "Humanoid-v5": (100, [icem(30, 3, 0.5, 16), icem(20, 4, 2.5, 26)]),
}
"""Task -> steps of an episode, and the best settings that are known."""
ATARI = ("Boxing", "MsPacman", "Breakout", "Seaquest", "Freeway")


def play(task: Task, seed: int) -> planvec.Episode:
    """Play one episode."""
    with planvec.make(task.env_id, info_keys=(), env_kwargs=task.options) as env:
        return planvec.run_episode(env, task.planner, seed=seed, max_steps=task.max_steps)


def shown(planner: planvec.Planner) -> str:
    """Return a planner as code, with the fields that differ from their defaults."""
    defaults = type(planner)()
    given = [
        f"{name}={'cells' if callable(value) else value!r}"
        for name, value in vars(planner).items()
        if value != getattr(defaults, name)
    ]
    return f"{type(planner).__name__}({', '.join(given)})"


def taxi_optimum(seed: int) -> float:
    """Return the best undiscounted return from the start of a seed."""
    import gymnasium

    env: Any = gymnasium.make("Taxi-v4")
    start = int(env.reset(seed=seed)[0])
    table = env.unwrapped.P
    values = np.full(len(table), -1e9)
    for _ in range(100):
        for cell, actions in table.items():
            outcomes = [outcome for (outcome,) in actions.values()]
            values[cell] = max(
                reward + (0 if ended else values[after]) for _, after, reward, ended in outcomes
            )
    return float(values[start])


def line(task: Task, seeds: list[int]) -> str:
    """Return one line of the table."""
    started = time.perf_counter()
    episodes = [play(task, seed) for seed in seeds]
    returns = [episode.total_return for episode in episodes]
    target = task.target
    if task.env_id == "Taxi-v4":
        target = f"{target}: {np.mean([taxi_optimum(seed) for seed in seeds]):.1f}"
    per_decision = sum(episode.num_env_steps for episode in episodes) / sum(
        episode.num_steps for episode in episodes
    )
    columns = [
        task.env_id,
        f"`{shown(task.planner)}`",
        f"{np.mean(returns):,.1f}",
        ", ".join(f"{each:,.1f}" for each in returns),
        target,
        f"{per_decision:,.0f}",
        f"{(time.perf_counter() - started) / len(seeds):.0f}",
    ]
    return f"| {' | '.join(columns)} |"


def atari_tasks() -> list[Task]:
    """Return five games, with about 100 env steps per decision."""
    scores = published()
    options = {"frameskip": FRAME_SKIP, "repeat_action_probability": 0.0, "obs_type": "grayscale"}
    planners = (
        planvec.MCTS(max_env_steps=60, batch_size=4, rollout_horizon=15, discount=0.99),
        planvec.Swarm(num_walkers=6, num_iterations=16, dt=1),
    )
    return [
        Task(
            f"ALE/{game}-v5", planner, f"{scores[game]['riw_0.5s_score']:,} (Rollout-IW)", MAX_STEPS, options
        )
        for game in ATARI
        for planner in planners
    ]


def random_return(env_id: str, max_steps: int, seed: int) -> float:
    """Return the return of an episode of random actions."""
    with planvec.make(env_id, num_workers=0, info_keys=()) as env:
        state = env.reset(seed=seed).state
        return float(env.rollout_batch(np.repeat(state, 1), max_steps, action_seed=seed).returns[0])


def control_line(env_id: str, seeds: list[int]) -> str:
    """Return one line of the table of planners without settings."""
    max_steps, best = CONTROL[env_id]
    compared = [planvec.ICEM(max_env_steps=STEPS), planvec.MPPI(max_env_steps=STEPS), ICEM_FIXED, MPPI_FIXED]
    returns = {
        planner: [play(Task(env_id, planner, max_steps=max_steps), seed).total_return for seed in seeds]
        for planner in [*compared, *best]
    }
    at_random = np.mean([random_return(env_id, max_steps, seed) for seed in seeds])
    means = {planner: float(np.mean(each)) for planner, each in returns.items()}
    winner = max(best, key=lambda planner: means[planner])
    columns = [env_id]
    for planner in [*compared, winner]:
        low, high = min(returns[planner]), max(returns[planner])
        columns.append(f"{means[planner]:,.1f} ({low:,.1f} to {high:,.1f})")
    shares = [(means[planner] - at_random) / (means[winner] - at_random) for planner in compared]
    columns += [" / ".join(f"{share:.2f}" for share in shares), f"`{shown(winner)}`"]
    return f"| {' | '.join(columns)} |"


def preset_tasks() -> list[Task]:
    """Return the presets of the command line, with the targets of the other tasks."""
    tasks = []
    for task in {task.env_id: task for task in [*DEFAULTS, *TASKS]}.values():
        preset = preset_of(task.env_id)
        if preset is not None:
            tasks.append(task._replace(planner=make_planner(preset.planner, preset.options)))
    return tasks


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="WORD", help="tasks whose id has one of these in it")
    parser.add_argument("--seeds", type=int, default=None, help="default: 5, for Atari 1")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--atari", action="store_true", help="the Atari games instead")
    kinds.add_argument("--presets", action="store_true", help="the presets of the command line instead")
    kinds.add_argument("--defaults", action="store_true", help="tasks for MCTS without settings instead")
    kinds.add_argument("--control", action="store_true", help="ICEM and MPPI without settings instead")
    arguments = parser.parse_args()
    count = arguments.seeds or (1 if arguments.atari else 5)
    seeds = list(range(arguments.first_seed, arguments.first_seed + count))
    if arguments.control:
        print("| task | ICEM | MPPI | ICEM, fixed | MPPI, fixed | best | shares of the best | its settings |")
        print("| --- |" + " --- |" * 7)
        for env_id in CONTROL:
            if arguments.only is None or any(word in env_id for word in arguments.only):
                print(control_line(env_id, seeds), flush=True)
        return
    tasks = DEFAULTS if arguments.defaults else TASKS
    if arguments.atari or arguments.presets:
        tasks = atari_tasks() if arguments.atari else preset_tasks()
    print("| task | planner | mean | episodes | target | env steps a decision | s an episode |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for task in tasks:
        if arguments.only is None or any(word in task.env_id for word in arguments.only):
            print(line(task, seeds), flush=True)


if __name__ == "__main__":
    main()
