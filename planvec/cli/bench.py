"""Defines `planvec bench ENV_ID`, which measures how many workers pay on this machine."""

from __future__ import annotations

import argparse
import json
from typing import Any

from planvec.cli.environments import add_environment, codec_of, given_env
from planvec.cli.parser import add_json, integer


def add_bench(commands: Any) -> None:
    """Add the parser of `planvec bench`."""
    parser = commands.add_parser(
        "bench",
        help="measure how many workers and rows pay on this machine",
        description="Step batches of random actions in this process, with workers, and with a compiled "
        "kernel if there is one, all in turn. Print environment steps per second, and what is fastest.",
    )
    add_environment(parser)
    parser.add_argument(
        "--rows",
        nargs="+",
        type=integer(1),
        default=[1, 16, 256, 4096],
        metavar="N",
        help="rows per call (default: 1 16 256 4096)",
    )
    parser.add_argument(
        "--workers",
        nargs="+",
        type=integer(1),
        metavar="N",
        help="numbers of workers (default: 1, 2, 4, ... up to the number of cores)",
    )
    parser.add_argument(
        "--seconds", type=float, default=20.0, metavar="S", help="time of all measurements (default: 20)"
    )
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from planvec.checking import measure_throughput

    source, env_kwargs = given_env(arguments)
    throughput = measure_throughput(
        source,
        rows=arguments.rows,
        num_workers=arguments.workers,
        seconds=arguments.seconds,
        codec=codec_of(arguments.codec),
        env_kwargs=env_kwargs,
    )
    print(json.dumps(throughput.to_dict()) if arguments.json else f"{arguments.env_id}\n{throughput}")
    return 0
