"""`planvec check ENV_ID`: whether an environment is saved and restored exactly."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import Any

from planvec.cli.arguments import FAILED, add_environment, environment, integer

__all__ = ["add_check"]


def add_check(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "check",
        help="find out whether an environment is restored exactly",
        description="Walk at random, restore every state in another instance and in another process, branch, "
        "and hold every bit against the environment stepped by itself. The exit status is 0 only if "
        "all is exact.",
    )
    add_environment(parser)
    parser.add_argument("--steps", type=integer(1), default=500, metavar="N", help="default: 500")
    parser.add_argument("--seed", type=integer(0, 2**32 - 1), default=0, metavar="N", help="default: 0")
    parser.add_argument("--restores", type=integer(1), default=20, metavar="N", help="default: 20")
    parser.add_argument(
        "--children", type=integer(1), default=8, metavar="N", help="of each restored state (default: 8)"
    )
    parser.add_argument(
        "--info-keys", nargs="*", metavar="KEY", help="the info keys that count (default: all)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and no more")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from planvec.checking import check_env

    source, make_kwargs = environment(arguments)
    report = check_env(
        source,
        num_steps=arguments.steps,
        seed=arguments.seed,
        num_restores=arguments.restores,
        num_children=arguments.children,
        codec=arguments.codec,
        info_keys=arguments.info_keys,
        env_kwargs=make_kwargs,
    )
    report = dataclasses.replace(report, name=arguments.env_id)
    print(json.dumps(report.to_dict()) if arguments.json else report)
    return 0 if report.exact else FAILED
