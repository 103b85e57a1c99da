"""Sets in which the order of the elements is another one, to see whether it has an influence.

A set that is filled anew holds its elements in nearly the same order as before, so that a difference may show
only after many steps. The verification restores sets of this kind instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["ShuffledSet"]


class ShuffledSet(set[Any]):
    """A set that iterates over its elements in another order, which is the same until the set changes.

    Attributes:
        order: Number of the order, of all sets of this kind.
    """

    order = 0

    def __iter__(self) -> Iterator[Any]:
        order = ShuffledSet.order
        return iter(sorted(super().__iter__(), key=lambda element: hash((order, hash(element)))))

    def pop(self) -> Any:
        """Remove and return the first element."""
        for element in self:
            self.remove(element)
            return element
        return super().pop()  # raises


# Digests contain the names of types.
ShuffledSet.__module__, ShuffledSet.__qualname__, ShuffledSet.__name__ = "builtins", "set", "set"
