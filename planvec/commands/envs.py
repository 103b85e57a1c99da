"""`planvec envs`: which environments are saved exactly, and what it costs."""

from __future__ import annotations

import argparse
from typing import Any

__all__ = ["add_envs"]


def add_envs(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser("envs", help="list families of environments and how they are saved")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    return 0
