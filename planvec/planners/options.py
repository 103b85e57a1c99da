"""Fields of planners: one text each, for `help(planner)`, the API pages and the command line."""

from __future__ import annotations

import re
import textwrap
from dataclasses import Field, field
from typing import Any, TypeVar

T = TypeVar("T")

_HELP = "help"  # keys of the metadata of a field
_IS_FUNCTION = "is_function"


def option(default: T, help_text: str, *, is_function: bool = False) -> T:
    """Declare a dataclass field of a planner.

    Args:
        default: The default.
        help_text: Sentences that say what it means, and what its values may be.
        is_function: Whether it is a function. The command line offers all others, by their annotations:
            numbers, words (`Literal`), flags, or tuples of numbers.

    Returns:
        The field, which type checkers take for a value of the annotated type.
    """
    declared: T = field(default=default, metadata={_HELP: help_text, _IS_FUNCTION: is_function})
    return declared


def on_command_line(declared: Field[Any]) -> bool:
    """Return whether the command line offers a field."""
    return not declared.metadata.get(_IS_FUNCTION, True)


def help_text(declared: Field[Any]) -> str:
    """Return the text of a field for the command line: its first sentence, and what None means."""
    sentences = str(declared.metadata[_HELP]).replace("`", "").replace(" (above)", "")
    first, *others = re.split(r"(?<=\.) (?=[A-Z(])", sentences)
    text = " ".join([first[:1].lower() + first[1:], *(one for one in others if one.startswith("None: "))])
    return text.removesuffix(".")


def document_options(planner_class: type) -> None:
    """Add the section "Args" to the docstring of a planner, whose dataclass fields it declares."""
    doc = planner_class.__doc__
    if not doc or "\n    Args:\n" in doc:
        return
    options: dict[str, Field[Any]] = {}
    for owner in planner_class.__mro__:  # its own options come first
        fields = vars(owner).get("__dataclass_fields__", vars(owner))
        for name in vars(owner).get("__annotations__", ()):
            if isinstance(fields.get(name), Field):
                options.setdefault(name, fields[name])
    lines = [f"{name}: {one.metadata[_HELP]}" for name, one in options.items() if _HELP in one.metadata]
    if not lines:
        return
    wrap = textwrap.TextWrapper(width=108, initial_indent=" " * 8, subsequent_indent=" " * 12)
    section = "\n".join(["    Args:", *(line for text in lines for line in wrap.wrap(text))])
    text, raises, rest = doc.partition("    Raises:\n")
    planner_class.__doc__ = f"{text.rstrip()}\n\n{section}\n\n{raises}{rest}".rstrip() + "\n    "
