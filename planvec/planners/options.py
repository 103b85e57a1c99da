"""Fields of planners that the command line offers as options."""

from __future__ import annotations

from dataclasses import field
from typing import Any, TypeVar

__all__ = ["HELP", "option"]

T = TypeVar("T")

HELP = "help"
"""Key of the help text in the metadata of a field."""


def option(default: T, help_text: str) -> T:
    """Declare a dataclass field that the command line offers as an option.

    The type of the option is that of the annotation: numbers, words (`Literal`), flags, or tuples of numbers.

    Args:
        default: The default of the field.
        help_text: What the option means, for `planvec plan --help`: one sentence without a period.

    Returns:
        The field, which type checkers take for a value of the annotated type.
    """
    metadata: dict[str, Any] = {HELP: help_text}
    declared: T = field(default=default, metadata=metadata)
    return declared
