"""Shows what an exploration has reached: a line after each round, and the result."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planvec.exploring import Archive


def print_reached(
    arguments: argparse.Namespace, archive: Archive, files: list[str], *, was_interrupted: bool
) -> None:
    """Print what was reached."""
    best = archive.best
    result = {
        "env_id": arguments.env_id,
        "seed": archive.origin.seed,
        "num_env_steps": archive.num_env_steps,
        "num_cells": archive.num_cells,
        "num_ends": int(archive.ended.sum()),
        "best_score": float(archive.scores[best]),
        "best_num_steps": int(archive.num_steps[best]),
        "interrupted": was_interrupted,
        "files": files,
    }
    if arguments.json:
        print(json.dumps(result))
        return
    print(f"{arguments.env_id}, seed {archive.origin.seed}: {archive.num_cells:,} cells", end="")
    print(
        f" after {archive.num_env_steps:,} environment steps, {result['num_ends']} of them ends of episodes"
    )
    actions = f", {archive.num_steps[best]:,} actions from the start" if _has_score(archive) else ""
    print(_score(archive) + actions)
    print("written: " + ", ".join(files))


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
