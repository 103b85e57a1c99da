"""The settings of a run: from the command line, and from a file."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planvec.cli.directory import holds_exploration
from planvec.cli.parser import UsageError
from planvec.cli.planner_options import DEFAULT_PLANNER, given_options, planner_name
from planvec.cli.presets import PRESETS, Preset, preset_of

if TYPE_CHECKING:
    from planvec.runs import RunConfig

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
