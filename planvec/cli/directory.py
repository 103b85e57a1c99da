"""The directory of a run: the one that the user chose, or a new one."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from planvec.cli.parser import UsageError

if TYPE_CHECKING:
    from planvec.runs import RunConfig, RunFiles


def default_directory(env_id: str, what: str, seed: int | None) -> Path:
    """Return where results go without `--out`."""
    name = re.sub(r"[^\w.-]+", "_", env_id).strip("_.")
    return Path("runs") / f"{name}-{what}-seed{seed}"


@contextlib.contextmanager
def run_files(arguments: argparse.Namespace, config: RunConfig) -> Iterator[RunFiles]:
    """Make the directory of a run, and try to write there. Remove it if nothing is written into it."""
    from planvec.exploring import holds_archive
    from planvec.runs import RunFiles

    is_new = arguments.out is None and arguments.resume is None
    directory = _new_directory(config) if is_new else arguments.resume or arguments.out
    files = RunFiles(directory)
    if files.config.exists() and arguments.resume is None and not arguments.overwrite:
        raise UsageError(
            f"--out: expected a directory without a run, got {directory}; go on with --resume {directory}, "
            "or replace it with --overwrite"
        )
    if holds_archive(directory) and arguments.resume is None:
        raise UsageError(
            f"--out: expected a directory of planvec plan, got {directory}, which holds an exploration"
        )
    try:
        files.check_writable()
    except OSError as error:
        option = "--resume" if arguments.resume is not None else "--out"
        raise UsageError(
            f"{option}: expected a directory to write to, got {directory}: {error.strerror}; choose another "
            "one with --out DIR"
        ) from error
    if arguments.resume is None:
        files.clear()
        config.write(files.config)
    try:
        yield files
    finally:
        if not (files.summary.exists() or files.checkpoint.exists()):
            files.clear()
            with contextlib.suppress(OSError):  # it has other files
                directory.rmdir()


def _new_directory(config: RunConfig) -> Path:
    """Return a new directory: two runs at a time never get the same."""
    first = default_directory(config.env_id, config.planner, config.seed)
    again = (first.with_name(f"{first.name}-{number}") for number in itertools.count(2))
    try:
        first.parent.mkdir(parents=True, exist_ok=True)
        for directory in itertools.chain([first], again):
            with contextlib.suppress(FileExistsError):
                directory.mkdir()
                return directory
    except OSError as error:
        raise UsageError(
            f"--out: expected to make {first} here, got: {error.strerror}; choose a directory with --out DIR"
        ) from error
    raise AssertionError("there is always another name")
