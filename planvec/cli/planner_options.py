"""Adds the options of the planners to the command line. `planvec.planners.option` declares them."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from planvec.cli.parser import one_of

if TYPE_CHECKING:
    from planvec.planners import Planner

DEFAULT_PLANNER = "swarm"
_METAVARS = {str: "WORD", int: "N", float: "X", tuple: "A,B"}
# types that an option may have -> how the help and the error messages show them
_TYPE_NAMES = {str: "a word", int: "an integer", float: "a number", tuple: "two numbers A,B"}


def planner_name(argv: Sequence[str], default: str = DEFAULT_PLANNER) -> str:
    """Return the name of the planner that the arguments ask for, before its options are known."""
    from planvec.planners import PLANNERS

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--planner", nargs="?", default=default)
    name = parser.parse_known_args(list(argv))[0].planner
    return name if name in PLANNERS else DEFAULT_PLANNER


def add_planner(parser: argparse.ArgumentParser, name: str) -> None:
    """Add `--planner` and the options of one planner."""
    from planvec.planners import PLANNERS

    parser.add_argument(
        "--planner",
        type=one_of(PLANNERS),
        metavar="NAME",
        help=f"{', '.join(PLANNERS)} (default: {DEFAULT_PLANNER}); its options are listed below",
    )
    _add_options(parser, name)
    others = ", ".join(other for other in PLANNERS if other != name)
    parser.epilog = f"The options of {others}: planvec plan --planner NAME --help"


def make_planner(name: str, options: dict[str, Any]) -> Planner:
    """Return a planner."""
    from planvec.planners import PLANNERS

    try:
        one_of(PLANNERS)(name)
    except argparse.ArgumentTypeError as error:
        raise ValueError(f"planner: {error}") from None
    known = [field.name for field in _option_fields(_class_of(name))]
    for option in options:
        if option not in known:
            raise ValueError(f"{option}: expected an option of the planner {name}: {', '.join(known)}")
    try:
        return _class_of(name)(**options)
    except ValueError as error:
        field, colon, problem = str(error).partition(":")
        raise ValueError(f"{_option_of(field)}:{problem}" if colon and field in known else error) from error


def given_options(arguments: argparse.Namespace, name: str) -> dict[str, Any]:
    """Return the options that were given for a planner."""
    names = [field.name for field in _option_fields(_class_of(name))]
    return {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}


def owners_of(option: str) -> list[str]:
    """Return the planners that have an option, such as "--num-walkers"."""
    from planvec.planners import PLANNERS

    field = option.removeprefix("--").removeprefix("no-").replace("-", "_")
    return [name for name in PLANNERS if field in [one.name for one in _option_fields(_class_of(name))]]


def all_options() -> list[str]:
    """Return the options of all planners, such as "--num-walkers"."""
    from planvec.planners import PLANNERS

    return [_option_of(field.name) for name in PLANNERS for field in _option_fields(_class_of(name))]


def _option_of(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def _class_of(name: str) -> type[Planner]:
    from planvec.planners import PLANNERS

    return PLANNERS[name].load()


def _option_fields(planner_class: type[Planner]) -> list[dataclasses.Field[Any]]:
    """Return the fields that are declared as options."""
    from planvec.planners import on_command_line

    return [field for field in dataclasses.fields(planner_class) if on_command_line(field)]


def _add_options(parser: argparse.ArgumentParser, name: str) -> None:
    from planvec.planners import help_text

    planner_class = _class_of(name)
    group = parser.add_argument_group(f"--planner {name}", _summary(planner_class))
    hints = typing.get_type_hints(planner_class)
    shown = {field.name: _option_of(field.name) for field in _option_fields(planner_class)}
    for field in _option_fields(planner_class):
        value_types = set(_value_types(hints[field.name]))
        default = "" if field.default is None else f" (default: {_shown(field.default)})"
        text = re.sub(r"`([^`]*)`", lambda code: shown.get(code[1], code[1]), help_text(field))
        text = f"{text}{default}".replace("%", "%%")
        option = _option_of(field.name)
        if value_types >= {bool, str}:  # a flag, or names
            names: Any = {"nargs": "?", "const": True, "type": _names, "metavar": "NAME,..."}
            group.add_argument(option, dest=field.name, default=None, help=text, **names)
            continue
        if bool in value_types:
            flags = argparse.BooleanOptionalAction
            group.add_argument(option, dest=field.name, action=flags, default=None, help=text)
            continue
        parse, metavar = _parser_of(value_types), _metavar(value_types)
        group.add_argument(option, dest=field.name, type=parse, metavar=metavar, help=text)


def _value_types(hint: Any) -> list[Any]:
    """Return the types that an annotation allows; `str` for the words of a Literal."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return [value_type for part in typing.get_args(hint) for value_type in _value_types(part)]
    if origin is typing.Literal:
        return [str]
    return [] if hint is type(None) else [origin or hint]


def _metavar(value_types: set[Any]) -> str:
    """Return the placeholder of a value in the help, such as "N" or "N|A,B"."""
    return "|".join(name for value_type, name in _METAVARS.items() if value_type in value_types)


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


def _shown(default: Any) -> str:
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)


def _summary(planner_class: type[Planner]) -> str:
    """Return the first paragraph of the docstring."""
    return " ".join((inspect.getdoc(planner_class) or "").partition("\n\n")[0].split()).rstrip(".")
