"""Sets in which the order of the elements is another one, to see whether it has an influence.

A set that is filled anew holds its elements in nearly the same order as before, so that a difference may show
only after many steps. The verification restores sets of this kind instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["ShuffledFrozenSet", "ShuffledSet", "choose_order"]

_NEW_SETS = (
    *("__and__", "__or__", "__sub__", "__xor__", "__rand__", "__ror__", "__rsub__", "__rxor__"),
    *("copy", "difference", "intersection", "symmetric_difference", "union"),
)
"""Methods that return a new set."""
_order = 0


def choose_order(number: int) -> None:
    """Choose the order in which all shuffled sets iterate over their elements."""
    global _order
    _order = number


def _shuffled(elements: Iterator[Any]) -> list[Any]:
    """Return elements in the chosen order, which is the same until a set changes."""
    return sorted(elements, key=lambda element: hash((_order, hash(element))))


class ShuffledSet(set[Any]):
    """A set that iterates over its elements in the chosen order."""

    def __iter__(self) -> Iterator[Any]:
        return iter(_shuffled(super().__iter__()))

    def pop(self) -> Any:
        """Remove and return the first element."""
        for element in self:
            self.remove(element)
            return element
        return super().pop()  # raises


class ShuffledFrozenSet(frozenset[Any]):
    """The same for sets that cannot change."""

    def __iter__(self) -> Iterator[Any]:
        return iter(_shuffled(super().__iter__()))


def _keeping_type(cls: Any, name: str) -> Callable[..., Any]:
    """Return a method that returns a set of the same class as its own, where the original does not."""
    original = getattr(cls, name)

    def method(self: Any, *args: Any) -> Any:
        result = original(self, *args)
        return result if result is NotImplemented else cls(result)

    return method


for _class, _base in ((ShuffledSet, set), (ShuffledFrozenSet, frozenset)):
    for _name in _NEW_SETS:
        setattr(_class, _name, _keeping_type(_class, _name))
    # Digests contain the names of types.
    _class.__module__, _class.__qualname__, _class.__name__ = "builtins", _base.__name__, _base.__name__
