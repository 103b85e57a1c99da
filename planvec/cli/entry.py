"""Parses the command line and runs a command, such as `planvec plan CartPole-v1`.

Every command is a module of `planvec.cli` with a function that adds its parser and a function that runs it.
Slow imports are in the second one, so that `planvec --help` is fast.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import planvec
from planvec.cli.arguments import INTERRUPTED, USAGE_ERROR
from planvec.cli.check import add_check
from planvec.cli.envs import add_envs
from planvec.cli.messages import warn
from planvec.cli.plan import add_plan

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: The arguments after the name of the program; None takes those of the process.

    Returns:
        The exit status: 0, 1 if a check failed, 2 after an error, 130 after an interrupt.
    """
    argv = sys.argv[1:] if argv is None else argv
    arguments = _parser(argv).parse_args(argv)
    try:
        from gymnasium.error import Error as GymnasiumError

        from planvec.errors import PlanvecError

        try:
            status: int = arguments.run(arguments)
        except (PlanvecError, GymnasiumError, OSError, ModuleNotFoundError, ValueError) as error:
            warn(f"planvec: error: {_one_line(error)}")
            return USAGE_ERROR
        except (TypeError, RuntimeError) as error:  # wrong arguments of an environment or a wrapper
            warn(f"planvec: error: {type(error).__name__}: {_one_line(error)}")
            return USAGE_ERROR
        return status
    except KeyboardInterrupt:
        warn("planvec: interrupted")
        return INTERRUPTED


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="planvec", description="Plan in Gymnasium environments by stepping their states in batches."
    )
    parser.add_argument("--version", action="version", version=f"planvec {planvec.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    add_plan(commands, argv)
    add_check(commands)
    add_envs(commands)
    return parser
