"""Digests of graphs of objects, to compare what an environment holds at two times.

Pickles do not serve for this: equal strings are written twice or once, depending on whether they are one
object, which has no influence on an environment. A digest takes numbers, strings and tuples by value, and
everything else by its content and by its identity within the graph: an object that occurs twice differs from
two equal objects.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import itertools
import random
import types
from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium
import numpy as np

from planvec.codecs.generic.atoms import sort_key, token_of_atom
from planvec.codecs.generic.attributes import attributes_of
from planvec.codecs.generic.functions import cell_contents
from planvec.codecs.generic.pickling import without_constructor

__all__ = ["SHARED_MEMORY", "digests_of"]

SHARED_MEMORY = "(arrays that share memory)"
"""Key of the digest that tells which arrays share memory."""


def digests_of(roots: Mapping[str, Any], names: Mapping[int, str]) -> dict[str, bytes]:
    """Return a digest of each root, and one of the memory that arrays share.

    Args:
        roots: Name -> value.
        names: Id of each object that counts by its name alone -> the name.

    Returns:
        Name -> digest, in the order of the roots.
    """
    visitor = _Visitor(names)
    digests = {name: visitor.digest(value) for name, value in roots.items()}
    digests[SHARED_MEMORY] = repr(visitor.shared_memory()).encode()
    return digests


class _Visitor:
    """Walks through graphs of objects, and hashes what it meets.

    Args:
        names: Id of each object that counts by its name alone -> the name.
    """

    def __init__(self, names: Mapping[int, str]) -> None:
        self._names = names
        self._indices: dict[int, int] = {}  # id of each object -> the order in which it was met
        self._kept: list[Any] = []  # all of them, so that their ids stay valid
        self._owners: dict[int, list[int]] = {}  # id of the array that owns the memory -> arrays in it

    def digest(self, root: Any) -> bytes:
        """Return the digest of a value and of everything that it holds."""
        sha = hashlib.sha256()
        stack = [root]
        while stack:
            value = stack.pop()
            token, children = self._visit(value)
            sha.update(token)
            stack.extend(reversed(children))
        return sha.digest()

    def shared_memory(self) -> list[list[int]]:
        """Return the groups of arrays that lie in the memory of one array."""
        return [group for group in self._owners.values() if len(group) > 1]

    def _visit(self, value: Any) -> tuple[bytes, list[Any]]:
        """Return the bytes that stand for an object itself, and the objects that it holds."""
        name = self._names.get(id(value))
        if name is not None:
            return f"name {name};".encode(), []
        token = token_of_atom(value)
        if token is not None:
            return token, []
        if not isinstance(value, (tuple, frozenset)):
            index = self._indices.get(id(value))
            if index is not None:
                return f"same {index};".encode(), []
            index = self._indices[id(value)] = len(self._indices)
            self._kept.append(value)
            if isinstance(value, np.ndarray):
                return self._visit_array(value, index)
        children = _children(value)
        self._kept.append(children)
        return f"{type(value).__module__}.{type(value).__qualname__} {len(children)};".encode(), children

    def _visit_array(self, value: np.ndarray[Any, Any], index: int) -> tuple[bytes, list[Any]]:
        owner = value
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        self._owners.setdefault(id(owner), []).append(index)
        self._kept.append(owner)
        token = f"array {value.dtype.str} {value.shape};".encode()
        if value.dtype.hasobject:
            return token, list(value.flat)
        return token + value.tobytes(), []


def _children(value: Any) -> list[Any]:
    """Return the objects that an object holds, in an order that does not depend on the process."""
    if isinstance(value, dict):
        return [*_flat(value.items()), *_attributes(value)]
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=sort_key)
    if isinstance(value, (list, tuple)):
        return [*value, *_attributes(value)]
    if isinstance(value, np.random.Generator):
        return [value.bit_generator]
    if isinstance(value, np.random.BitGenerator):
        # A Mersenne Twister spawns nothing when it belongs to a RandomState.
        return [value.state] if isinstance(value, np.random.MT19937) else [value.state, value.seed_seq]
    if isinstance(value, np.random.SeedSequence):
        return [value.state]
    if isinstance(value, np.random.RandomState):
        return [value.get_state(legacy=False), value._bit_generator]
    if isinstance(value, random.Random):
        return [value.getstate()]
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, types.CellType):
        return cell_contents([value])
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, itertools.cycle):
        return _cycle(value)
    if isinstance(value, gymnasium.Space):  # without the generator, and the texts that its `repr` keeps
        left_out = ("_np_random", "low_repr", "high_repr")
        return _flat(pair for pair in sorted(vars(value).items()) if pair[0] not in left_out)
    return _reduced(value)


def _reduced(value: Any) -> list[Any]:
    """Return what a pickle of an object would hold."""
    kind = type(value)
    if all(getattr(kind, name) is getattr(object, name) for name in ("__reduce_ex__", "__reduce__")):
        return _attributes(value)
    try:
        reduced = without_constructor(value) or value.__reduce_ex__(4)
    except Exception:
        return _attributes(value)
    if isinstance(reduced, str):
        return [reduced]
    arguments = list(reduced[1:2])
    state, items, pairs = (*reduced[2:5], None, None, None)[:3]
    return [*arguments, state, *([] if items is None else items), *_flat([] if pairs is None else pairs)]


def _cycle(value: Any) -> list[Any]:
    """Return the elements of a cycle, and the index of the next one.

    A copy of a cycle keeps them in another form than the original, which has no influence.
    """
    _, (rest,), (elements, has_all) = value.__reduce__()
    if not isinstance(rest, (type(iter([])), type(iter(())), type(iter("")), type(iter(range(0))))):
        return [rest, elements, has_all]
    remaining = [*copy.copy(rest)]
    period = elements if has_all else elements + remaining
    return [period, (len(period) - len(remaining)) % max(len(period), 1)]


def _attributes(value: Any) -> list[Any]:
    return _flat(sorted(attributes_of(value).items(), key=lambda pair: str(pair[0])))


def _flat(pairs: Iterable[tuple[Any, Any]]) -> list[Any]:
    return [part for pair in pairs for part in pair]
