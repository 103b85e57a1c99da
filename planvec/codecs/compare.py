"""Comparison of results bit by bit, and digests that are equal in every process."""

from __future__ import annotations

import copy
import hashlib
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np

# -- Sets that iterate over their elements in an order of our choice, to see whether the order has an
# influence.
#
# A set that is filled anew holds its elements in nearly the same order as before, so that a difference may
# show only after many steps. The verification restores sets of this kind instead.

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


def plain_type(value: object) -> type:
    """Return the type of a value; of a shuffled set, the type that it stands for."""
    kind = type(value)
    return kind.__base__ if kind in (ShuffledSet, ShuffledFrozenSet) else kind  # type: ignore[return-value]


def _shuffled(elements: Iterator[object]) -> Iterator[Any]:
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

    def method(self: object, *args: object) -> Any:
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


_MAX_TEXT = 200  # largest number of characters of a value in a message


def same(a: object, b: object) -> bool:
    """Return whether two values are equal bit for bit, through nested dicts, sequences and arrays."""
    # NaN equals NaN.
    return _first_difference(a, b, "") is None


def describe_difference(name: str, expected: object, actual: object) -> str | None:
    """Return a short text on how two values differ, or None if they are the same."""
    found = _first_difference(expected, actual, name)
    if found is None:
        return None
    path, x, y = found
    if isinstance(x, (np.ndarray, np.void)) and isinstance(y, (np.ndarray, np.void)):
        x, y = np.asarray(x), np.asarray(y)
        if (x.shape, x.dtype) != (y.shape, y.dtype):
            types = [f"{one.dtype!s:.{_MAX_TEXT}}" for one in (x, y)]
            return f"expected {path} of shape {x.shape} and dtype {types[0]}, got {y.shape} and {types[1]}"
        if x.dtype.names is not None:
            fields = (describe_difference(f"{path}[{name!r}]", x[name], y[name]) for name in x.dtype.names)
            return next(text for text in fields if text is not None)
        index = next(i for i in np.ndindex(x.shape) if not same(x[i], y[i]))
        path += f"[{', '.join(map(str, index))}]" if index else ""
        if x.dtype.kind in "biufc":  # without the dtype, which is the same
            return f"expected {path} {x[index]}, got {y[index]}"
        a, b = _short(x[index]), _short(y[index])
        if a == b:  # long blocks that differ further on
            return f"expected {path} of {x.dtype} with the same bits, got others of {y.dtype}"
        return f"expected {path} {a}, got {b}"
    return f"expected {path} {_short(x)}, got {_short(y)}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."


def _first_difference(a: object, b: object, path: str) -> tuple[str, Any, Any] | None:
    """Return the first place at which two values differ, and what they have there."""
    if isinstance(a, dict) and isinstance(b, dict):
        if a.keys() != b.keys():
            return path, a, b
        pairs = [(f"{path}[{key!r}]", a[key], b[key]) for key in a]
    elif isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        if len(a) != len(b):
            return path, a, b
        pairs = [(f"{path}[{index}]", x, y) for index, (x, y) in enumerate(zip(a, b, strict=True))]
    else:
        return None if _same_leaf(a, b) else (path, a, b)
    inner_differences = (_first_difference(x, y, inner) for inner, x, y in pairs)
    return next((inner for inner in inner_differences if inner is not None), None)


def _same_leaf(a: Any, b: Any) -> bool:
    if type(a) is type(b):  # the usual cases first: a proof compares thousands of values
        if isinstance(a, np.ndarray):
            has_same_type = a.dtype == b.dtype and a.shape == b.shape and not a.dtype.hasobject
            if has_same_type and a.tobytes() == b.tobytes():
                return True
        elif isinstance(a, (bool, int)) or (isinstance(a, float) and a):
            return bool(a == b) or (a != a and b != b)
    numeric = (np.ndarray, np.generic, int, float)
    if isinstance(a, numeric) and isinstance(b, numeric):
        return _same_numbers(np.asarray(a), np.asarray(b))
    if plain_type(a) is not plain_type(b):
        return False
    if a is b or isinstance(a, (str, bytes, set, frozenset)):
        return bool(a == b)
    attributes = getattr(a, "__dict__", None)
    if attributes and isinstance(attributes, dict):  # a `__getattr__` may answer with anything
        return same(attributes, vars(b))
    return bool(pickle.dumps(a) == pickle.dumps(b))


def _same_numbers(x: Any, y: Any) -> bool:
    if x.dtype.hasobject or y.dtype.hasobject:
        return x.shape == y.shape and (bool(x == y) if x.ndim == 0 else same(x.tolist(), y.tolist()))
    if x.shape != y.shape or x.dtype.kind != y.dtype.kind:
        return False
    if x.dtype.names is not None:
        return x.dtype == y.dtype and all(_same_numbers(x[name], y[name]) for name in x.dtype.names)
    if x.dtype.kind not in "fc":
        return bool(np.array_equal(x, y))
    # 0.0 and -0.0 compare equal but have different bits. All NaNs count as the same.
    signs = x.dtype.kind == "c" or np.array_equal(np.signbit(x[x == 0]), np.signbit(y[y == 0]))
    return bool(np.array_equal(x, y, equal_nan=True) and signs)


def dtype_text(dtype: np.dtype) -> str:
    """Return a text that tells a dtype from all others. `dtype.str` leaves out the fields of records."""
    return dtype.str if dtype.kind not in "VT" else repr(dtype)


def digest(value: object) -> bytes:
    """Return bytes that are the same for equal values in every process."""
    # Objects that are neither containers nor numbers nor text count by their type alone.
    if isinstance(value, dict):
        parts = sorted(digest(key) + digest(item) for key, item in value.items())
    elif isinstance(value, (list, tuple)):
        parts = [digest(item) for item in value]
    elif isinstance(value, (set, frozenset)):
        parts = sorted(digest(item) for item in value)
    elif isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject:
        parts = [repr((dtype_text(value.dtype), value.shape)).encode(), value.tobytes()]
    elif isinstance(value, (bool, int, float, str, bytes, type(None))):
        parts = [repr(value).encode()]
    else:
        parts = []  # the text of an object may contain its address, which differs between processes
    return hashlib.sha256(type(value).__name__.encode() + b"".join(parts)).digest()


def origin_of(env: gymnasium.Env[Any, Any]) -> str:
    """Return a name for the environments that can take each other's states, as far as their spec tells."""
    name, spec = type(env.unwrapped).__name__, env.spec
    if spec is None:
        return name
    kwargs = {key: value for key, value in spec.kwargs.items() if key != "render_mode"}
    return f"{name} {digest((spec.id, kwargs)).hex()[:8]}"
