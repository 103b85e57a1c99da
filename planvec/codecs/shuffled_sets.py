"""Sets that iterate over their elements in an order of our choice, to see whether the order has an influence.

A set that is filled anew holds its elements in nearly the same order as before, so that a difference may show
only after many steps. The verification restores sets of this kind instead.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

# methods that return a new set
_NEW_SETS = (
    *("__and__", "__or__", "__sub__", "__xor__", "__rand__", "__ror__", "__rsub__", "__rxor__"),
    *("copy", "difference", "intersection", "symmetric_difference", "union"),
)
_order = 0


def choose_order(number: int) -> None:
    """Choose the order in which all shuffled sets iterate over their elements."""
    global _order
    _order = number


def plain_type(value: Any) -> type:
    """Return the type of a value; of a shuffled set, the type that it stands for."""
    kind = type(value)
    return kind.__base__ if kind in (ShuffledSet, ShuffledFrozenSet) else kind  # type: ignore[return-value]


def _shuffled(elements: Iterator[Any]) -> Iterator[Any]:
    """Return elements in the chosen order, which depends on nothing but them."""
    return iter(sorted(elements, key=lambda element: hash((_order, hash(element)))))


class ShuffledSet(set[Any]):
    """A set that iterates over its elements in the chosen order."""

    def __iter__(self) -> Iterator[Any]:
        return _shuffled(super().__iter__())

    def pop(self) -> Any:
        """Remove and return the first element."""
        for element in self:
            self.remove(element)
            return element
        return super().pop()  # raises


class ShuffledFrozenSet(frozenset[Any]):
    """The same for sets that cannot change."""

    def __iter__(self) -> Iterator[Any]:
        return _shuffled(super().__iter__())


def _keeping_type(cls: Any, name: str) -> Callable[..., Any]:
    """Return a method that returns a set of the same class as its own, where the original does not."""
    original = getattr(cls, name)

    def method(self: Any, *args: Any) -> Any:
        result = original(self, *args)
        return result if result is NotImplemented else cls(result)

    return method


def _imitate(cls: Any, plain: Any) -> None:
    """Let a class behave like the plain one in everything but the order."""
    for name in _NEW_SETS:
        setattr(cls, name, _keeping_type(cls, name))
    cls.__repr__ = lambda self: repr(plain(self))
    cls.__reduce_ex__ = lambda self, protocol: (plain, ([*self],))
    cls.__copy__ = lambda self: cls(self)
    cls.__deepcopy__ = lambda self, memo: cls(copy.deepcopy([*self], memo))
    # Digests contain the names of types.
    cls.__module__, cls.__qualname__, cls.__name__ = "builtins", plain.__name__, plain.__name__


_imitate(ShuffledSet, set)
_imitate(ShuffledFrozenSet, frozenset)
