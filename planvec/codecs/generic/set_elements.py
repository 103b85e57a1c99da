"""Sorts the elements of sets, so that the bytes of a state do not depend on how a set was filled."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

__all__ = ["in_order", "is_plain"]

_ATOMS = (str, bytes, int, float, bool, complex, type(None))


def in_order(elements: Collection[Any]) -> list[Any]:
    """Return the elements of a set in an order that does not depend on how it was filled, if possible."""
    return sorted(elements, key=_text) if is_plain(elements) else list(elements)


def is_plain(elements: Collection[Any]) -> bool:
    """Return whether a collection holds nothing but numbers, text, and tuples and frozen sets of them."""
    return all(
        isinstance(element, _ATOMS) or (isinstance(element, (tuple, frozenset)) and is_plain(element))
        for element in elements
    )


def _text(element: Any) -> str:
    """Return a text that is the same for equal plain elements."""
    if isinstance(element, tuple):
        return f"({', '.join(map(_text, element))})"
    if isinstance(element, frozenset):
        return f"{{{', '.join(sorted(map(_text, element)))}}}"
    return f"{type(element).__name__} {element!r}"
