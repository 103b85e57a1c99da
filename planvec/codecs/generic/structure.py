"""Digests of graphs of objects, to compare what an environment holds at two times.

Pickles do not serve for this: equal strings are written twice or once, depending on whether they are one
object, which has no influence on an environment. A digest takes numbers, strings and tuples by value, and
everything else by its content and by its identity within the graph: an object that occurs twice differs from
two equal objects.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from planvec.codecs.generic.atoms import token_of_atom
from planvec.codecs.generic.element_order import ElementOrders
from planvec.codecs.generic.parts import copies_on_write, is_by_value, memory_of, parts_of

SHARED_MEMORY = "(arrays that share memory)"  # key of the digest that tells which arrays share memory


def digests_of(roots: Mapping[str, Any], names: Mapping[int, str]) -> dict[str, bytes]:
    """Return a digest of each root, and one of the memory that arrays share."""
    visitor = _Visitor(names, ElementOrders(roots.values(), names))
    digests = {name: visitor.digest(value) for name, value in roots.items()}
    digests[SHARED_MEMORY] = repr(visitor.shared_memory()).encode()
    return digests


class _Visitor:
    """Walks through graphs of objects, and hashes what it meets."""

    def __init__(self, names: Mapping[int, str], orders: ElementOrders) -> None:
        self._names = names
        self._orders = orders
        self._indices: dict[int, int] = {}  # id of each object -> the order in which it was met
        self._kept: list[Any] = []  # all of them, so that their ids stay valid
        # Where the memory of an object begins and ends, its index, whether it is copied before it changes.
        self._memory: list[tuple[int, int, int, bool]] = []

    def digest(self, root: Any) -> bytes:
        """Return the digest of a value and of everything that it holds."""
        sha = hashlib.sha256()
        stack = [(root, False)]
        while stack:
            value, is_lazy = stack.pop()
            is_lazy = is_lazy or copies_on_write(value)
            token, children = self._visit(value, is_lazy)
            sha.update(token)
            stack.extend((child, is_lazy) for child in reversed(children))
        return sha.digest()

    def shared_memory(self) -> list[list[int]]:
        """Return the groups of arrays and buffers that see each other's changes."""
        groups: list[dict[int, bool]] = []
        end = -1
        for low, high, index, is_lazy in sorted(self._memory):
            if low >= end:
                groups.append({})
            groups[-1][index] = is_lazy
            end = max(end, high)
        return sorted(sorted(group) for group in groups if len(group) > 1 and not all(group.values()))

    def _visit(self, value: Any, is_lazy: bool) -> tuple[bytes, list[Any]]:
        """Return the bytes that stand for an object itself, and the objects that it holds."""
        name = self._names.get(id(value))
        if name is not None:
            return f"name {name};".encode(), []
        token = token_of_atom(value)
        if token is not None:
            return token, []
        if not is_by_value(value):
            index = self._indices.get(id(value))
            if index is not None:
                return f"same {index};".encode(), []
            index = self._indices[id(value)] = len(self._indices)
            self._kept.append(value)
            memory = memory_of(value)
            if memory is not None:
                self._memory.append((*memory, index, is_lazy))
        token, parts = parts_of(value)
        if isinstance(value, (set, frozenset)):
            parts = self._orders.of(value)
        self._kept.append(parts)
        return token, parts
