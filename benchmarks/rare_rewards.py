"""Let every planner look for rewards that are rare: keys, doors and balls in MiniGrid.

    python benchmarks/rare_rewards.py                 # about half an hour on 2 cores
    python benchmarks/rare_rewards.py --novelty       # swarms with and without novelty, on other tasks, too
    python benchmarks/rare_rewards.py --corridors     # a near reward and a higher one far away: seconds
    python benchmarks/rare_rewards.py --graphs        # searches of graphs alone, on nine tasks

A decision takes about 3,000 environment steps. Nothing but the last step of an episode is rewarded. Seeds
begin at 100. KeyCorridorS3R3 is seen as a whole (`FullyObsWrapper`): from the agent's own view, what is
behind a door is not part of the observation.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
from minigrid.wrappers import FullyObsWrapper

import planvec

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from corridor import GRAPH, Corridor

FIRST_SEED = 100
MAX_STEPS = 100
BUDGET = 3000
PLANNERS: dict[str, planvec.Planner] = {
    f"MCTS(max_env_steps={BUDGET})": planvec.MCTS(max_env_steps=BUDGET),
    f"IW(num_simulations={BUDGET})": planvec.IW(num_simulations=BUDGET),
    f"RolloutIW(num_simulations={BUDGET})": planvec.RolloutIW(num_simulations=BUDGET),
    "Swarm(num_walkers=75, num_iterations=40, dt=1)": planvec.Swarm(num_walkers=75, num_iterations=40, dt=1),
    "Swarm(num_walkers=75, num_iterations=40, dt=1, novelty_scale=1)": planvec.Swarm(
        num_walkers=75, num_iterations=40, dt=1, novelty_scale=1.0
    ),
}
SWARMS: dict[str, tuple[dict[str, Any], int]] = {
    "MountainCar-v0": ({}, 200),
    "Acrobot-v1": ({}, 500),
    "CartPole-v1": ({}, 500),
    "Pendulum-v1": ({}, 200),
    "ALE/Breakout-v5": ({"num_walkers": 6, "num_iterations": 16, "dt": 1}, 600),
    "ALE/Seaquest-v5": ({"num_walkers": 6, "num_iterations": 16, "dt": 1}, 600),
}
"""Environment -> settings of the swarm, and the largest number of steps."""
ATARI = {"frameskip": 15, "repeat_action_probability": 0.0}


def whole(env_id: str) -> Any:
    """Make a MiniGrid that is seen as a whole."""
    return FullyObsWrapper(gymnasium.make(env_id))


TASKS: dict[str, Any] = {
    "DoorKey-5x5": "MiniGrid-DoorKey-5x5-v0",
    "DoorKey-8x8": "MiniGrid-DoorKey-8x8-v0",
    "KeyCorridorS3R3, whole view": partial(whole, "MiniGrid-KeyCorridorS3R3-v0"),
}


GRAPHS: dict[str, Any] = {
    **TASKS,
    "FourRooms": "MiniGrid-FourRooms-v0",
    "MultiRoom-N4-S5": "MiniGrid-MultiRoom-N4-S5-v0",
    "LavaCrossingS9N2": "MiniGrid-LavaCrossingS9N2-v0",
    "ObstructedMaze-1Dl, whole view": partial(whole, "MiniGrid-ObstructedMaze-1Dl-v0"),
    "Taxi": "Taxi-v4",
    "CliffWalking": "CliffWalking-v1",
}
"""Tasks whose observations repeat."""


def compare_graphs(num_seeds: int, words: list[str]) -> None:
    """Print the returns of searches of graphs, with a small budget and a large one."""
    print("| task | planner | return, mean and spread | returns | env steps a decision | time |")
    print("| --- | --- | --- | --- | --- | --- |")
    for task, source in GRAPHS.items():
        for budget in (300, BUDGET):
            planners = {
                "MCTS()": planvec.MCTS(max_env_steps=budget),
                'backup="max"': dataclasses.replace(GRAPH, num_simulations=None, max_env_steps=budget),
            }
            for name, planner in planners.items():
                if not any(word in f"{task} {name}" for word in words):
                    continue
                started, episodes = time.perf_counter(), []
                for seed in range(FIRST_SEED, FIRST_SEED + num_seeds):
                    with planvec.make(source, num_workers=0, info_keys=()) as env:
                        episodes.append(planvec.run_episode(env, planner, seed=seed, max_steps=MAX_STEPS))
                returns = [float(one.total_return) for one in episodes]
                used = sum(one.num_env_steps for one in episodes) / sum(one.num_steps for one in episodes)
                print(
                    f"| {task} | {name}, {budget} steps | {statistics.fmean(returns):.3f} +- "
                    f"{statistics.stdev(returns):.3f} | {', '.join(f'{one:.3g}' for one in returns)} | "
                    f"{used:,.0f} | {time.perf_counter() - started:.0f} s |",
                    flush=True,
                )


def compare_planners(num_seeds: int, words: list[str]) -> None:
    """Print a line per task and planner, of those that have one of the words in their line."""
    print("| task | planner | solved | actions | env steps a decision | time |")
    print("| --- | --- | --- | --- | --- | --- |")
    for task, source in TASKS.items():
        for name, planner in PLANNERS.items():
            if not any(word in f"{task} {name}" for word in words):
                continue
            started, episodes = time.perf_counter(), []
            for seed in range(FIRST_SEED, FIRST_SEED + num_seeds):
                with planvec.make(source, num_workers=2, info_keys=()) as env:
                    episodes.append(planvec.run_episode(env, planner, seed=seed, max_steps=MAX_STEPS))
            solved = [episode.num_steps for episode in episodes if episode.total_return > 0]
            used = sum(one.num_env_steps for one in episodes) / sum(one.num_steps for one in episodes)
            took, listed = time.perf_counter() - started, ", ".join(map(str, solved)) or "-"
            print(
                f"| {task} | `{name}` | {len(solved)} of {num_seeds} | {listed} | "
                f"{used:,.0f} | {took:.0f} s |",
                flush=True,
            )


def compare_corridors(num_seeds: int) -> None:
    """Print how many environment steps a graph search needs until it goes to the far end."""
    print(
        "| cells | cells and actions | one simulation at a time | 16 in flight |\n| --- | --- | --- | --- |"
    )
    for num_cells in (9, 17, 33, 65):
        columns = []
        for batch_size in (1, 16):
            needed = []
            for seed in range(FIRST_SEED, FIRST_SEED + num_seeds):
                with planvec.make(partial(Corridor, num_cells), num_workers=0) as env:
                    env.reset(seed=seed)
                    for steps in range(num_cells, 20 * num_cells, max(1, num_cells // 8)):
                        planner = dataclasses.replace(GRAPH, max_env_steps=steps, batch_size=batch_size)
                        plan = planner.plan(env, seed=seed)
                        if plan.action == 1:
                            needed.append(plan.num_env_steps)
                            break
            columns.append(
                f"{min(needed)} to {max(needed)} steps" if len(needed) == num_seeds else "not found"
            )
        print(f"| {num_cells} | {4 * (num_cells - 2)} | {' | '.join(columns)} |", flush=True)


def compare_novelty(num_seeds: int) -> None:
    """Print the mean return of swarms with and without novelty."""
    print("| task | without novelty | novelty_scale=1 |\n| --- | --- | --- |")
    for env_id, (settings, max_steps) in SWARMS.items():
        options = ATARI if env_id.startswith("ALE/") else {}
        columns = []
        for scale in (0.0, 1.0):
            planner = planvec.Swarm(**settings, novelty_scale=scale)
            returns = []
            for seed in range(FIRST_SEED, FIRST_SEED + num_seeds):
                with planvec.make(env_id, num_workers=2, env_kwargs=options) as env:
                    episode = planvec.run_episode(env, planner, seed=seed, max_steps=max_steps)
                returns.append(episode.total_return)
            error = statistics.stdev(returns) / num_seeds**0.5
            columns.append(f"{statistics.fmean(returns):,.1f} +- {error:,.1f}")
        print(f"| {env_id} | {columns[0]} | {columns[1]} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--novelty", action="store_true")
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD", help="lines with one of these")
    parser.add_argument("--corridors", action="store_true")
    parser.add_argument("--graphs", action="store_true")
    arguments = parser.parse_args()
    if arguments.corridors:
        compare_corridors(arguments.seeds)
    elif arguments.graphs:
        compare_graphs(arguments.seeds, arguments.only)
    elif arguments.novelty:
        compare_novelty(arguments.seeds)
    else:
        compare_planners(arguments.seeds, arguments.only)


if __name__ == "__main__":
    main()
