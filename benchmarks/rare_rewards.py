"""Let every planner look for rewards that are rare: keys, doors and balls in MiniGrid.

    python benchmarks/rare_rewards.py                 # about half an hour on 2 cores
    python benchmarks/rare_rewards.py --novelty       # swarms with and without novelty, on other tasks, too
    python benchmarks/rare_rewards.py --corridors     # a near reward and a higher one far away: seconds
    python benchmarks/rare_rewards.py --graphs        # searches of graphs alone, on nine tasks

A decision takes about 3,000 environment steps; with `--graphs` also 300. Nothing but the last step of an
episode of MiniGrid is rewarded. Seeds begin at 100. KeyCorridorS3R3 and ObstructedMaze are seen as a whole
(`FullyObsWrapper`): from the agent's own view, what is behind a door is not part of the observation.
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


def play(
    source: Any, planner: planvec.Planner, num_seeds: int, max_steps: int = MAX_STEPS, **options: Any
) -> list[planvec.Episode]:
    """Play an episode for each seed; the options are those of `planvec.make`."""
    episodes = []
    for seed in range(FIRST_SEED, FIRST_SEED + num_seeds):
        with planvec.make(source, num_workers=2, info_keys=(), **options) as env:
            episodes.append(planvec.run_episode(env, planner, seed=seed, max_steps=max_steps))
    return episodes


def compare(
    tasks: dict[str, Any],
    planners: dict[str, planvec.Planner],
    num_seeds: int,
    words: list[str],
) -> None:
    """Print a line per task and planner, of those that have one of the words in their line."""
    print("| task | planner | solved | actions | return, mean and spread | env steps a decision | time |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for task, source in tasks.items():
        for name, planner in planners.items():
            if not any(word in f"{task} {name}" for word in words):
                continue
            started = time.perf_counter()
            episodes = play(source, planner, num_seeds)
            took = time.perf_counter() - started
            returns = [float(episode.total_return) for episode in episodes]
            solved = [episode.num_steps for episode in episodes if episode.total_return > 0]
            used = sum(one.num_env_steps for one in episodes) / sum(one.num_steps for one in episodes)
            spread = statistics.stdev(returns) if num_seeds > 1 else 0.0
            listed = ", ".join(map(str, solved)) or "-"
            print(
                f"| {task} | `{name}` | {len(solved)} of {num_seeds} | {listed} | "
                f"{statistics.fmean(returns):.3f} +- {spread:.3f} | {used:,.0f} | {took:.0f} s |",
                flush=True,
            )


def graph_searches() -> dict[str, planvec.Planner]:
    """Return searches of graphs with a small budget and a large one."""
    searches: dict[str, planvec.Planner] = {}
    for budget in (300, BUDGET):
        searches[f"MCTS(max_env_steps={budget})"] = planvec.MCTS(max_env_steps=budget)
        graph = dataclasses.replace(GRAPH, num_simulations=None, max_env_steps=budget)
        searches[f'the graph with backup="max", max_env_steps={budget}'] = graph
    return searches


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
            episodes = play(env_id, planner, num_seeds, max_steps, env_kwargs=options)
            returns = [episode.total_return for episode in episodes]
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
        compare(GRAPHS, graph_searches(), arguments.seeds, arguments.only)
    elif arguments.novelty:
        compare_novelty(arguments.seeds)
    else:
        compare(TASKS, PLANNERS, arguments.seeds, arguments.only)


if __name__ == "__main__":
    main()
