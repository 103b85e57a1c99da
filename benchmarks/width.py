"""Measure `RolloutIW` and `IW` beside the published scores of width-based planners.

    python benchmarks/width.py long                          # the calls of 32 s per decision: hours a game
    python benchmarks/width.py ideas                         # each idea left out: about four hours
    python benchmarks/width.py cost                          # features beside steps
    python benchmarks/width.py ram --only Freeway            # IW(1) on the RAM, 30,000 calls per decision

`atari.py` plays all games with the calls of 0.5 s per decision; the rules and the planner are those of
`atari.py`. `long` plays with the calls that Rollout-IW (Bandres, Bonet and Geffner, AAAI 2018) had on average
in 32 s, with novelty subtables and without a horizon. `ideas` takes the seeds 7 and 8, on which the settings
were chosen, and the calls of 0.5 s.

Scores do not depend on the number of workers. Two processes with `--workers 0` that share the games out
(`--only`) take less time than one with two workers, since few steps are in flight.

IW(1) of Lipovetzky, Ramirez and Geffner (IJCAI 2015) takes bytes of the RAM as features, 5 frames a step and
30,000 calls per decision. An episode takes hours, so that `ram` plays its first 100 decisions. Each line
shows the score so far, and means over ten decisions.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np
from atari import MAX_STEPS, PLANNER, RULES, published

import planvec
from planvec.planners.novelty.features import Screens

PUBLISHED = published()
IDEAS: dict[str, dict[str, Any]] = {
    "all": {},
    "no horizon": {"horizon": None},
    "16 steps in flight": {"batch_size": 16},
    "lost lives cost nothing": {"life_cost": 0.0},
    "no tree reuse": {"reuse_tree": False},
    "subtables by reward": {"subtables": True},
}
"""What is changed -> the fields of the planner."""
GAMES = {  # of each measurement, unless `--only` names others
    "long": ["Freeway", "Seaquest", "Breakout"],
    "ideas": ["Alien", "Breakout", "Gravitar", "MsPacman", "Pong", "Seaquest", "SpaceInvaders", "StarGunner"],
    "cost": ["Breakout", "Freeway", "MsPacman", "Pong", "Seaquest"],
    "ram": ["Freeway"],
}


def play(
    game: str, used: planvec.RolloutIW, seed: int, num_workers: int
) -> tuple[planvec.Episode, float, float]:
    """Play an episode; return it, the calls per decision, and the seconds."""
    started = time.perf_counter()
    env_id = f"ALE/{game}-v5"
    with planvec.make(env_id, num_workers=num_workers, info_keys=("lives",), env_kwargs=RULES) as env:
        played = planvec.run_episode(env, used, seed=seed, max_steps=MAX_STEPS)
    return played, played.num_env_steps / played.num_steps, time.perf_counter() - started


def play_long(games: list[str], seeds: list[int], num_workers: int) -> None:
    """Print the line of each game with the calls of 32 s per decision."""
    print("| game | published | mean | scores | calls published | calls used | time |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for game in games:
        target, calls = PUBLISHED[game]["riw_32s_score"], PUBLISHED[game]["riw_32s_calls"]
        # Many calls reach far, and without subtables soon find nothing new.
        changes = {"num_simulations": int(calls), "horizon": None, "subtables": True}
        used = planvec.RolloutIW(**{**PLANNER, **changes})
        scores, counts, seconds = [], [], 0.0
        for seed in seeds:
            episode, num_calls, took = play(game, used, seed, num_workers)
            scores.append(episode.total_return)
            counts.append(num_calls)
            seconds += took
        listed = " ".join(f"{score:,.0f}" for score in scores)
        print(
            f"| {game} | {target:,.1f} | {statistics.fmean(scores):,.1f} | {listed} | {calls:.0f} | "
            f"{statistics.fmean(counts):.0f} | {seconds:.0f} s |",
            flush=True,
        )


def compare_ideas(games: list[str], seeds: list[int], num_workers: int) -> None:
    """Print the scores of each game with one idea changed at a time."""
    print(f"| game | {' | '.join(IDEAS)} |")
    print(f"| --- |{' --- |' * len(IDEAS)}")
    for game in games:
        columns = []
        for changes in IDEAS.values():
            calls = int(PUBLISHED[game]["riw_0.5s_calls"])
            used = planvec.RolloutIW(num_simulations=calls, **{**PLANNER, **changes})
            scores = [play(game, used, seed, num_workers)[0].total_return for seed in seeds]
            columns.append(" ".join(f"{score:,.0f}" for score in scores))
        print(f"| {game} | {' | '.join(columns)} |", flush=True)


def play_on_ram(game: str, seed: int, num_decisions: int, num_workers: int) -> None:
    """Print what IW(1) on the RAM reaches: score, and per decision calls, expanded nodes and depth."""
    options = {**RULES, "frameskip": 5, "obs_type": "ram"}
    planner = planvec.IW(num_simulations=30_000, batch_size=64, subtables=False)
    started, rows = time.perf_counter(), []

    def report(step: planvec.planners.EpisodeStep) -> None:
        tree, depths = step.plan.search_data, step.plan.depth_histogram
        has_children = (tree.children[: tree.num_nodes] >= 0).any(axis=1)
        rows.append((step.plan.num_simulations, int(has_children.sum()), len(depths) - 1))
        if step.num_steps % 10 == 0:
            calls, expanded, depth = np.mean(rows[-10:], axis=0)
            took = time.perf_counter() - started
            print(
                f"| {game} | {step.num_steps} | {step.total_return:,.0f} | {calls:,.0f} | {expanded:,.0f} | "
                f"{depth:.0f} | {took:.0f} s |",
                flush=True,
            )

    print("| game | decisions | score | calls | nodes expanded | depth | time |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with planvec.make(f"ALE/{game}-v5", num_workers=num_workers, env_kwargs=options) as env:
        planvec.run_episode(env, planner, seed=seed, max_steps=num_decisions, callback=report)


def measure_cost(games: list[str]) -> None:
    """Print the time of the features of a screen beside that of a step, in one process, in turn."""
    print("| game | a step, us | encoding, us | marking, us | share of a step |")
    print("| --- | --- | --- | --- | --- |")
    for game in games:
        with planvec.PlanEnv(f"ALE/{game}-v5", env_kwargs=RULES) as env:
            features = Screens()
            table, memory = features.new_table(), np.zeros((1024, 2), np.int32)
            env.action_space.seed(0)
            before = features.encode(env.reset(seed=0).observation[None], memory)[0]
            table.mark(before, None, 0, True)
            times: list[list[float]] = [[], [], []]
            for depth in range(1, 200):
                marks = [time.perf_counter()]
                observation = env.step(env.action_space.sample())[0]
                marks.append(time.perf_counter())
                code = features.encode(observation[None], memory)[0]
                marks.append(time.perf_counter())
                table.mark(code, before, depth, False)
                marks.append(time.perf_counter())
                before = code
                for one, took in zip(times, np.diff(marks), strict=True):
                    one.append(took * 1e6)
        step, encoding, marking = (statistics.median(one) for one in times)
        share = (encoding + marking) / step
        print(f"| {game} | {step:.0f} | {encoding:.0f} | {marking:.0f} | {share:.0%} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=list(GAMES))
    parser.add_argument("--only", nargs="+", metavar="GAME", choices=list(PUBLISHED), help="these games")
    parser.add_argument("--seeds", nargs="+", type=int, help="default: 100, for `ideas` 7 and 8")
    parser.add_argument("--workers", type=int, default=2, help="any number gives the same scores; default: 2")
    arguments = parser.parse_args()
    games, num_workers = arguments.only or GAMES[arguments.what], arguments.workers
    if arguments.what == "cost":
        measure_cost(games)
    elif arguments.what == "ideas":
        compare_ideas(games, arguments.seeds or [7, 8], num_workers)
    elif arguments.what == "long":
        play_long(games, arguments.seeds or [100], num_workers)
    else:
        for game in games:
            for seed in arguments.seeds or [100]:
                play_on_ram(game, seed, 100, num_workers)


if __name__ == "__main__":
    main()
