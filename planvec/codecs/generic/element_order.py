"""Puts the elements of sets into an order that follows from what they hold, not from addresses or history.

Numbers, text and definitions are sorted. Objects need more, since they may be equal in content and differ in
what refers to them:

    reached without a set     told apart by the order in which they are met
    reached through sets      told apart by colour refinement: a colour is a digest of an object's content, of
                              the colours of what it holds and of the colours of what holds it

What then has one colour and is held at several places is told apart by choosing one and refining again, as
for a canonical form of a graph. What is held at one place is interchangeable.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from planvec.codecs.generic.atoms import is_plain, sort_key, token_of_atom
from planvec.codecs.generic.parts import is_by_value, parts_of


class ElementOrders:
    """Orders the elements of the sets in a graph of objects."""

    def __init__(self, roots: Iterable[Any], names: Mapping[int, str]) -> None:
        self._roots, self._names = [*roots], names
        self._graph: _Graph | None = None

    def of(self, elements: Any) -> list[Any]:
        """Return the elements of a set in their order."""
        if is_plain(elements):
            return sorted(elements, key=sort_key)
        if self._graph is None:
            self._graph = _Graph(self._roots, self._names)
        if id(elements) not in self._graph.orders:  # an object makes it anew whenever it is pickled
            return _Graph([elements], self._names).orders[id(elements)]
        return self._graph.orders[id(elements)]


@dataclass(slots=True)
class _Node:
    """Is an object that is reached through sets alone, or one of these sets."""

    color: bytes  # tells it from others
    parts: list[bytes | int]  # what it holds: colours that stay what they are, and numbers of nodes
    holders: list[tuple[int, bytes]]  # the numbers of the nodes that hold it, and at which place
    elements: list[Any] | None  # its elements, if it is a set


class _Graph:
    """Computes the orders."""

    def __init__(self, roots: list[Any], names: Mapping[int, str]) -> None:
        self._names = names
        self._kept: list[Any] = []  # so that ids stay valid
        self._anchors: dict[int, bytes] = {}  # id of each object that is reached without a set -> its colour
        self._nodes: list[_Node] = []
        self._add_nodes(self._find_anchors(roots))
        self._tell_apart()
        # id of each set that holds objects -> its elements in order
        self.orders: dict[int, list[Any]] = {}
        for node, source in zip(self._nodes, self._sources, strict=True):
            if node.elements is not None and id(source) not in self.orders:
                pairs = zip(map(self._color_of, node.parts), node.elements, strict=True)
                self.orders[id(source)] = [element for _, element in sorted(pairs, key=itemgetter(0))]

    def _fixed(self, value: Any) -> bytes | None:
        """Return the colour of an object that needs no refinement, else None."""
        anchor = self._anchors.get(id(value))
        if anchor is not None:
            return anchor
        name = self._names.get(id(value))
        token = token_of_atom(value) if name is None else f"name {name};".encode()
        return None if token is None else _mix(token)

    def _find_anchors(self, roots: list[Any]) -> list[tuple[Any, bytes]]:
        """Return the sets of objects that are reached without another one, with their colours."""
        sets, stack, number = [], roots[::-1], 0
        while stack:
            value = stack.pop()
            if self._fixed(value) is not None:
                continue
            is_set = isinstance(value, (set, frozenset))
            number += is_set or not is_by_value(value)
            color = _mix(b"anchor %d;" % number)
            if not is_by_value(value):
                self._anchors[id(value)] = color
                self._kept.append(value)
            if not is_set:
                stack += parts_of(value)[1][::-1]
            elif not is_plain(value):
                sets.append((value, color))
        return sets

    def _add_nodes(self, sets: list[tuple[Any, bytes]]) -> None:
        sources = self._sources = [value for value, _ in sets]
        numbers = {id(value): number for number, value in enumerate(sources) if not is_by_value(value)}
        colors: list[bytes | None] = [color for _, color in sets]
        for number, value in enumerate(sources):  # grows in this loop
            token, held = parts_of(value)
            self._kept.append(held)
            color = colors[number] if number < len(colors) else None
            elements = held if isinstance(value, (set, frozenset)) else None
            node = _Node(color or _mix(token), [], [], elements)
            self._nodes.append(node)
            for part in held:
                fixed = self._fixed(part)
                if fixed is not None:
                    node.parts.append(fixed)
                    continue
                index = numbers.get(id(part), len(sources))
                node.parts.append(index)
                if index == len(sources):
                    sources.append(part)
                    if not is_by_value(part):
                        numbers[id(part)] = index
        for number, node in enumerate(self._nodes):
            for place, part in enumerate(node.parts):
                if isinstance(part, int):
                    at = b"" if node.elements is not None else b"%d" % place
                    self._nodes[part].holders.append((number, at))

    def _color_of(self, part: bytes | int) -> bytes:
        return part if isinstance(part, bytes) else self._nodes[part].color

    def _refine(self) -> None:
        """Mix the colours of neighbours into each colour until this tells no more nodes apart."""
        number = 0
        while len({node.color for node in self._nodes}) > number:
            number = len({node.color for node in self._nodes})
            colors = []
            for node in self._nodes:
                parts = [self._color_of(part) for part in node.parts]
                holders = sorted(self._nodes[holder].color + place for holder, place in node.holders)
                parts = parts if node.elements is None else sorted(parts)
                colors.append(_mix(b"|".join([node.color, *parts, b"held", *holders])))
            for node, color in zip(self._nodes, colors, strict=True):
                node.color = color

    def _tell_apart(self) -> None:
        while True:
            self._refine()
            groups = defaultdict(list)
            for node in self._nodes:
                groups[node.color].append(node)
            ties = [color for color, nodes in groups.items() if len(nodes) > 1 and len(nodes[0].holders) > 1]
            if not ties:
                return
            first = groups[min(ties)][0]
            first.color = _mix(first.color + b"first")


def _mix(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
