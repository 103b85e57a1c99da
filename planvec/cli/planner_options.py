"""The options of the planners on the command line: read off their fields and docstrings."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["PLANNERS", "add_planner", "given_options", "make_planner", "planner_name"]

PLANNERS = {
    "swarm": "Swarm",
    "swarm-wave": "SwarmWave",
    "mcts": "MCTS",
    "random-shooting": "RandomShooting",
    "cem": "CEM",
    "icem": "ICEM",
    "mppi": "MPPI",
}
"""Name on the command line -> public name."""
_DEFAULT = "swarm"


def planner_name(argv: Sequence[str]) -> str:
    """Which planner the arguments ask for: its options are not known before."""
    scan = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    scan.add_argument("--planner", nargs="?", default=_DEFAULT)
    name = scan.parse_known_args(list(argv))[0].planner
    return name if name in PLANNERS else _DEFAULT


def add_planner(parser: argparse.ArgumentParser, name: str) -> None:
    """Add `--planner`, and the options of that planner; those of the others are listed below the help."""
    parser.add_argument("--planner", choices=list(PLANNERS), default=_DEFAULT, help=f"default: {_DEFAULT}")
    _add_options(parser, name)
    parser.epilog = "\n".join(_listed(other) for other in PLANNERS if other != name)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def make_planner(arguments: argparse.Namespace) -> Any:
    """The planner that was asked for.

    Raises:
        ValueError: An option out of range, by the name of its argument.
    """
    return _class_of(arguments.planner)(**given_options(arguments))


def given_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of the planner that differ from its defaults."""
    names = [field.name for field in dataclasses.fields(_class_of(arguments.planner))]
    return {name: getattr(arguments, name) for name in names if getattr(arguments, name, None) is not None}


def _class_of(name: str) -> Any:
    import planvec

    return getattr(planvec, PLANNERS[name])


def _add_options(parser: argparse.ArgumentParser, name: str) -> None:
    kind = _class_of(name)
    group = parser.add_argument_group(f"--planner {name}", _summary(kind))
    described, hints = _described_fields(kind), typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        leaves = set(_leaves(hints[field.name]))
        if not leaves & {int, float, str, bool, tuple}:
            continue  # a function, which a command line cannot give
        text = f"{described[field.name]} (default: {_shown(field.default)})".replace("%", "%%")
        option = f"--{field.name.replace('_', '-')}"
        if bool in leaves:
            flags = argparse.BooleanOptionalAction
            group.add_argument(option, dest=field.name, action=flags, default=None, help=text)
            continue
        metavar = "A,B" if leaves == {tuple} else "X" if float in leaves else "N" if int in leaves else "WORD"
        group.add_argument(option, dest=field.name, type=_reader(leaves), metavar=metavar, help=text)


def _listed(name: str) -> str:
    """The help of a planner that was not asked for."""
    other = argparse.ArgumentParser(add_help=False, usage=argparse.SUPPRESS)
    _add_options(other, name)
    return other.format_help()


def _leaves(hint: Any) -> list[Any]:
    """The types that a value may have; `str` for the words of a Literal."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return [leaf for part in typing.get_args(hint) for leaf in _leaves(part)]
    if origin is typing.Literal:
        return [str]
    return [] if hint is type(None) else [origin or hint]


def _reader(leaves: set[Any]) -> Callable[[str], Any]:
    """An argparse type: a Python literal of one of the types, or a word."""

    def value(text: str) -> Any:
        try:
            read = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            read = text
        wanted = tuple(leaves | ({int} if float in leaves else set()))
        if isinstance(read, bool) or not isinstance(read, wanted):
            names = " or ".join(
                sorted({tuple: "A,B", int: "an integer", float: "a number"}.get(k, "a word") for k in leaves)
            )
            raise argparse.ArgumentTypeError(f"expected {names}, got {text!r}")
        return read

    return value


def _shown(default: Any) -> str:
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default).lower()


def _summary(kind: Any) -> str:
    return " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split()).rstrip(".")


def _described_fields(kind: Any) -> dict[str, str]:
    """What the docstrings of a class and its bases say of each argument."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        arguments = (inspect.cleandoc(each.__doc__ or "")).partition("\nArgs:\n")[2].partition("\nRaises:")[0]
        for name, text in re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", arguments, re.MULTILINE):
            if not text.startswith("As of"):  # a class that is a base
                found[name] = " ".join(text.split()).replace("`", "").rstrip(".")
    return found
