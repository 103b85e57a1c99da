"""Takes objects apart: bytes for what an object is, and a list of what it holds."""

from __future__ import annotations

import array
import copy
import copyreg
import datetime
import decimal
import fractions
import functools
import itertools
import pathlib
import random
import sys
import types
import uuid
from collections.abc import Iterable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import EzPickle

from planvec.codecs.compare import dtype_text
from planvec.codecs.generic.attributes import attributes_of
from planvec.codecs.generic.functions import cell_contents
from planvec.codecs.generic.torch_forms import reduce_torch, torch_memory

# packages whose objects count by what they pickle: their other attributes are caches, which copies lack
_BY_PICKLE = ("PIL", "pandas", "torch")

_VALUES = (
    *(tuple, frozenset, slice, decimal.Decimal, fractions.Fraction, uuid.UUID, pathlib.PurePath),
    *(datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo),
)


def without_constructor(obj: Any) -> Any:
    """Return the pickled form of an `EzPickle` object: its attributes, not its constructor's arguments."""
    if not isinstance(obj, EzPickle):
        return None
    return new_object, (type(obj),), attributes_of(obj), None, None, set_attributes


def new_object(cls: type) -> Any:
    """Return an object of a class without a call of its constructor."""
    return object.__new__(cls)


def set_attributes(obj: Any, attributes: dict[str, Any]) -> None:
    """Set attributes, those in slots included, without a call of the object's own `__setattr__`."""
    for name, value in attributes.items():
        object.__setattr__(obj, name, value)


def is_by_value(value: Any) -> bool:
    """Return whether it has no influence which of several equal objects a value is."""
    return isinstance(value, _VALUES) and not type(value).__dictoffset__


def parts_of(value: Any) -> tuple[bytes, list[Any]]:
    """Return bytes that stand for an object itself, and the objects that it holds."""
    # The parts of a set have no order.
    if isinstance(value, np.ndarray):
        token = f"array {dtype_text(value.dtype)} {value.shape};".encode()
        return (token, list(value.flat)) if value.dtype.hasobject else (token + value.tobytes(), [])
    parts = _parts(value)
    return f"{type(value).__module__}.{type(value).__qualname__} {len(parts)};".encode(), parts


def memory_of(value: Any) -> tuple[int, int] | None:
    """Return where the memory begins and ends in which an array or a buffer lies; else None."""
    if isinstance(value, np.ndarray):
        while isinstance(value.base, np.ndarray):
            value = value.base
        return _bounds(value) if value.size else None
    if isinstance(value, (bytearray, array.array)) and value:
        return _bounds(np.frombuffer(value, np.uint8))
    return torch_memory(value)


def _bounds(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    low = high = int(array.ctypes.data)
    for length, stride in zip(array.shape, array.strides, strict=True):
        low, high = (low, high + (length - 1) * stride) if stride > 0 else (low + (length - 1) * stride, high)
    return low, high + array.itemsize


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*_flat(value.items()), *_attributes(value)]
    if isinstance(value, (set, frozenset)):
        return list(value)
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
    if isinstance(value, gymnasium.Space):  # without the generator
        left_out = ("_np_random", "low_repr", "high_repr")  # the texts that its `repr` keeps
        return _flat(pair for pair in sorted(vars(value).items()) if pair[0] not in left_out)
    return _reduced(value)


def _reduced(value: Any) -> list[Any]:
    """Return what a pickle of an object would hold."""
    kind = type(value)
    has_own = any(
        getattr(kind, name) is not getattr(object, name) for name in ("__reduce_ex__", "__reduce__")
    )
    if not has_own and kind not in copyreg.dispatch_table and not _is_by_pickle(kind):
        return _attributes(value)
    try:
        reduced = without_constructor(value) or reduce_torch(value) or _reduce(value)
    except Exception:
        return _attributes(value)
    if isinstance(reduced, str):
        return [reduced]
    arguments = list(reduced[1:2])
    state, items, pairs = (*reduced[2:5], None, None, None)[:3]
    return [*arguments, state, *([] if items is None else items), *_flat([] if pairs is None else pairs)]


def _is_by_pickle(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in _BY_PICKLE


def copies_on_write(value: Any) -> bool:
    """Return whether an object copies memory that it shares with others of its kind before it changes it."""
    if type(value).__module__.partition(".")[0] != "pandas":
        return False
    return int(sys.modules["pandas"].__version__.partition(".")[0]) >= 3


def _reduce(value: Any) -> Any:
    reduce = copyreg.dispatch_table.get(type(value))
    return value.__reduce_ex__(4) if reduce is None else reduce(value)


def _cycle(value: Any) -> list[Any]:
    """Return the elements of a cycle, and the index of the next one."""
    # A copy of a cycle keeps them in another form than the original, which has no influence.
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
