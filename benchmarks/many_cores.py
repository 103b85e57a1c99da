"""Measure planvec on a machine with many cores, and a GPU if there is one. At most 5 minutes.

    python benchmarks/many_cores.py                        # all cores; extras atari, mujoco, openspiel, torch
    python benchmarks/many_cores.py --workers 2 --quick    # a short run

1. Workers beside as many independent processes, each of which steps for itself: what the machine gives.
2. How much of a function and of steps overlaps in a search (`networks.py` explains it), with waits of 2 ms;
   and, with PyTorch, for a residual network on screens of MsPacman, on the GPU if there is one.
3. Self-play of connect four (`examples/alphazero.py`): simulations a second with 64 and 256 games at once.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import platform
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from figures import Figures, add_plain
from networks import overlap

import planvec
from planvec.backends import default_num_workers, num_cores
from planvec.checking.throughput import Alone, measure_alone, measure_rate

TASKS: dict[str, tuple[str, dict[str, Any], tuple[int, ...]]] = {
    "CartPole": ("CartPole-v1", {}, (128, 512, 2048)),
    "HalfCheetah": ("HalfCheetah-v5", {}, (32, 128, 512)),
    "MsPacman RAM": ("ALE/MsPacman-v5", {"obs_type": "ram"}, (16, 64, 256)),
}
TURNS = 3


def has(module: str) -> bool:
    """Return whether a package is installed."""
    return importlib.util.find_spec(module) is not None


def throughput(figures: Figures, counts: list[int], seconds: float) -> None:
    """Print the share of independent processes that workers reach, by rows a worker."""
    figures.text("1. What workers reach of as many independent processes, by rows of each worker a call\n")
    for name, (env_id, kwargs, rows) in TASKS.items():
        if env_id.startswith("ALE") and not has("ale_py"):
            continue
        options: dict[str, Any] = {"env_kwargs": kwargs, "compiled": False, "info_keys": ()}
        figures.text(f"| workers | {name}: {', '.join(map(str, rows))} rows | steps/s |")
        figures.text("| --- | --- | --- |")
        processes = [
            planvec.ExternalProcess(partial(Alone, env_id, {"env_kwargs": kwargs, "info_keys": ()}))
            for _ in range(max(counts))
        ]
        with contextlib.ExitStack() as stack:
            alone = [stack.enter_context(process) for process in processes]
            for count in counts:
                with planvec.make(env_id, num_workers=count, audit=0.0, **options) as env:
                    cells, rates = [], []
                    for row_count in rows:
                        shares, speeds = [], []
                        for _ in range(TURNS):
                            speeds.append(measure_rate(env, count * row_count, seconds))
                            shares.append(
                                speeds[-1] / measure_alone(alone[:count], count * row_count, seconds)
                            )
                        cells.append(f"{statistics.median(shares):.2f}")
                        rates.append(f"{statistics.median(speeds):,.0f}")
                        key = f"share/{name}/{count} workers/{row_count} rows/share"
                        figures.figure(key, statistics.median(shares))
                is_default = " (default)" if count == default_num_workers() else ""
                figures.text(f"| {count}{is_default} | {' / '.join(cells)} | {' / '.join(rates)} |")
        figures.text("")


def with_torch(figures: Figures, num_workers: int, quick: bool) -> None:
    """Print the speed of a search with a residual network, and how much of it overlaps."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"

    class Block(torch.nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(
                torch.nn.Conv2d(channels, channels, 3, padding=1),
                torch.nn.ReLU(),
                torch.nn.Conv2d(channels, channels, 3, padding=1),
            )

        def forward(self, x: Any) -> Any:
            return torch.relu(x + self.layers(x))

    body = torch.nn.Sequential(
        torch.nn.Conv2d(3, 96, 8, stride=8),
        torch.nn.ReLU(),
        *[Block(96) for _ in range(2 if quick else 10)],
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(96, 10),
    ).to(device)

    @torch.inference_mode()
    def evaluate(screens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x = torch.from_numpy(screens).to(device).permute(0, 3, 1, 2).float() / 255
        out = body(x).cpu().numpy()
        return out[:, 0], np.exp(out[:, 1:])

    def free(screens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(len(screens)), np.ones((len(screens), 9))

    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    figures.text(f"2b. A residual network ({name}) on screens of MsPacman, {num_workers} workers\n")
    figures.text("| in flight | simulations/s | steps | network | both | overlap |")
    figures.text("| --- | --- | --- | --- | --- | --- |")
    largest = 16 if quick else 256
    screens = np.random.default_rng(0).integers(256, size=(largest, 210, 160, 3), dtype=np.uint8)
    with planvec.make("ALE/MsPacman-v5", num_workers=num_workers, info_keys=()) as env:
        env.reset(seed=0)
        for batch_size in (16,) if quick else (16, 64, 256):
            options: dict[str, Any] = {"selection": "puct", "discount": 0.99, "reuse_tree": False}
            plan = partial(planvec.MCTS, (4 if quick else 16) * batch_size, batch_size, **options)
            sizes: list[int] = []

            def counted(screens: np.ndarray, sizes: list[int] = sizes) -> tuple[np.ndarray, np.ndarray]:
                sizes.append(len(screens))
                return evaluate(screens)

            plan(evaluate_fn=counted).plan(env, seed=0)  # warm
            times: list[tuple[float, float, float]] = []  # of the steps, the network and both
            for seed in range(1, 2 if quick else 4):
                sizes.clear()
                both = plan(evaluate_fn=counted).plan(env, seed=seed)
                steps = plan(evaluate_fn=free).plan(env, seed=seed).elapsed
                started = time.perf_counter()
                for size in sizes:
                    evaluate(screens[:size])
                times.append((steps, time.perf_counter() - started, both.elapsed))
            share = statistics.median(max(steps, network) / wall for steps, network, wall in times)
            cells = " | ".join(f"{1e3 * statistics.median(one):.0f} ms" for one in zip(*times, strict=True))
            speed = both.num_simulations / both.elapsed
            figures.text(f"| {batch_size} | {speed:,.0f} | {cells} | {share:.2f} |")
            figures.figure(f"network/{batch_size} in flight/share", share)
    figures.text("")


def self_play(figures: Figures, quick: bool) -> None:
    """Print the speed of self-play."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
    import alphazero
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    evaluator = alphazero.Evaluator(alphazero.Network(32, 2).to(device), device)
    figures.text(f"3. Self-play of connect four with 32 simulations a move, {device}\n")
    figures.text("| games at once | simulations/s | games/s |")
    figures.text("| --- | --- | --- |")
    with planvec.make("OpenSpiel/connect_four", num_workers=0, info_keys=()) as env:
        for num_games in (16,) if quick else (64, 256):
            generator = np.random.default_rng(0)
            alphazero.play_games(env, evaluator, 4, 8, generator)
            started = time.perf_counter()
            _, policies, _ = alphazero.play_games(env, evaluator, num_games, 32, generator)
            seconds = time.perf_counter() - started
            speeds = 32 * len(policies) / seconds, num_games / seconds
            figures.text(f"| {num_games} | {speeds[0]:,.0f} | {speeds[1]:.1f} |")
            figures.figure(f"self-play/{num_games} games/simulations per_s", speeds[0])


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cores = num_cores()
    counts = sorted({count for count in (4, 8, cores - 1, cores) if 1 < count <= cores} or {2})
    parser.add_argument("--workers", nargs="+", type=int, default=counts)
    parser.add_argument("--seconds", type=float, default=0.4, help="of each turn of the first table")
    parser.add_argument("--quick", action="store_true", help="a short run, to see that it runs")
    add_plain(parser)
    arguments = parser.parse_args()
    figures = Figures(arguments.plain)
    figures.text(
        f"{cores} cores ({platform.machine()}), default: {default_num_workers()} workers, of which at"
    )
    figures.text(f"most {default_num_workers()} step at once where steps do not wait\n")
    throughput(figures, arguments.workers, 0.05 if arguments.quick else arguments.seconds)
    workers = min(default_num_workers(), max(arguments.workers))
    figures.text("2. A function and steps that wait for 2 ms")
    overlap(figures, 1 if arguments.quick else 3, workers)
    figures.text("")
    if has("torch") and has("ale_py"):
        with_torch(figures, workers, arguments.quick)
    if has("torch") and has("pyspiel"):
        self_play(figures, arguments.quick)


if __name__ == "__main__":
    main()
