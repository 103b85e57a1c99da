"""Defines `planvec replay RUN`, which plays trajectories again and compares every bit."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planvec.cli.environments import codec_of, env_source
from planvec.cli.parser import FAILED, UsageError, add_json

if TYPE_CHECKING:
    from planvec.runs import RunFiles


def add_replay(commands: Any) -> None:
    """Add the parser of `planvec replay`."""
    parser = commands.add_parser(
        "replay",
        help="play a run again and compare every bit",
        description="Reset the environment of a run with its seed, take the actions of each trajectory, and "
        "compare states, observations, rewards and flags with the file. The exit status is 1 if any bit "
        "differs.",
    )
    parser.add_argument("directory", type=Path, metavar="RUN", help="the directory of a run")
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from planvec.envs import PlanEnv
    from planvec.runs import RunConfig, RunFiles, read_trajectory, replay

    files = RunFiles(arguments.directory)
    if not files.config.is_file():
        raise UsageError(
            f"RUN: expected the directory of a run, with a {files.config.name}, got {_described(files)}"
        )
    config = RunConfig.read(files.config)
    paths = files.trajectories()
    if not paths:
        raise UsageError(
            f"RUN: expected a directory with trajectories, got {files.directory}, which has none"
        )
    source, env_kwargs = env_source(config.env_id, config.make, config.wrappers)
    results = []
    with PlanEnv(source, codec=codec_of(config.codec), env_kwargs=env_kwargs, compiled=False) as env:
        for path in paths:
            played, differences = replay(env, read_trajectory(path))
            results.append((str(path), played.num_steps, played.total_return, differences))
    is_same = not any(differences for *_, differences in results)
    if arguments.json:
        names = ("file", "num_steps", "return", "differences")
        listed = [dict(zip(names, result, strict=True)) for result in results]
        print(json.dumps({"exact": is_same, "trajectories": listed}))
        return 0 if is_same else FAILED
    for file, num_steps, total_return, differences in results:
        outcome = "DIFFERS" if differences else "every bit is the same"
        print(f"{file}: {num_steps} steps, return {total_return:.2f}: {outcome}")
        for line in differences:
            print(f"  {line}")
    return 0 if is_same else FAILED


def _described(files: RunFiles) -> str:
    """Return a path that is no run, and what is wrong with it."""
    from planvec.runs import RunFiles

    path = files.directory
    if path.is_dir():
        return f"{path}, which has none"
    if not path.exists():
        return f"{path}, which does not exist"
    is_part = RunFiles(path.parent).config.is_file()
    return f"the file {path}" + (f"; pass its directory: planvec replay {path.parent}" if is_part else "")
