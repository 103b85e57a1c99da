"""Adds the options of the planners to the command line. `planvec.planners.option` declares them."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from planvec.cli.parser import one_of

if TYPE_CHECKING:
    from planvec.planners import Planner

DEFAULT_PLANNER = "swarm"
_METAVARS = {str: "WORD", int: "N", float: "X", tuple: "A,B"}
# types that an option may have -> how the help and the error messages show them
_TYPE_NAMES = {str: "a word", int: "an integer", float: "a number", tuple: "two numbers A,B"}


def options_of(name: str) -> dict[str, dataclasses.Field[Any]]:
    """Return the options of a planner, such as "--num-walkers", and the fields that they set."""
    from planvec.planners import PLANNERS, on_command_line

    fields = dataclasses.fields(PLANNERS[name])
    return {f"--{field.name.replace('_', '-')}": field for field in fields if on_command_line(field)}


def make_planner(name: str, options: dict[str, Any]) -> Planner:
    """Return a planner."""
    from planvec.planners import PLANNERS

    try:
        one_of(PLANNERS)(name)
    except argparse.ArgumentTypeError as error:
        raise ValueError(f"planner: {error}") from None
    known = {field.name: option for option, field in options_of(name).items()}
    for field in options:
        if field not in known:
            raise ValueError(f"{field}: expected an option of the planner {name}: {', '.join(known)}")
    try:
        return PLANNERS[name](**options)
    except ValueError as error:
        field, colon, problem = str(error).partition(":")
        raise ValueError(f"{known[field]}:{problem}" if colon and field in known else error) from error


def given_options(arguments: argparse.Namespace, name: str) -> dict[str, Any]:
    """Return the options that were given for a planner."""
    given = {field.name: getattr(arguments, field.name) for field in options_of(name).values()}
    return {name: value for name, value in given.items() if value is not None}


def add_planner(parser: argparse.ArgumentParser, name: str) -> None:
    """Add `--planner` and the options of one planner."""
    from planvec.planners import PLANNERS, help_text

    parser.add_argument(
        "--planner",
        type=one_of(PLANNERS),
        metavar="NAME",
        help=f"{', '.join(PLANNERS)} (default: {DEFAULT_PLANNER}); its options are listed below",
    )
    others = ", ".join(other for other in PLANNERS if other != name)
    parser.epilog = f"The options of {others}: planvec plan --planner NAME --help"
    planner_class, options = PLANNERS[name], options_of(name)
    first_paragraph = (inspect.getdoc(planner_class) or "").partition("\n\n")[0]
    group = parser.add_argument_group(f"--planner {name}", " ".join(first_paragraph.split()).rstrip("."))
    hints = typing.get_type_hints(planner_class)
    shown = {field.name: option for option, field in options.items()}
    for option, field in options.items():
        value_types = set(_value_types(hints[field.name]))
        default = ",".join(map(str, field.default)) if isinstance(field.default, tuple) else field.default
        text = re.sub(r"`([^`]*)`", lambda code: shown.get(code[1], code[1]), help_text(field))
        text += "" if default is None else f" (default: {default})"
        how: dict[str, Any]
        if value_types >= {bool, str}:  # a flag, or names
            how = {"nargs": "?", "const": True, "type": _names, "metavar": "NAME,..."}
        elif bool in value_types:
            how = {"action": argparse.BooleanOptionalAction}
        else:
            metavar = "|".join(name for value_type, name in _METAVARS.items() if value_type in value_types)
            how = {"type": _parser_of(value_types), "metavar": metavar}
        group.add_argument(option, dest=field.name, default=None, help=text.replace("%", "%%"), **how)


def _value_types(hint: Any) -> list[Any]:
    """Return the types that an annotation allows; `str` for the words of a Literal."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return [value_type for part in typing.get_args(hint) for value_type in _value_types(part)]
    if origin is typing.Literal:
        return [str]
    return [] if hint is type(None) else [origin or hint]


def _names(text: str) -> tuple[str, ...]:
    """Return names that are separated by commas."""
    return tuple(part.strip() for part in text.split(","))


def _parser_of(value_types: set[Any]) -> Callable[[str], Any]:
    """Return an argparse type that accepts Python literals of these types, and words where `str` is one."""

    def parse(text: str) -> Any:
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            value = text
        allowed = tuple(value_types | ({int} if float in value_types else set()))
        if isinstance(value, bool) or not isinstance(value, allowed):
            names = [name for value_type, name in _TYPE_NAMES.items() if value_type in value_types]
            raise argparse.ArgumentTypeError(f"expected {' or '.join(names)}, got {text!r}")
        return value

    return parse
