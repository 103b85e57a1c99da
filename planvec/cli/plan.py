"""Defines `planvec plan ENV_ID`, which plays episodes with a planner and writes them to a directory."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planvec.cli.directory import run_files
from planvec.cli.environments import add_environment, add_workers, codec_of, env_source, workers_of
from planvec.cli.interrupts import exit_status
from planvec.cli.messages import warn
from planvec.cli.parser import UsageError, add_json, integer
from planvec.cli.pictures import Pictures, add_pictures
from planvec.cli.planner_options import (
    DEFAULT_PLANNER,
    add_planner,
    make_planner,
    planner_name,
)
from planvec.cli.presets import PRESETS
from planvec.cli.settings import config_of, default_planner, settings_of_file
from planvec.cli.summary import RunSummary, print_summary

if TYPE_CHECKING:
    from planvec.envs import BatchEnv, Makeable
    from planvec.planners import Planner
    from planvec.runs import RunConfig, RunFiles, RunObserver


def add_plan(commands: Any, argv: Sequence[str]) -> None:
    """Add the parser of `planvec plan`."""
    parser = commands.add_parser(
        "plan",
        help="play episodes with a planner",
        description="Play episodes with a new plan at every step, and write them to a directory.",
    )
    add_environment(parser, optional=True)
    _add_settings(parser)
    add_workers(parser)
    _add_output(parser)
    if "plan" in argv:  # reading the options imports the planners
        settings = settings_of_file(argv)
        flags = {name for name, action in parser._option_string_actions.items() if action.nargs == 0}
        name = planner_name(argv, default_planner(argv, settings, flags))
        add_planner(parser, name)
        parser.set_defaults(settings=settings, planner_of_options=name)
    parser.set_defaults(run=_run_plan)


def _add_settings(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("run")
    group.add_argument(
        "--seed",
        type=integer(0, 2**64 - 1),
        metavar="N",
        help="seed of the first episode; the next ones have the following seeds (default: random, printed)",
    )
    group.add_argument("--episodes", type=integer(1), metavar="N", help="number of episodes (default: 1)")
    group.add_argument(
        "--max-steps",
        type=integer(1),
        metavar="N",
        help="largest number of steps of an episode (default: no limit)",
    )
    group.add_argument(
        "--preset",
        action="store_true",
        help=f"a planner with settings that suit the environment: {', '.join(PRESETS)}; options of the "
        "planner come first",
    )
    group.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="TOML or JSON with any of these settings, such as the run.json of another run; options of the "
        "command line come first",
    )
    group.add_argument(
        "--resume", type=Path, metavar="RUN", help="directory of a run that was interrupted, to go on with it"
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="directory of the run (default: a new directory, runs/<env>-<planner>-seed<seed>)",
    )
    group.add_argument("--overwrite", action="store_true", help="replace the run in --out DIR")
    add_pictures(group)
    group.add_argument("--tensorboard", action="store_true", help="also write scalars for TensorBoard")
    add_json(group)
    group.add_argument("--no-progress", action="store_true", help="show no progress bar")


def _run_plan(arguments: argparse.Namespace) -> int:
    from planvec.cli.hints import planner_hint
    from planvec.envs import make

    config = config_of(arguments)
    planner = make_planner(config.planner, config.planner_options)
    source, env_kwargs = env_source(config.env_id, config.make, config.wrappers)
    limit = _look_at(source, env_kwargs, planner)
    pictures = Pictures(arguments, config, source, env_kwargs)
    with (
        contextlib.closing(pictures),
        run_files(arguments, config) as files,
        make(
            source,
            **workers_of(arguments),
            info_keys=planner.info_keys,
            codec=codec_of(config.codec),
            env_kwargs=env_kwargs,
        ) as env,
    ):
        total = min((one for one in (config.max_steps, limit) if one), default=None)
        observers = _observers(arguments, planner, files, pictures, total, config.episodes)
        if (
            arguments.planner is None
            and not arguments.preset
            and config.planner == DEFAULT_PLANNER
            and not arguments.json
        ):
            warn(planner_hint(env))
        summary = RunSummary(config, planner, env, files, arguments.resume is not None)
        if summary.is_complete:
            warn(f"planvec: the run in {files.directory} is complete already")
            _finish(env, config, files, pictures)
            status = 0
        else:
            status = _play(arguments, env, planner, config, files, pictures, observers, summary)
        described = summary.to_dict()
    written = [*files.written(), *pictures.made]
    if arguments.json:
        print(json.dumps({**described, "files": [str(path) for path in written]}))
    else:
        print_summary(described, files.directory, written, config.planner_options)
    if status:
        warn(f"planvec: interrupted; the steps so far are written; go on with --resume {files.directory}")
    return status


def _look_at(source: Makeable, env_kwargs: dict[str, Any], planner: Planner) -> int | None:
    """Return the time limit of an environment, after a look at it before any worker starts."""
    from planvec.envs import make_env

    env = make_env(source, env_kwargs=env_kwargs)
    try:
        planner.check_space(env.action_space)
        return None if env.spec is None else env.spec.max_episode_steps
    finally:
        env.close()


def _play(
    arguments: argparse.Namespace,
    env: BatchEnv,
    planner: Planner,
    config: RunConfig,
    files: RunFiles,
    pictures: Pictures,
    observers: list[RunObserver],
    summary: RunSummary,
) -> int:
    """Play the episodes, and return 0, or the exit status after an interrupt."""
    from planvec.runs import play_run

    num_played = 0
    try:
        with _logging_above_the_bar():
            for observer in observers:
                observer.prepare()
            planner.prepare()
            resume = arguments.resume is not None
            for index, episode in play_run(env, planner, config, files, observers, resume=resume):
                is_over = episode.terminated or episode.truncated or episode.num_steps == config.max_steps
                pictures.make(index, episode, files)  # first: a run with a summary has its pictures
                summary.add(index, episode, not is_over)
                num_played += 1
    except KeyboardInterrupt as error:
        if not num_played:
            raise
        return exit_status(error)
    finally:
        for observer in observers:
            observer.close()
    return 0


def _finish(env: BatchEnv, config: RunConfig, files: RunFiles, pictures: Pictures) -> None:
    """Make the pictures of a run that is complete, from its trajectories."""
    from planvec.runs import read_trajectory, replay

    files.checkpoint.unlink(missing_ok=True)
    if pictures.recorder is not None:
        raise UsageError("--report: the run is complete, and its decisions are not kept; begin a new run")
    if pictures.is_any:
        for index in range(config.episodes):
            pictures.make(index, replay(env, read_trajectory(files.trajectory(index))).episode, files)


def _observers(
    arguments: argparse.Namespace,
    planner: Planner,
    files: RunFiles,
    pictures: Pictures,
    total: int | None,
    num_episodes: int,
) -> list[RunObserver]:
    """Return what follows the run."""
    from planvec.cli.progress import ProgressBar
    from planvec.runs import StepLog, TensorBoardLog

    observers: list[RunObserver] = [StepLog(files.steps)]
    if pictures.recorder is not None:
        observers.append(pictures.recorder)
    if arguments.tensorboard:
        observers.append(TensorBoardLog(files.directory))
    if not arguments.no_progress and sys.stderr is not None:  # None if it is closed
        observers.append(ProgressBar(total, num_episodes, planner.num_planned))
    return observers


@contextlib.contextmanager
def _logging_above_the_bar() -> Iterator[None]:
    """Print planvec's messages above the progress bar."""
    import logging

    from tqdm.contrib.logging import logging_redirect_tqdm

    with logging_redirect_tqdm([logging.getLogger("planvec")]):
        yield
