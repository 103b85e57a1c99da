"""Defines `planvec check ENV_ID`, which checks whether an environment is saved and restored exactly."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import Any

from planvec.cli.environments import add_backend, add_environment, backend_of, codec_of, given_env
from planvec.cli.parser import FAILED, add_json, integer


def add_check(commands: Any) -> None:
    """Add the parser of `planvec check`."""
    parser = commands.add_parser(
        "check",
        help="check whether an environment is saved and restored exactly",
        description="Take random steps, restore every state in another instance and in another process, step "
        "several branches from some of the states, and compare every bit with the environment stepped "
        "without planvec. The exit status is 0 only if everything is exact.",
    )
    add_environment(parser)
    for option, default, text in (
        ("--steps", 500, "number of random steps"),
        ("--restores", 20, "number of states from which to step several branches"),
        ("--children", 8, "number of branches from each of these states"),
    ):
        described = f"{text} (default: {default})"
        parser.add_argument(option, type=integer(1), default=default, metavar="N", help=described)
    parser.add_argument(
        "--seed",
        type=integer(0, 2**32 - 1),
        default=0,
        metavar="N",
        help="seed of the resets, the actions and the order of the states (default: 0)",
    )
    parser.add_argument(
        "--info-keys", nargs="*", metavar="KEY", help="the info keys to compare (default: all)"
    )
    add_backend(parser)
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from planvec.checking import check_env

    source, make_kwargs = given_env(arguments)
    report = check_env(
        source,
        num_steps=arguments.steps,
        seed=arguments.seed,
        num_restores=arguments.restores,
        num_children=arguments.children,
        codec=codec_of(arguments.codec),
        info_keys=arguments.info_keys,
        env_kwargs=make_kwargs,
        **backend_of(arguments),
    )
    report = dataclasses.replace(report, name=arguments.env_id)
    print(json.dumps(report.to_dict()) if arguments.json else report)
    return 0 if report.exact else FAILED
