"""Defines `planvec plan ENV_ID`, which plays episodes with a planner and writes them to a directory."""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import inspect
import itertools
import json
import logging
import re
import secrets
import sys
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from planvec.cli.environments import (
    Pictures,
    add_environment,
    add_output,
    add_workers,
    codec_of,
    default_directory,
    env_source,
    workers_of,
)
from planvec.cli.parser import (
    COUNT,
    SEED,
    Parser,
    UsageError,
    add_flag,
    add_option,
    exit_status,
    one_of,
    warn,
)

if TYPE_CHECKING:
    from planvec.planners import Planner
    from planvec.runs import RunConfig, RunFiles, RunObserver

DEFAULT_PLANNER = "swarm"

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
    "HalfCheetah": Preset("icem", {"horizon": 30, "dt": 1, "noise_beta": 0.25}),
    "Hopper": Preset("icem", {"horizon": 80, "dt": 4, "noise_beta": 1.0}),
    "LunarLander": Preset("swarm", {"num_walkers": 32, "num_iterations": 10, "dt": (2, 10)}),
    "MiniGrid-DoorKey-5x5": _STATES_REPEAT,
    "MountainCar": Preset("swarm", {"num_walkers": 128, "num_iterations": 16, "dt": (2, 16)}),
    "MountainCarContinuous": Preset("icem", {"horizon": 100, "dt": 5, "noise_beta": 2.0}),
    "Pendulum": Preset("icem", {"horizon": 30}),
    "Taxi": _STATES_REPEAT,
}


def preset_of(env_id: str) -> Preset | None:
    """Return the preset of an environment; None if there is none."""
    return PRESETS.get(re.sub(r"-v\d+$", "", env_id.rpartition(":")[2]))


# -- The options of the planners, which `planvec.planners.option` declares -----------------------------------

_METAVARS = {str: "WORD", int: "N", float: "X", tuple: "A,B"}
# types that an option may have -> how the help and the error messages show them
_TYPE_NAMES = {str: "a word", int: "an integer", float: "a number", tuple: "two numbers A,B"}


def options_of(name: str) -> dict[str, dataclasses.Field[Any]]:
    """Return the options of a planner, such as "--num-walkers", and the fields that they set."""
    from planvec.planners import PLANNERS, on_command_line

    fields = dataclasses.fields(PLANNERS[name])
    return {f"--{field.name.replace('_', '-')}": field for field in fields if on_command_line(field)}


def make_planner(name: str, options: dict[str, Any]) -> Planner:
    """Return a planner."""
    from planvec.planners import PLANNERS

    try:
        one_of(PLANNERS)(name)
    except argparse.ArgumentTypeError as error:
        raise ValueError(f"planner: {error}") from None
    known = {field.name: option for option, field in options_of(name).items()}
    for field in options:
        if field not in known:
            raise ValueError(f"{field}: expected an option of the planner {name}: {', '.join(known)}")
    try:
        return PLANNERS[name](**options)
    except ValueError as error:
        field, colon, problem = str(error).partition(":")
        raise ValueError(f"{known[field]}:{problem}" if colon and field in known else error) from error


def add_planner(parser: argparse.ArgumentParser, name: str) -> None:
    """Add `--planner` and the options of one planner."""
    from planvec.planners import PLANNERS, help_text

    parser.add_argument(
        "--planner",
        type=one_of(PLANNERS),
        metavar="NAME",
        help=f"{', '.join(PLANNERS)} (default: {DEFAULT_PLANNER}); its options are listed below",
    )
    others = ", ".join(other for other in PLANNERS if other != name)
    parser.epilog = f"The options of {others}: planvec plan --planner NAME --help"
    planner_class, options = PLANNERS[name], options_of(name)
    first_paragraph = (inspect.getdoc(planner_class) or "").partition("\n\n")[0]
    group = parser.add_argument_group(f"--planner {name}", " ".join(first_paragraph.split()).rstrip("."))
    hints = typing.get_type_hints(planner_class)
    shown = {field.name: option for option, field in options.items()}
    for option, field in options.items():
        value_types = set(_value_types(hints[field.name]))
        default = ",".join(map(str, field.default)) if isinstance(field.default, tuple) else field.default
        text = re.sub(r"`([^`]*)`", lambda code: shown.get(code[1], code[1]), help_text(field))
        text += "" if default is None else f" (default: {default})"
        how: dict[str, Any]
        if value_types >= {bool, str}:  # a flag, or names
            how = {"nargs": "?", "const": True, "type": _names, "metavar": "NAME,..."}
        elif bool in value_types:
            how = {"action": argparse.BooleanOptionalAction}
        else:
            metavar = "|".join(name for value_type, name in _METAVARS.items() if value_type in value_types)
            how = {"type": _parser_of(value_types), "metavar": metavar}
        group.add_argument(option, dest=field.name, default=None, help=text.replace("%", "%%"), **how)


