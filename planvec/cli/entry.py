"""Parses the command line and runs a command, such as `planvec plan CartPole-v1`.

A command has two functions in a module of `planvec.cli`. `add_NAME(commands, argv)` adds its parser, whose
default of `run` is the other one: it takes the arguments, runs the command and returns the exit status. Slow
imports are in the second one, so that `planvec --help` is fast. To add a command, write both functions, and
add a line to `_COMMANDS`.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Callable, Sequence

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
    warn,
)
from planvec.cli.plan import add_plan, options_of

_COMMANDS: dict[str, Callable[..., None]] = {
    "plan": add_plan,
    "explore": add_explore,
    "replay": add_replay,
    "check": add_check,
    "bench": add_bench,
    "envs": add_envs,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    # Returns the exit status: 0; 1 if a check failed; 2 after an error; 128 plus its number after a signal.
    argv = sys.argv[1:] if argv is None else argv
    with interrupts():
        arguments = None
        try:
            arguments = _parse(argv)
            status: int = arguments.run(arguments)
            return status
        except Exception as error:
            if arguments is not None and arguments.traceback and not isinstance(error, UsageError):
                traceback.print_exc()
            if "--json" in argv:
                print(json.dumps({"error": one_line(error)}))
            else:
                warn(f"planvec: error: {one_line(error)}")
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
    for add in _COMMANDS.values():
        add(commands, argv)
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
