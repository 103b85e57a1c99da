"""Defines `planvec plan ENV_ID`, which plays one episode with a planner."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import planvec
from planvec.cli.arguments import INTERRUPTED, add_backend, add_environment, backend_of, environment, integer
from planvec.cli.messages import warn
from planvec.cli.planner_options import (
    add_planner,
    given_options,
    make_planner,
    planner_name,
)

if TYPE_CHECKING:
    from planvec.envs import BatchEnv
    from planvec.planners import Episode, EpisodeRecorder, Planner

__all__ = ["add_plan"]


def add_plan(commands: Any, argv: Sequence[str]) -> None:
    """Add the parser of `planvec plan`.

    Args:
        commands: The subparsers of `planvec`.
        argv: All arguments. They name the planner whose options are added.
    """
    parser = commands.add_parser(
        "plan",
        help="play one episode with a planner",
        description="Play one episode with a new plan at every step, and write the episode to files.",
    )
    add_environment(parser)
    parser.add_argument(
        "--num-workers",
        type=integer(0),
        metavar="N",
        help="number of workers, which does not change the results (default: one per core, here or in the "
        "cluster); 0 steps in this process, which is faster if a step takes microseconds",
    )
    add_backend(parser)
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="kill and replace a worker that needs longer for its part of a batch (default: no limit)",
    )
    parser.add_argument(
        "--seed",
        type=integer(0, 2**64 - 1),
        metavar="N",
        help="seed of the run (default: random, and printed)",
    )
    parser.add_argument(
        "--max-steps", type=integer(1), metavar="N", help="largest number of steps (default: no limit)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="directory for the files, which are overwritten (default: a new directory, "
        "runs/<env>-<planner>-seed<seed>)",
    )
    parser.add_argument("--json", action="store_true", help="print the summary as one JSON object")
    parser.add_argument("--no-progress", action="store_true", help="show no progress bar")
    if "plan" in argv:  # reading the options imports the planners
        add_planner(parser, planner_name(argv))
    parser.set_defaults(run=_run_plan)


def _run_plan(arguments: argparse.Namespace) -> int:
    import secrets

    from planvec.envs import make
    from planvec.planners import EpisodeRecorder

    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    planner = make_planner(arguments)
    source, make_kwargs = environment(arguments)
    with make(
        source,
        num_workers=arguments.num_workers,
        **backend_of(arguments),
        timeout=arguments.timeout,
        info_keys=planner.info_keys,
        codec=arguments.codec,
        env_kwargs=make_kwargs,
    ) as env:
        recorder = EpisodeRecorder(env.action_space, env.observation_space)
        interrupted = False
        # Before the episode, because an error after it would lose the episode.
        with _out_dir(arguments, seed) as directory:
            try:
                _play(env, planner, seed, arguments, recorder)
            except KeyboardInterrupt:
                if not recorder.num_steps:
                    raise
                interrupted = True
            episode = recorder.episode()
            summary = _summarise(arguments, planner, episode, env, interrupted)
            files = _write(directory, summary, episode, env)
    if arguments.json:
        print(json.dumps({**summary, "files": files}))
    else:
        _print_summary(summary, files, given_options(arguments))
    if interrupted:
        warn("planvec: interrupted; the steps played so far are written")
        return INTERRUPTED
    return 0


def _play(
    env: BatchEnv,
    planner: Planner,
    seed: int,
    arguments: argparse.Namespace,
    recorder: EpisodeRecorder,
) -> None:
    """Play the episode and show a progress bar on stderr."""
    import logging
    import time

    from tqdm import tqdm
    from tqdm.contrib.logging import logging_redirect_tqdm

    from planvec.planners import run_episode

    limits = [arguments.max_steps, env.spec and env.spec.max_episode_steps]
    total = min((limit for limit in limits if limit), default=None)
    started = time.perf_counter()
    shows_progress = not arguments.no_progress and sys.stderr is not None  # None if it is closed
    log = logging.getLogger("planvec")  # its messages are printed above the bar
    with (
        tqdm(total=total, unit="step", disable=not shows_progress, file=sys.stderr) as bar,
        logging_redirect_tqdm([log]),
    ):
        bar.set_description("preparing; kernels are compiled on first use and cached on disk")
        planner.prepare()
        bar.set_description()

        def advance(num_steps: int, total_return: float, num_env_steps: int) -> None:
            per_second = num_env_steps / (time.perf_counter() - started)
            bar.set_postfix_str(f"return {total_return:.2f}, {per_second:,.0f} env steps/s", refresh=False)
            bar.update(num_steps - bar.n)

        run_episode(
            env,
            planner,
            seed=seed,
            max_steps=arguments.max_steps,
            callback=advance,
            recorder=recorder,
        )


@contextlib.contextmanager
def _out_dir(arguments: argparse.Namespace, seed: int) -> Iterator[Path]:
    """Make the directory of a run. Remove it if nothing is written into it."""
    directory = _new_directory(arguments, seed)
    try:
        yield directory
    finally:
        with contextlib.suppress(OSError):  # it has files
            directory.rmdir()


def _new_directory(arguments: argparse.Namespace, seed: int) -> Path:
    """Return the directory that the user chose, or a new one: two runs at a time never get the same."""
    if arguments.out is not None:
        directory = Path(arguments.out)
        directory.mkdir(parents=True, exist_ok=True)
        return directory
    name = arguments.env_id.replace("/", "_").replace(":", "_")
    first = Path("runs") / f"{name}-{arguments.planner}-seed{seed}"
    again = (first.with_name(f"{first.name}-{number}") for number in itertools.count(2))
    first.parent.mkdir(parents=True, exist_ok=True)
    for directory in itertools.chain([first], again):
        with contextlib.suppress(FileExistsError):
            directory.mkdir()
            return directory
    raise AssertionError("there is always another name")


def _summarise(
    arguments: argparse.Namespace,
    planner: Planner,
    episode: Episode,
    env: BatchEnv,
    interrupted: bool,
) -> dict[str, Any]:
    import dataclasses

    import gymnasium
    import numpy as np

    return {
        "env_id": arguments.env_id,
        "planner": arguments.planner,
        "planner_options": {
            field.name: getattr(planner, field.name)
            for field in dataclasses.fields(planner)
            if not callable(getattr(planner, field.name))
        },
        "seed": episode.seed,
        "return": episode.total_return,
        "num_steps": episode.num_steps,
        "terminated": episode.terminated,
        "truncated": episode.truncated,
        "ended": _ended(episode, interrupted),
        "num_env_steps": episode.num_env_steps,
        "elapsed_seconds": episode.elapsed,
        "env_steps_per_second": episode.num_env_steps / episode.elapsed,
        "num_workers": env.num_workers,
        "workers_replaced": env.stats.restarts,
        "versions": {
            "planvec": planvec.__version__,
            "gymnasium": gymnasium.__version__,
            "numpy": np.__version__,
        },
    }


def _write(directory: Path, summary: dict[str, Any], episode: Episode, env: BatchEnv) -> list[str]:
    """Write the files of a run and return their paths.

    They are written under other names first: if the disk is full, files of an earlier run stay as they are.
    """
    from planvec.planners import save_trajectory

    summary_path, trajectory_path = directory / "summary.json", directory / "trajectory.npz"
    with tempfile.TemporaryDirectory(prefix=".planvec-", dir=directory) as temporary:
        new_summary, new_trajectory = Path(temporary, "summary.json"), Path(temporary, "trajectory.npz")
        save_trajectory(new_trajectory, episode, env.action_space, env.observation_space)
        new_summary.write_text(json.dumps(summary, indent=2) + "\n")
        new_trajectory.replace(trajectory_path)
        new_summary.replace(summary_path)
    return [str(summary_path), str(trajectory_path)]


def _ended(episode: Episode, interrupted: bool) -> str:
    """Return how the episode ended."""
    if interrupted:
        return "interrupted"
    if episode.terminated:
        return "terminated"
    return "truncated (time limit)" if episode.truncated else "stopped at --max-steps"


def _print_summary(summary: dict[str, Any], files: list[str], given: dict[str, Any]) -> None:
    options = ", ".join(f"{name}={value}" for name, value in given.items())
    workers = str(summary["num_workers"] or "none, stepped in this process")
    if summary["workers_replaced"]:
        workers += f"; {summary['workers_replaced']} replaced, which changes no result"
    lines = {
        "environment": summary["env_id"],
        "planner": f"{summary['planner']} ({options or 'with its defaults'})",
        "seed": summary["seed"],
        "return": f"{summary['return']:.2f}",
        "steps": f"{summary['num_steps']}, {summary['ended']}",
        "simulated": f"{summary['num_env_steps']:,} environment steps in "
        f"{summary['elapsed_seconds']:.1f} s, {summary['env_steps_per_second']:,.0f} per second",
        "workers": workers,
        "written": ", ".join(files),
    }
    for name, value in lines.items():
        print(f"{name + ':':<13}{value}")
