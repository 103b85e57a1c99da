"""Make the pictures of the documentation:

python docs/make_pictures.py            # all of them, about a minute; needs the extras "all"
python docs/make_pictures.py planners   # one of them
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image, ImageDraw, ImageFont

import planvec
from planvec import plots, video

IMAGES = Path(__file__).parent / "images"


def save(axes: Any, name: str, dpi: int = 100) -> None:
    """Save a figure by one of its axes."""
    figure = np.atleast_1d(np.asarray(axes, object)).flat[0].figure
    figure.savefig(IMAGES / f"{name}.png", dpi=dpi)
    plt.close(figure)


def tree() -> None:
    """A search tree on CartPole."""
    with planvec.PlanEnv("CartPole-v1") as env:
        planner = planvec.MCTS(num_simulations=400, rollout_horizon=20)
        save(plots.plot_tree(planner.plan(env, env.reset(seed=0).state, seed=0), max_nodes=200), "tree")


def swarm() -> None:
    """The moves of a swarm on Pendulum."""
    with planvec.PlanEnv("Pendulum-v1") as env:
        plan = planvec.Swarm(num_walkers=96, num_iterations=24).plan(env, env.reset(seed=3).state, seed=0)
        save(plots.plot_swarm(plan), "swarm")


def wave() -> None:
    """The moves of a swarm that plans a whole episode of Pendulum."""
    with planvec.PlanEnv("Pendulum-v1") as env:
        plan = planvec.SwarmWave(num_walkers=256, dt=(2, 8)).plan(env, env.reset(seed=3).state, seed=0)
        save(plots.plot_swarm(plan), "wave")


def sequences() -> None:
    """One decision of each shooting planner on Pendulum, with about 360 sequences each."""
    planners = (
        planvec.RandomShooting(num_trajectories=360),
        planvec.CEM(num_trajectories=120, num_iterations=3),
        planvec.ICEM(144, 30, dt=1, num_iterations=3, num_elites=10, noise_beta=2.0),
        planvec.MPPI(120, 30, dt=1, num_iterations=3, noise_beta=2.0),
    )
    _, axes = plt.subplots(2, 2, figsize=(9, 6), sharex=True, sharey=True, layout="constrained")
    with planvec.PlanEnv("Pendulum-v1") as env:
        state = env.reset(seed=3).state
        for planner, ax in zip(planners, axes.flat, strict=True):
            plots.plot_sequence(planner.plan(env, state, seed=0), ax=ax)
            ax.set_title(f"{type(planner).__name__}: {ax.get_title()}", fontsize=10)
    save(axes, "sequences", dpi=90)


def episode() -> None:
    """An episode of Pendulum."""
    with planvec.PlanEnv("Pendulum-v1") as env:
        save(
            plots.plot_episode(planvec.run_episode(env, planvec.ICEM(horizon=30), seed=1)), "episode", dpi=80
        )


def fan() -> None:
    """Eight futures of MsPacman."""
    with planvec.make("ALE/MsPacman-v5", render_mode="rgb_array", num_workers=2) as env:
        state = env.reset(seed=0).state
        states = np.repeat(state, 8)
        states = env.step_batch(np.zeros(8, int), states, dt=65).new_states  # the game begins
        total = np.zeros(8)
        actions = np.random.default_rng(2).integers(env.action_space.n, size=(12, 8))
        for row in actions:
            out = env.step_batch(row, states, dt=5)
            states, total = out.new_states, total + out.rewards
        save(plots.plot_fan(env, states, titles=[f"{r:.0f} points" for r in total], num_columns=4), "fan")


def alphazero() -> None:
    """What a network has learned of connect four, by the file of `examples/alphazero.py --curve`."""
    matches = json.loads((Path(__file__).parent / "alphazero.json").read_text())
    minutes = [match["minutes"] for match in matches]
    _, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
    in_all = set.intersection(*map(set, matches)) - {"minutes", "games"}
    for name in [key for key in matches[0] if key in in_all]:
        scores = [(match[name][0] + match[name][1] / 2) / sum(match[name]) for match in matches]
        ax.plot(minutes, [100 * score for score in scores], "o-", label=f"against {name}")
    ax.set(xlabel="minutes of learning on 2 cores", ylabel="points won, %", ylim=(0, 102))
    games = ax.secondary_xaxis(
        "top",
        functions=(
            lambda x: x * matches[-1]["games"] / minutes[-1],
            lambda x: x * minutes[-1] / matches[-1]["games"],
        ),
    )
    games.set_xlabel("games played")
    ax.grid(alpha=0.3)
    ax.legend(loc="lower right")
    save(ax, "alphazero")


def planners() -> None:
    """Three planners at work, side by side."""
    films = []
    for env_id, planner, max_steps, title in (
        ("MountainCar-v0", planvec.Swarm(num_walkers=128, num_iterations=16, dt=(2, 16)), 200, "Swarm"),
        ("CartPole-v1", planvec.MCTS(num_simulations=128, dt=4, rollout_horizon=80), 140, "MCTS"),
        ("Pendulum-v1", planvec.ICEM(horizon=30), 140, "ICEM"),
    ):
        with planvec.make(env_id, num_workers=0) as env:
            played = planvec.run_episode(env, planner, seed=100, max_steps=max_steps)
        print(env_id, played)
        with planvec.PlanEnv(env_id, render_mode="rgb_array") as env:
            films.append((f"{title}, {env_id}", video.episode_frames(env, played), played))
    length = max(len(frames) for _, frames, _ in films) + 15
    frames = [_row(films, index) for index in range(0, length, 2)]
    video.write_video(IMAGES / "planners.gif", frames, fps=25)


def _row(films: list[Any], index: int) -> Any:
    """Return one picture of all films at a step."""
    width, height, label = 250, 170, 22
    canvas = Image.new("RGB", (width * len(films), height + label), "white")
    draw = ImageDraw.Draw(canvas)
    font = ImageFont.load_default(size=13)
    for column, (title, frames, played) in enumerate(films):
        step = min(index, len(frames) - 1)
        frame = Image.fromarray(frames[step])
        frame.thumbnail((width - 6, height))
        left = column * width + (width - frame.width) // 2
        canvas.paste(frame, (left, label + (height - frame.height) // 2))
        total = float(played.rewards[:step].sum())
        draw.text((column * width + 6, 3), f"{title}: return {total:.0f}", "black", font)
    return np.asarray(canvas.quantize(48, dither=Image.Dither.NONE).convert("RGB"))


PICTURES: dict[str, Callable[[], None]] = {
    "tree": tree,
    "swarm": swarm,
    "wave": wave,
    "sequences": sequences,
    "episode": episode,
    "fan": fan,
    "alphazero": alphazero,
    "planners": planners,
}


def main() -> None:
    """Make the pictures that the arguments name, or all."""
    for name in sys.argv[1:] or PICTURES:
        PICTURES[name]()
        print(name)


if __name__ == "__main__":
    main()
