"""Defines `planvec plan ENV_ID`, which plays episodes with a planner and writes them to a directory."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from planvec.cli.directory import holds_exploration, run_files
from planvec.cli.environments import (
    Pictures,
    add_environment,
    add_pictures,
    add_workers,
    codec_of,
    env_source,
    workers_of,
)
from planvec.cli.parser import UsageError, add_json, exit_status, integer, warn
from planvec.cli.planner_options import (
    DEFAULT_PLANNER,
    add_planner,
    given_options,
    make_planner,
    planner_name,
)

if TYPE_CHECKING:
    from planvec.cli.summary import RunSummary
    from planvec.envs import BatchEnv, Makeable
    from planvec.planners import Planner
    from planvec.runs import RunConfig, RunFiles, RunObserver

# -- Settings of planners that suit well-known tasks, for `planvec plan ENV_ID --preset`.
#
# That of Acrobot was chosen on seeds from 1000 on, which no table of scores uses. `MCTS` has its defaults
# where states repeat. The others are settings of the table of scores. `benchmarks/tasks.py --presets` plays
# all.


class Preset(NamedTuple):
    """A planner with its settings."""

    planner: str  # its name on the command line
    options: dict[str, Any]  # its fields that differ from the defaults


_STATES_REPEAT = Preset("mcts", {"max_env_steps": 1000})
# name of an environment without module and version -> its preset
PRESETS: dict[str, Preset] = {
    "Acrobot": Preset("swarm-wave", {"num_walkers": 100_000, "dt": (3, 6), "reward_scale": 2.0}),
    "CartPole": Preset("mcts", {"max_env_steps": 1000}),
    "CliffWalking": _STATES_REPEAT,
    "HalfCheetah": Preset("icem", {"noise_beta": 0.25}),
    "Hopper": Preset("icem", {"horizon": 80, "dt": 4}),
    "LunarLander": Preset("swarm", {"num_walkers": 32, "num_iterations": 10, "dt": (2, 10)}),
    "MiniGrid-DoorKey-5x5": _STATES_REPEAT,
    "MountainCar": Preset("swarm", {"num_walkers": 128, "num_iterations": 16, "dt": (2, 16)}),
    "MountainCarContinuous": Preset("icem", {"horizon": 100, "dt": 5, "noise_beta": 2.0}),
    "Pendulum": Preset("icem", {}),
    "Taxi": _STATES_REPEAT,
}


def preset_of(env_id: str) -> Preset | None:
    """Return the preset of an environment; None if there is none."""
    return PRESETS.get(re.sub(r"-v\d+$", "", env_id.rpartition(":")[2]))


# -- The settings of a run: from the command line, and from a file -------------------------------------------

# arguments that determine the trajectory, and are the fields of `RunConfig`
_SETTINGS = ("env_id", "make", "wrappers", "codec", "planner", "seed", "episodes", "max_steps")


def settings_of_file(argv: Sequence[str]) -> dict[str, Any]:
    """Return the settings of the file that `--config` or `--resume` names; {} without one."""
    from planvec.errors import PlanvecError
    from planvec.runs import RunFiles, read_settings

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--resume", type=Path)
    try:
        known = parser.parse_known_args(list(argv))[0]
        if known.resume is not None:
            return read_settings(RunFiles(known.resume).config)
        return {} if known.config is None else read_settings(known.config)
    except argparse.ArgumentError:
        return {}  # reported when all arguments are parsed
    except OSError as error:
        option = "--resume" if known.resume is not None else "--config"
        hint = ""
        if known.resume is not None and known.resume.is_dir():
            hint = "; nothing was played there yet: begin again"
            if holds_exploration(known.resume):
                hint = "; it holds an exploration, with which planvec explore goes on"
        raise UsageError(f"{option}: expected {error.filename}: {error.strerror}{hint}") from error
    except PlanvecError as error:
        raise UsageError(str(error)) from error


def default_planner(argv: Sequence[str], settings: dict[str, Any], flags: set[str]) -> str:
    """Return the name of the planner that is taken without `--planner`."""
    if "--preset" in argv:
        words = [
            word
            for before, word in zip(["", *argv], argv, strict=False)
            if not before.startswith("-") or "=" in before or before in flags
        ]
        for word in [*words, str(settings.get("env_id"))]:
            preset = preset_of(word)
            if preset is not None:
                return preset.planner
    name: str = settings.get("planner", DEFAULT_PLANNER)
    return name


def _preset(env_id: str | None, planner: str | None) -> Preset:
    """Return the preset of an environment."""
    preset = preset_of(env_id or "")
    if preset is None:
        raise UsageError(f"--preset: expected one of {', '.join(PRESETS)}, got {env_id or 'no ENV_ID'}")
    if planner not in (None, preset.planner):
        raise UsageError(
            f"--preset: that of {env_id} is of the planner {preset.planner}, got {planner} as the planner of "
            "the command line or of the file; leave one of them out"
        )
    return preset


def config_of(arguments: argparse.Namespace) -> RunConfig:
    """Return the settings of the run."""
    import secrets

    from planvec.runs import RunConfig, RunFiles, with_tuples

    given = {name: getattr(arguments, name) for name in _SETTINGS if getattr(arguments, name) is not None}
    preset_options: dict[str, Any] = {}
    if arguments.preset:
        if arguments.resume is not None:
            raise UsageError("--preset: --resume takes the settings of the run; leave --preset out")
        env_id = given.get("env_id", arguments.settings.get("env_id"))
        own_planner = arguments.planner or arguments.settings.get("planner")
        given["planner"], preset_options = _preset(env_id, own_planner)
    planner = given.get("planner", arguments.settings.get("planner", DEFAULT_PLANNER))
    options = given_options(arguments, planner_name(["--planner", planner]))
    if "make" in given:
        given["make"] = dict(given["make"])
    if arguments.resume is not None:
        if arguments.out is not None:
            raise UsageError("--out: --resume writes into the directory of the run; leave --out out")
        names = [*given, *options]
        if names and given != {"env_id": arguments.settings["env_id"]}:
            option = f"--{names[0].replace('_', '-')}" if names[0] != "env_id" else "ENV_ID"
            raise UsageError(f"{option}: --resume takes the settings of the run; leave {option} out")
        return RunConfig.read(RunFiles(arguments.resume).config)
    own = arguments.settings.get("planner_options", {}) if arguments.planner is None else {}
    settings = {
        "planner": planner,
        "seed": secrets.randbits(32),
        **arguments.settings,
        **given,
        "planner_options": {**preset_options, **with_tuples(own), **options},
    }
    if "env_id" not in settings:
        raise UsageError("ENV_ID: expected the name of an environment, such as CartPole-v1; see planvec envs")
    return RunConfig(**settings)


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
    from planvec.cli.summary import RunSummary, planner_hint, print_summary  # here: it imports planners
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
    from planvec.cli.summary import ProgressBar
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
