"""Explore Montezuma's Revenge, fill an archive with a million cells, and kill explorations.

    python benchmarks/exploring.py montezuma --minutes 40    # and at random for as many steps: twice that
    python benchmarks/exploring.py million                   # bytes, time to save and to load
    python benchmarks/exploring.py kill --runs 10            # resumed to the same bits

Cells of Montezuma's Revenge are the room, the place of the player in squares of 8 units, and what he
carries, read from the RAM ("domain knowledge" in Ecoffet et al. 2021). Four frames an action, no sticky
actions; a trajectory ends where a life is lost. Random exploration always begins at the start.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import planvec
from planvec import Archive, Explorer

GAME = "ALE/MontezumaRevenge-v5"
OPTIONS = {"obs_type": "ram", "frameskip": 4, "repeat_action_probability": 0.0}
ROOM, X, Y, ITEMS = 3, 42, 43, 65
"""Bytes of the RAM (Anand et al. 2019, "Unsupervised state representation learning in Atari")."""


def cells(observations: Any) -> NDArray[np.uint8]:
    """Return room, column, row and items, `[B, 4]`."""
    ram = np.asarray(observations)
    return np.stack([ram[:, ROOM], ram[:, X] // 8, ram[:, Y] // 8, ram[:, ITEMS]], axis=1)


def every_ram(observations: Any) -> NDArray[np.uint8]:
    """Return the whole RAM, so that nearly every state is a cell, `[B, 128]`."""
    return np.asarray(observations)


def only_the_start(archive: Archive) -> NDArray[np.float64]:
    """Return the weights of random exploration, `[N]`."""
    return (np.arange(archive.num_cells) == 0).astype(np.float64)


def rooms(keys: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the room of each cell, `[N]`."""
    return keys[:, 0]


def open_game() -> Any:
    """Open the game with two workers."""
    return planvec.make(GAME, num_workers=2, info_keys=("lives",), env_kwargs=OPTIONS)


def montezuma(arguments: argparse.Namespace) -> None:
    """Explore for some minutes, then at random for as many steps; print and draw both."""
    out = arguments.out or Path(tempfile.mkdtemp())
    explorer = Explorer(cells=cells, end_on_life_loss=True)
    at_random = Explorer(cells=cells, end_on_life_loss=True, num_steps=1000, weights=only_the_start)
    with open_game() as env:
        started, lines = time.perf_counter(), [0.0]

        def report(archive: Archive) -> None:
            minutes = (time.perf_counter() - started) / 60
            if minutes >= lines[-1]:
                lines.append(lines[-1] + max(1.0, arguments.minutes / 8))
                print_row(f"{minutes:.0f} minutes", archive)

        print("| | steps | cells | rooms | best score | its actions |\n| --- | --- | --- | --- | --- | --- |")
        explored = explorer.run(
            env, seed=0, max_seconds=60 * arguments.minutes, path=out / "explorer", callback=report
        )
        print_row("explorer", explored)
        drawn = at_random.run(env, seed=0, max_env_steps=explored.num_env_steps, path=out / "random")
        print_row("random", drawn)
        episode = explored.episode(env)
        print(f"the best trajectory again: {episode}\nthe archives are in {out}")
    if arguments.plot is not None:
        import matplotlib

        matplotlib.use("agg")
        from planvec.plots import plot_exploration

        named = {"Explorer": explored, "random from the start": drawn}
        axes = plot_exploration(named, groups=rooms, group_name="rooms")
        axes[0].set_title("Montezuma's Revenge, 2 cores", fontsize=10)
        axes[0].figure.savefig(arguments.plot, dpi=110)


def print_row(name: str, archive: Archive) -> None:
    """Print a line of the table."""
    best, num_rooms = archive.best, len(np.unique(archive.keys[:, 0]))
    print(
        f"| {name} | {archive.num_env_steps:,} | {archive.num_cells:,} | {num_rooms} | "
        f"{archive.scores[best]:,.0f} | {archive.num_steps[best]:,} |",
        flush=True,
    )


