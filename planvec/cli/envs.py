"""Defines `planvec envs`, which lists the families of environments and what saving their states costs."""

from __future__ import annotations

import argparse
import json
from typing import Any


def add_envs(commands: Any) -> None:
    """Add the parser of `planvec envs`."""
    parser = commands.add_parser(
        "envs",
        help="list the families of environments, how their states are saved, and what that costs",
        description="List the families of environments that were checked: how their states are saved, "
        "whether they are restored exactly, the size of a state, and how long saving and restoring take.",
    )
    parser.add_argument("--json", action="store_true", help="print the table as one JSON object")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from planvec.codecs import measured, text_table

    print(json.dumps(measured()) if arguments.json else text_table())
    return 0
