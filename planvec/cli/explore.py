"""Defines `planvec explore ENV_ID`, which fills an archive of cells and goes on where it was interrupted."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import secrets
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from planvec.cli.environments import (
    Pictures,
    add_environment,
    add_output,
    add_workers,
    codec_of,
    default_directory,
    given_env,
    object_named,
    workers_of,
)
from planvec.cli.parser import COUNT, SEED, Parser, UsageError, add_flag, add_option, late_interrupts, warn
from planvec.errors import InvalidBatchError

if TYPE_CHECKING:
    from planvec.exploring import Archive, CellFunction

# what a first interrupt prints; the exploration ends after the round
_HINT = b"\nplanvec: ending after this round; once more: at once, without what was not saved yet\n"


def _score(archive: Archive) -> str:
    """Return the best score as text."""
    if not _has_score(archive):
        return "no reward above 0, and no episode has ended yet"
    return f"best score {archive.scores[archive.best]:.6g}"


def _has_score(archive: Archive) -> bool:
    """Return whether the best score tells anything; where rewards are costs, it is 0 until an end."""
    return bool(archive.scores[archive.best] > 0 or archive.ended.any())


class ExplorationProgress:
    """Shows what was reached, in one line, after each round."""

    def __init__(self, is_shown: bool) -> None:
        self._is_shown = is_shown and sys.stderr is not None
        self._bar: Any = None
        self._started, self._steps = time.perf_counter(), -1

    def __call__(self, archive: Archive) -> None:
        """Show the line."""
        if not self._is_shown:
            return
        if self._bar is None:
            from tqdm import tqdm

            self._bar = tqdm(bar_format="{desc}", file=sys.stderr)
        if self._steps < 0:  # the first round says how fast the others are
            self._started, self._steps = time.perf_counter(), archive.num_env_steps
        seconds = time.perf_counter() - self._started
        rate = (archive.num_env_steps - self._steps) / seconds if seconds > 0.5 else 0
        speed = f", {rate:,.0f} steps/s" if rate else ""
        text = f"{archive.num_env_steps:,} steps, {archive.num_cells:,} cells, {_score(archive)}{speed}"
        self._bar.set_description_str(text)

    def close(self) -> None:
        """Leave the line on the screen."""
        if self._bar is not None:
            self._bar.close()


def add_explore(commands: argparse._SubParsersAction[Parser], argv: Sequence[str]) -> None:
    """Add the parser of `planvec explore`."""
    parser = commands.add_parser(
        "explore",
        help="explore from restored states, and keep the best state of each cell",
        description="Fill an archive of cells: choose a cell, restore its best state, and take random\n"
        "actions from there (Go-Explore's first phase). The same command with --out or --seed\n"
        "goes on with the archive that is there.",
    )
    add_environment(parser)
    limits = parser.add_argument_group("limits, of which at least one is needed")
    add_option(limits, "--max-env-steps", "N", COUNT, "environment steps in all")
    add_option(limits, "--max-rounds", "N", COUNT, "rounds in all")
    add_option(limits, "--max-seconds", "S", float, "seconds of this run")
    group = parser.add_argument_group("exploration")
    add_option(group, "--seed", "N", SEED, "seed (default: random, or that of the archive)")
    text = (
        "which observations are one cell: WIDTHxHEIGHTxLEVELS for images, such as 11x8x8; or "
        "module:function of your own, which turns [B, ...] observations into [B, F] integers"
    )
    add_option(group, "--cells", "CELLS", str, text)
    add_option(group, "--num-explorers", "N", COUNT, "explorers at work", 64)
    add_option(group, "--num-steps", "N", COUNT, "actions per round", 100)
    add_option(group, "--repeat", "P", float, "probability to repeat an action", 0.95)
    add_option(group, "--dt", "N", COUNT, "environment steps of an action", 1)
    add_flag(group, "--end-on-life-loss", "choose another cell when a life is lost (Atari)")
    add_workers(parser)
    add_output(
        parser,
        directory="directory of the archive (default: runs/<env>-explore-seed<seed>)",
        plot="also draw exploration.png into the directory",
        video="also film the trajectory to the best cell (.gif, .mp4)",
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from planvec.envs import make
    from planvec.exploring import ARCHIVE_FILE, Explorer, read_manifest
    from planvec.runs import RunFiles

    limits = {name: getattr(arguments, name) for name in ("max_env_steps", "max_rounds", "max_seconds")}
    if all(limit is None for limit in limits.values()):
        raise UsageError("expected a limit: --max-env-steps, --max-rounds or --max-seconds")
    names = ("num_explorers", "num_steps", "repeat", "dt", "end_on_life_loss")
    settings = {name: getattr(arguments, name) for name in names}
    explorer = Explorer(cells=_cells_of(arguments.cells), **settings)
    source, env_kwargs = given_env(arguments)
    seed = secrets.randbits(32) if arguments.seed is None and arguments.out is None else arguments.seed
    directory = arguments.out or default_directory(arguments.env_id, "explore", seed)
    if RunFiles(directory).config.exists():
        raise UsageError(
            f"--out: expected a directory of planvec explore, got {directory}, which holds a run of plan"
        )
    pictures = Pictures(arguments, arguments.env_id, arguments.codec, source, env_kwargs)
    progress = ExplorationProgress(not arguments.no_progress)
    info_keys = ("lives",) if arguments.end_on_life_loss else ()
    workers = {**workers_of(arguments), "codec": codec_of(arguments.codec), "info_keys": info_keys}
    with (
        contextlib.closing(progress),
        contextlib.closing(pictures),
        make(source, **workers, env_kwargs=env_kwargs) as env,
    ):
        with late_interrupts(_HINT) as signalled:

            def after_round(archive: Archive) -> bool:
                progress(archive)
                return signalled() is not None

            try:
                archive = explorer.run(env, seed=seed, path=directory, callback=after_round, **limits)
            except KeyboardInterrupt as error:
                with contextlib.suppress(OSError, InvalidBatchError):
                    num_steps = read_manifest(directory)["num_env_steps"]
                    error.text = (  # type: ignore[attr-defined]
                        f"interrupted; {directory} holds what was saved last, after {num_steps:,} "
                        f"environment steps; the same command with --out {directory} goes on with it"
                    )
                raise
            status = signalled() or 0
        progress.close()
        pictures.of_archive(archive, directory)
    best, num_ends = archive.best, int(archive.ended.sum())
    files = [str(path) for path in (directory / ARCHIVE_FILE, *pictures.made)]
    if arguments.json:
        result = {
            "env_id": arguments.env_id,
            "seed": archive.origin.seed,
            "num_env_steps": archive.num_env_steps,
            "num_cells": archive.num_cells,
            "num_ends": num_ends,
            "best_score": float(archive.scores[best]),
            "best_num_steps": int(archive.num_steps[best]),
            "interrupted": status != 0,
            "files": files,
        }
        print(json.dumps(result))
    else:
        print(
            f"{arguments.env_id}, seed {archive.origin.seed}: {archive.num_cells:,} cells after "
            f"{archive.num_env_steps:,} environment steps, {num_ends} of them ends of episodes"
        )
        actions = f", {archive.num_steps[best]:,} actions from the start" if _has_score(archive) else ""
        print(_score(archive) + actions)
        print("written: " + ", ".join(files))
    if status:
        warn(f"planvec: interrupted; the same command with --out {directory} goes on")
    return status


def _cells_of(text: str | None) -> CellFunction | None:
    """Return the function of cells that `--cells` names."""
    from planvec.exploring import Downscaled

    if text is None:
        return None
    if match := re.fullmatch(r"(\d+)x(\d+)x(\d+)", text):
        return Downscaled(*(int(number) for number in match.groups()))
    function: CellFunction | None = object_named("--cells", text)
    if not callable(function):
        raise UsageError(f"--cells: expected WIDTHxHEIGHTxLEVELS or module:function, got {text!r}")
    return function