def _value_types(hint: object) -> list[Any]:
    """Return the types that an annotation allows; `str` for the words of a Literal."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return [value_type for part in typing.get_args(hint) for value_type in _value_types(part)]
    if origin is typing.Literal:
        return [str]
    return [] if hint is type(None) else [origin or hint]


def _names(text: str) -> tuple[str, ...]:
    """Return names that are separated by commas."""
    return tuple(part.strip() for part in text.split(","))


def _parser_of(value_types: set[Any]) -> Callable[[str], Any]:
    """Return an argparse type that accepts Python literals of these types, and words where `str` is one."""

    def parse(text: str) -> Any:
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            value = text
        allowed = tuple(value_types | ({int} if float in value_types else set()))
        if isinstance(value, bool) or not isinstance(value, allowed):
            names = [name for value_type, name in _TYPE_NAMES.items() if value_type in value_types]
            raise argparse.ArgumentTypeError(f"expected {' or '.join(names)}, got {text!r}")
        return value

    return parse


# -- The settings of a run: from the command line, and from a file -------------------------------------------


def read_ahead(argv: Sequence[str], flags: set[str]) -> tuple[dict[str, Any], str]:
    """Return the settings of the file that `--config` or `--resume` names, and the name of the planner."""
    # The options of the planner can be added to the parser only when it is known. `flags`: options without
    # a value.
    from planvec.errors import PlanvecError
    from planvec.planners import PLANNERS
    from planvec.runs import RunFiles, read_settings

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--planner", nargs="?")
    settings: dict[str, Any] = {}
    try:
        known = parser.parse_known_args(list(argv))[0]
        if known.resume is not None:
            settings = read_settings(RunFiles(known.resume).config)
        elif known.config is not None:
            settings = read_settings(known.config)
    except argparse.ArgumentError:
        return {}, DEFAULT_PLANNER  # reported when all arguments are parsed
    except OSError as error:
        option, hint = "--resume" if known.resume is not None else "--config", ""
        if known.resume is not None and known.resume.is_dir():
            from planvec.exploring import holds_archive

            hint = "; nothing was played there yet: begin again"
            if holds_archive(known.resume):
                hint = "; it holds an exploration, with which planvec explore goes on"
        raise UsageError(f"{option}: expected {error.filename}: {error.strerror}{hint}") from error
    except PlanvecError as error:
        raise UsageError(str(error)) from error
    name = known.planner or settings.get("planner", DEFAULT_PLANNER)
    if "--preset" in argv and known.planner is None:
        words = [
            word
            for before, word in zip(["", *argv], argv, strict=False)
            if not before.startswith("--") or "=" in before or before in flags
        ]
        presets = [preset_of(word) for word in [*words, str(settings.get("env_id"))]]
        name = next((preset.planner for preset in presets if preset is not None), name)
    return settings, name if name in list(PLANNERS) else DEFAULT_PLANNER  # a file may hold any value


def config_of(arguments: argparse.Namespace) -> RunConfig:
    """Return the settings of the run."""
    from planvec.runs import RunConfig, RunFiles

    settings = arguments.settings  # those of the file
    asked = {one.name: getattr(arguments, one.name, None) for one in dataclasses.fields(RunConfig)}
    given = {name: value for name, value in asked.items() if value is not None}
    preset_options: dict[str, Any] = {}
    if arguments.preset:
        if arguments.resume is not None:
            raise UsageError("--preset: --resume takes the settings of the run; leave --preset out")
        env_id = given.get("env_id", settings.get("env_id", ""))
        preset, planner = preset_of(str(env_id)), arguments.planner or settings.get("planner")
        if preset is None:
            raise UsageError(f"--preset: expected one of {', '.join(PRESETS)}, got {env_id or 'no ENV_ID'}")
        if planner not in (None, preset.planner):
            raise UsageError(
                f"--preset: that of {env_id} is of the planner {preset.planner}, got {planner} as the "
                "planner of the command line or of the file; leave one of them out"
            )
        given["planner"], preset_options = preset
    fields = [field.name for field in options_of(arguments.planner_of_options).values()]
    options = {name: getattr(arguments, name) for name in fields if getattr(arguments, name) is not None}
    if "make" in given:
        given["make"] = dict(given["make"])
    if arguments.resume is not None:
        if arguments.out is not None:
            raise UsageError("--out: --resume writes into the directory of the run; leave --out out")
        names = [*given, *options]
        if names and given != {"env_id": settings.get("env_id")}:
            option = f"--{names[0].replace('_', '-')}" if names[0] != "env_id" else "ENV_ID"
            raise UsageError(f"{option}: --resume takes the settings of the run; leave {option} out")
        return RunConfig.read(RunFiles(arguments.resume).config)
    own = settings.get("planner_options", {}) if arguments.planner is None else {}
    if isinstance(own, dict):  # else `RunConfig` tells
        own = {**preset_options, **own, **options}
    defaults = {"planner": DEFAULT_PLANNER, "seed": secrets.randbits(32)}
    settings = {**defaults, **settings, **given, "planner_options": own}
    if "env_id" not in settings:
        raise UsageError("ENV_ID: expected the name of an environment, such as CartPole-v1; see planvec envs")
    return RunConfig(**settings)


def add_plan(commands: argparse._SubParsersAction[Parser], argv: Sequence[str]) -> None:
    """Add the parser of `planvec plan`."""
    parser = commands.add_parser(
        "plan",
        help="play episodes with a planner",
        description="Play episodes with a new plan at every step, and write them to a directory.",
    )
    add_environment(parser, optional=True)
    group = parser.add_argument_group("run")
    text = "seed of the first episode; the next ones have the following seeds (default: random, printed)"
    add_option(group, "--seed", "N", SEED, text)
    add_option(group, "--episodes", "N", COUNT, "number of episodes (default: 1)")
    add_option(group, "--max-steps", "N", COUNT, "largest number of steps of an episode (default: no limit)")
    text = f"a planner with settings that suit the environment: {', '.join(PRESETS)}; options of the planner "
    add_flag(group, "--preset", text + "come first")
    text = (
        "TOML or JSON with any of these settings, such as the run.json of another run; options of the "
        "command line come first"
    )
    add_option(group, "--config", "FILE", Path, text)
    add_option(group, "--resume", "RUN", Path, "directory of a run that was interrupted, to go on with it")
    add_workers(parser)
    group = add_output(
        parser,
        directory="directory of the run (default: a new directory, runs/<env>-<planner>-seed<seed>)",
        plot="also draw the episode: episode.png in the run",
        video="also film the episode, as .gif or .mp4 (a path of its own, not in the run)",
    )
    add_flag(group, "--overwrite", "replace the run in --out DIR")
    text = "also write an interactive page: the frame, the search and the actions at each step"
    add_option(group, "--report", "FILE.html", Path, text)
    add_flag(group, "--tensorboard", "also write scalars for TensorBoard")
    if "plan" in argv:  # reading the options imports the planners
        flags = {name for name, action in parser._option_string_actions.items() if action.nargs == 0}
        settings, name = read_ahead(argv, flags)
        add_planner(parser, name)
        parser.set_defaults(settings=settings, planner_of_options=name)
    parser.set_defaults(run=_run_plan)


# -- The directory of a run: the one that the user chose, or a new one ---------------------------------------


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
    try:
        first.parent.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            directory = first.with_name(f"{first.name}-{number}") if number > 1 else first
            with contextlib.suppress(FileExistsError):
                directory.mkdir()
                return directory
    except OSError as error:
        raise UsageError(
            f"--out: expected to make {first} here, got: {error.strerror}; choose a directory with --out DIR"
        ) from error
    raise AssertionError("there is always another name")


# -- The command itself --------------------------------------------------------------------------------------


def _run_plan(arguments: argparse.Namespace) -> int:
    # here, since they import planners
    from tqdm.contrib.logging import logging_redirect_tqdm

    from planvec.cli.summary import ProgressBar, RunSummary, planner_hint, print_summary
    from planvec.envs import make, make_env
    from planvec.runs import StepLog, TensorBoardLog, play_run, read_trajectory, replay

    config, resume = config_of(arguments), arguments.resume is not None
    planner = make_planner(config.planner, config.planner_options)
    source, env_kwargs = env_source(config.env_id, config.make, config.wrappers)
    with contextlib.closing(make_env(source, env_kwargs=env_kwargs)) as looked_at:  # before workers start
        planner.check_space(looked_at.action_space)
        limit = None if looked_at.spec is None else looked_at.spec.max_episode_steps
    pictures = Pictures(arguments, config.env_id, config.codec, source, env_kwargs)
    workers = {**workers_of(arguments), "codec": codec_of(config.codec), "info_keys": planner.info_keys}
    status = 0
    with (
        contextlib.closing(pictures),
        run_files(arguments, config) as files,
        make(source, **workers, env_kwargs=env_kwargs) as env,
    ):
        observers: list[RunObserver] = [StepLog(files.steps)]
        if pictures.recorder is not None:
            observers.append(pictures.recorder)
        if arguments.tensorboard:
            observers.append(TensorBoardLog(files.directory))
        if not arguments.no_progress and sys.stderr is not None:  # None if it is closed
            total = min((one for one in (config.max_steps, limit) if one), default=None)
            observers.append(ProgressBar(total, config.episodes, planner.num_planned))
        if not resume:  # not earlier: an earlier run stays if this one cannot begin
            files.clear()
            config.write(files.config)
        is_chosen = arguments.planner is not None or arguments.preset or config.planner != DEFAULT_PLANNER
        if not is_chosen and not arguments.json:
            warn(planner_hint(env))
        summary = RunSummary(config, planner, env, files, resume)
        num_played = 0
        if summary.is_complete:
            warn(f"planvec: the run in {files.directory} is complete already")
            files.checkpoint.unlink(missing_ok=True)
            if pictures.recorder is not None:
                raise UsageError(
                    "--report: the run is complete, and its decisions are not kept; begin a new run"
                )
            for index in range(config.episodes if pictures.is_any else 0):
                played = replay(env, read_trajectory(files.trajectory(index)))
                pictures.of_episode(index, played.episode, config, files.directory)
        else:
            try:
                with logging_redirect_tqdm([logging.getLogger("planvec")]):  # messages above the bar
                    for observer in observers:
                        observer.prepare()
                    planner.prepare()
                    for index, episode in play_run(env, planner, config, files, observers, resume=resume):
                        is_over = episode.terminated or episode.truncated
                        # Pictures come first: a run with a summary has them.
                        pictures.of_episode(index, episode, config, files.directory)
                        summary.add(index, episode, not is_over and episode.num_steps != config.max_steps)
                        num_played += 1
            except KeyboardInterrupt as error:
                if not num_played:
                    raise
                status = exit_status(error)
            finally:
                for observer in observers:
                    observer.close()
        described = summary.to_dict()
    written = [*files.written(), *pictures.made]
    if arguments.json:
        print(json.dumps({**described, "files": [str(path) for path in written]}))
    else:
        print_summary(described, files.directory, written, config.planner_options)
    if status:
        warn(f"planvec: interrupted; the steps so far are written; go on with --resume {files.directory}")
    return status