def million(arguments: argparse.Namespace) -> None:
    """Fill an archive with many cells of real states; print its size, and the time to save and load it."""
    target = arguments.cells
    with open_game() as env, tempfile.TemporaryDirectory() as directory:
        started = time.perf_counter()
        explorer = Explorer(cells=every_ram, repeat=0.5)
        archive = explorer.run(env, seed=0, callback=lambda archive: archive.num_cells >= target)
        took = time.perf_counter() - started
        print(
            f"{archive.num_cells:,} cells of {env.state_dtype.itemsize} bytes after "
            f"{archive.num_env_steps:,} steps in {took:.0f} s"
        )
        path = Path(directory) / "archive"
        seconds = [timed(lambda: archive.save(path))]
        size = sum(file.stat().st_size for file in path.iterdir())
        explorer_rounds = len(archive.history)
        print(
            f"saved in {seconds[0]:.1f} s: {size / 1e6:.0f} MB, {size / archive.num_cells:.0f} bytes a cell"
        )
        loaded: list[Archive] = []
        print(f"loaded in {timed(lambda: loaded.append(Archive.load(path, env))):.1f} s")
        assert not loaded[0].was_replayed
        started = time.perf_counter()
        more = explorer.run(env, path=path, max_rounds=explorer_rounds + 1)
        took = time.perf_counter() - started
        print(f"loaded, one round ({more.num_cells - archive.num_cells:,} new cells), saved: {took:.1f} s")


def timed(call: Any) -> float:
    """Return the seconds of a call."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def kill(arguments: argparse.Namespace) -> None:
    """Kill explorations at random moments, go on, and compare every bit."""
    generator = random.Random(arguments.seed)
    root, num_rounds = Path(tempfile.mkdtemp()), 60
    try:
        for number in range(arguments.runs):
            seed = generator.randrange(2**32)
            expected = carry_out(seed, num_rounds, None)
            path, kills = root / f"{number}", 0
            while True:
                command = [sys.executable, __file__, "child", "--seed", str(seed), "--out", str(path)]
                with subprocess.Popen([*command, "--runs", str(num_rounds)]) as child:
                    try:
                        child.wait(timeout=generator.uniform(2, 5))
                        break
                    except subprocess.TimeoutExpired:
                        child.send_signal(signal.SIGKILL)
                        kills += 1
            same = digest(expected) == digest(carry_out(seed, num_rounds, path))
            print(
                f"run {number + 1}: {kills} kills, {expected.num_cells:,} cells: "
                f"{'same bits' if same else 'DIFFERS'}",
                flush=True,
            )
    finally:
        shutil.rmtree(root)


def carry_out(seed: int, num_rounds: int, path: Path | None) -> Archive:
    """Explore some rounds."""
    with open_game() as env:
        explorer = Explorer(cells=cells, end_on_life_loss=True, num_explorers=16, num_steps=50)
        return explorer.run(env, seed=seed, max_rounds=num_rounds, path=path, save_seconds=0.2)


def digest(archive: Archive) -> list[bytes]:
    """Return all that an exploration determines."""
    every = np.arange(archive.num_cells)
    columns = [archive.keys, archive.scores, archive.num_steps, archive.num_visits, archive.num_choices]
    arrays = [*columns, archive.first_visits, archive.ended, archive.states(every), archive.history]
    return [array.tobytes() for array in [*arrays, *(archive.actions(cell) for cell in every)]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["montezuma", "million", "kill", "child"])
    parser.add_argument("--minutes", type=float, default=40.0)
    parser.add_argument("--cells", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="directory of the archives (default: a temporary one)")
    parser.add_argument("--plot", type=Path, metavar="FILE.png")
    arguments = parser.parse_args()
    if arguments.what == "child":
        carry_out(arguments.seed, arguments.runs, arguments.out)
    else:
        {"montezuma": montezuma, "million": million, "kill": kill}[arguments.what](arguments)


if __name__ == "__main__":
    main()
