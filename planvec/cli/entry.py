"""Parses the command line and runs a command, such as `planvec plan CartPole-v1`.

Every command is a module of `planvec.cli` with a function that adds its parser and a function that runs it.
Slow imports are in the second one, so that `planvec --help` is fast.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence

import planvec
from planvec.cli.check import add_bench, add_check, add_envs, add_replay
from planvec.cli.explore import add_explore
from planvec.cli.parser import (
    USAGE_ERROR,
    Parser,
    UsageError,
    did_you_mean,
    exit_status,
    interrupts,
    one_line,
    print_error,
    warn,
)
from planvec.cli.plan import add_plan
from planvec.cli.planner_options import options_of

_COMMANDS = ("plan", "explore", "replay", "check", "bench", "envs")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    # Returns the exit status: 0; 1 if a check failed; 2 after an error; 128 plus its number after a signal.
    argv = sys.argv[1:] if argv is None else argv
    as_json = "--json" in argv
    with interrupts():
        try:
            arguments = _parse(argv)
            try:
                status: int = arguments.run(arguments)
            except UsageError:
                raise
            except Exception as error:
                if getattr(arguments, "traceback", False):
                    traceback.print_exc()
                print_error(one_line(error), as_json=as_json)
                return USAGE_ERROR
            return status
        except UsageError as error:
            print_error(str(error), as_json=as_json)
            return USAGE_ERROR
        except KeyboardInterrupt as error:
            warn(f"planvec: {getattr(error, 'text', 'interrupted')}")
            return exit_status(error)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the arguments."""
    if argv and not argv[0].startswith("-") and argv[0] not in _COMMANDS:
        hint = did_you_mean(argv[0], _COMMANDS) or f"; to plan, type: planvec plan {argv[0]}"
        raise UsageError(f"expected a command ({', '.join(_COMMANDS)}), got {argv[0]!r}{hint}")
    parser = Parser(
        prog="planvec", description="Plan in Gymnasium environments by stepping their states in batches."
    )
    parser.add_argument("--version", action="version", version=f"planvec {planvec.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    if not argv:
        parser.print_usage(sys.stderr)
        raise UsageError(f"expected a command ({', '.join(_COMMANDS)}); see planvec --help")
    add_plan(commands, argv)
    for add in (add_explore, add_replay, add_check, add_bench, add_envs):
        add(commands)
    for command in commands.choices.values():
        command.add_argument("--traceback", action="store_true", help="show the whole traceback of an error")
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        raise UsageError(_unknown(arguments.command, unknown[0], commands.choices[arguments.command]))
    return arguments


def _unknown(command: str, argument: str, parser: Parser) -> str:
    """Return the message for an argument that the command does not know."""
    option = argument.partition("=")[0]
    if not option.startswith("-"):
        return f"expected no further argument, got {argument!r}; see {parser.prog} --help"
    known = [*parser._option_string_actions]
    if command == "plan":
        from planvec.planners import PLANNERS

        options = {name: options_of(name) for name in PLANNERS}
        owners = [name for name, own in options.items() if option.replace("--no-", "--", 1) in own]
        if owners:
            name = parser.get_default("planner_of_options")
            listed = " and ".join([", ".join(owners[:-1]), owners[-1]] if len(owners) > 1 else owners)
            return f"{option} belongs to --planner {listed}, and the planner is {name}"
        known += [known_option for own in options.values() for known_option in own]
    return f"unknown option {option}{did_you_mean(option, known)}"
