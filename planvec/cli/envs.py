"""Lists the environments that are saved exactly, and the costs: `planvec envs`."""

from __future__ import annotations

import argparse
import json
from typing import Any

__all__ = ["add_envs"]


def add_envs(verbs: Any) -> None:
    """Add the verb `envs`."""
    parser = verbs.add_parser(
        "envs",
        help="list families of environments, how they are saved, and what that costs",
        description="List the families of environments that were checked, how their states are saved, "
        "whether that is exact, and what it costs.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and no more")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from planvec.codecs import measured, text_table

    print(json.dumps(measured()) if arguments.json else text_table())
    return 0
