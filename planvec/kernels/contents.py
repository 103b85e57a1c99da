"""Takes snapshots of what objects hold, to find out later whether it was changed in place."""

from __future__ import annotations

import contextlib
import pickle
from collections import deque
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from planvec.codecs import attributes_of

_MAX_ENTRIES = 10_000  # entries of a container, with those inside it, that are looked at
_MAX_BYTES = 1 << 20  # largest array whose numbers are looked at
_SCALARS = (bool, int, str, bytes, complex, type(None))
_CONTAINERS = (list, tuple, deque, set, frozenset, dict)


def is_scalar(value: Any) -> bool:
    """Return whether a value is a number or a string, which cannot be changed in place."""
    return type(value) in _SCALARS or isinstance(value, (float, np.generic))


def _is_mutable(value: Any) -> bool:
    """Return whether a value can be changed in place, as far as one can tell."""
    if type(value) in (tuple, frozenset):
        return any(map(_is_mutable, value))
    return not is_scalar(value)


def _is_plain(value: Any) -> bool:
    """Return whether a value consists of containers, arrays, numbers and strings alone."""
    if type(value) is dict:
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    if type(value) in _CONTAINERS:
        return all(map(_is_plain, value))
    return is_scalar(value) or (type(value) is np.ndarray and not value.dtype.hasobject)


class _Same:
    """Stands for an object that is not looked into: it is equal to itself alone."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    __hash__ = None  # type: ignore[assignment]


class _TooLargeError(Exception):
    """There are more entries than are looked at."""


class Contents:
    """Holds what an object held: the entries of containers and arrays, and the attributes of own objects."""

    def __init__(self, value: Any, is_own: Callable[[type], bool]) -> None:
        self._value, self._is_own = value, is_own
        self._taken = self._take()
        # whether there is anything that can be changed in place, and that is not too much
        self.are_known = not isinstance(self._taken, _Same) and _is_mutable(value)
        # To pickle takes a tenth of the time of a snapshot, and tells 2 from 2.0 and 0.0 from -0.0, too.
        self._pickle: bytes | None = None
        if self.are_known:
            with contextlib.suppress(RecursionError):  # it contains itself
                self._pickle = pickle.dumps(value, 5) if _is_plain(value) else None

    def have_changed(self) -> bool:
        """Return whether the object holds something else now."""
        if self._pickle is None:
            return bool(self._take() != self._taken)
        try:
            return pickle.dumps(self._value, 5) != self._pickle
        except Exception:  # it holds something of another kind
            return True

    def is_equal(self, other: Any) -> bool:
        """Return whether another object holds the same, and is of the same type."""
        return bool(Contents(other, self._is_own)._taken == self._taken)

    def text(self) -> str:
        """Return a text that is the same in every process in which an object holds the same."""
        return _text(self._taken)

    def _take(self) -> Any:
        try:
            return _snapshot(self._value, self._is_own, [_MAX_ENTRIES], [])
        except (_TooLargeError, RuntimeError):  # or it changes at this moment
            return _Same(self._value)


def _snapshot(value: Any, is_own: Callable[[type], bool], left: list[int], parents: list[Any]) -> Any:
    """Return what a value holds, as tuples that are equal if it holds the same."""
    kind = type(value)
    left[0] -= 1
    if left[0] < 0:
        raise _TooLargeError
    if kind in _SCALARS:
        return kind, value
    if kind is float:
        return value.hex()  # NaN is itself, and -0 is not 0
    if isinstance(value, np.generic):
        return kind, value.tobytes()
    if kind is np.ndarray:
        if value.dtype.hasobject or value.nbytes > _MAX_BYTES:
            return _Same(value)
        return value.dtype.str, value.shape, value.tobytes()
    if any(parent is value for parent in parents):
        return _Same(value)
    parents.append(value)
    try:
        return _entries(value, kind, is_own, left, parents)
    finally:
        parents.pop()


def _entries(
    value: Any, kind: type, is_own: Callable[[type], bool], left: list[int], parents: list[Any]
) -> Any:
    """Return what a container, or an object of the user, holds."""
    if kind in _CONTAINERS and kind is not dict:
        return kind, tuple([_snapshot(entry, is_own, left, parents) for entry in value])
    if kind is dict:
        return kind, tuple(
            [
                (_snapshot(key, is_own, left, parents), _snapshot(entry, is_own, left, parents))
                for key, entry in value.items()
            ]
        )
    if isinstance(value, (type, gymnasium.Env, gymnasium.Space)) or not is_own(kind):
        return _Same(value)
    attributes = attributes_of(value)
    return (
        kind,
        _Same(value),
        tuple([(name, _snapshot(entry, is_own, left, parents)) for name, entry in attributes.items()]),
    )


def _text(taken: Any) -> str:
    """Return a snapshot as text, without addresses."""
    if isinstance(taken, tuple):
        if taken and taken[0] in (set, frozenset):  # in an order that differs from process to process
            return str(sorted(map(_text, taken[1])))
        return f"({', '.join(map(_text, taken))})"
    if isinstance(taken, _Same):
        return type(taken.value).__qualname__
    return taken.__qualname__ if isinstance(taken, type) else repr(taken)
