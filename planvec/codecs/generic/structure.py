"""Digests of graphs of objects, to compare what an environment holds at two times.

Pickles do not serve for this: equal strings are written twice or once, depending on whether they are one
object, which has no influence on an environment. A digest takes numbers, strings and tuples by value, and
everything else by its content and by its identity within the graph: an object that occurs twice differs from
two equal objects.
"""

from __future__ import annotations

import array
import copy
import copyreg
import ctypes
import datetime
import decimal
import fractions
import functools
import hashlib
import importlib
import itertools
import pathlib
import random
import sys
import types
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import EzPickle

from planvec.codecs.compare import dtype_text
from planvec.codecs.generic.attributes import (
    ADVICE,
    attributes_of,
    cell_contents,
    is_plain,
    sort_key,
    token_of_atom,
)
from planvec.codecs.positions import imported_torch
from planvec.errors import UnsupportedEnvError

# -- Pickles PyTorch's tensors by content. Its own pickles name addresses, and separate views of one
# memory.
#
#     tensor      where it lies in its storage, its gradient, its own attributes
#     storage     its bytes, once for all tensors that lie in it
#     generator   its state
#
# PyTorch is never imported here: an environment that holds such objects has imported it.


def reduce_torch(obj: Any) -> Any:
    """Return the pickled form of a tensor, a storage or a generator."""
    torch = imported_torch()
    if torch is None:
        return None
    kind = type(obj)
    if kind is torch.UntypedStorage and obj.device.type == "cpu":
        return _new_storage, (_bytes(obj),)
    if kind is torch.Generator and obj.device.type == "cpu":
        return _new_generator, (obj.get_state().numpy().tobytes(),)
    if kind not in (torch.Tensor, torch.nn.Parameter):
        return None
    if obj.device.type != "cpu" or obj.layout is not torch.strided or obj.is_quantized or obj._backward_hooks:
        return None
    if not obj.is_leaf:
        raise UnsupportedEnvError(
            "tensor with the record of its calculation, which a copy would lose. Keep tensor.detach(), or "
            "calculate under torch.no_grad()"
        )
    name = str(obj.dtype).removeprefix("torch.")
    place = (obj.storage_offset(), tuple(obj.shape), obj.stride(), obj.is_conj(), obj.is_neg())
    arguments = (kind, obj.untyped_storage(), name, *place, obj.requires_grad)
    return _new_tensor, arguments, (obj.grad, dict(vars(obj))), None, None, _set_state


def _bytes(storage: Any) -> bytes:
    return ctypes.string_at(storage.data_ptr(), storage.nbytes()) if storage.nbytes() else b""


def _new_storage(data: bytes) -> Any:
    torch: Any = importlib.import_module("torch")
    storage = torch.UntypedStorage(len(data))
    ctypes.memmove(storage.data_ptr(), data, len(data))
    return storage


def _new_generator(state: bytes) -> Any:
    torch: Any = importlib.import_module("torch")
    generator = torch.Generator()
    generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    return generator


def _new_tensor(
    kind: Any,
    storage: object,
    dtype: str,
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    is_conj: bool,
    is_neg: bool,
    requires_grad: bool,
) -> Any:
    torch: Any = importlib.import_module("torch")
    tensor = torch.empty(0, dtype=getattr(torch, dtype)).set_(storage, offset, shape, strides)
    tensor = tensor.conj() if is_conj else tensor
    tensor = torch._neg_view(tensor) if is_neg else tensor
    if kind is torch.nn.Parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)


def _set_state(tensor: Any, state: tuple[object, dict[str, Any]]) -> None:
    tensor.grad, attributes = state
    vars(tensor).update(attributes)


# -- Pickles surfaces of pygame by content. An environment that holds one has imported pygame.


def reduce_pygame(obj: Any) -> Any:
    """Return the pickled form of a surface or a clock."""
    kind = type(obj)
    if getattr(kind, "__module__", "") not in ("pygame.surface", "pygame.time"):
        return None
    pygame: Any = sys.modules["pygame"]
    if kind is pygame.time.Clock:  # it only waits and measures the time
        return kind, ()
    if kind is not pygame.Surface:
        return None
    problems = {
        "it is the window": obj is pygame.display.get_surface(),
        "it is a part of another one": obj.get_parent() is not None,
        "it has a palette": obj.get_bytesize() < 2,
        "it is locked, for example by an array of its pixels": obj.get_locked(),
        # It is drawn with other roundings, which a copy has not.
        "it has the flag RLEACCEL": obj.get_flags() & (pygame.RLEACCEL | getattr(pygame, "RLEACCELOK", 0)),
    }
    for problem, is_so in problems.items():
        if is_so:
            raise UnsupportedEnvError(f"pygame.surface.Surface that cannot be copied: {problem}. {ADVICE}")
    options = obj.get_colorkey(), obj.get_alpha(), tuple(obj.get_clip())
    made = obj.get_size(), obj.get_flags() & pygame.SRCALPHA, obj.get_bitsize(), obj.get_masks()
    rows = np.frombuffer(obj.get_buffer().raw, np.uint8).reshape(obj.get_height(), obj.get_pitch())
    data = rows[:, : obj.get_width() * obj.get_bytesize()].tobytes()  # without what fills up the rows
    if len(data) % 4 == 0 and data:
        # Most pixels equal the one before: 2 MB of a screen on which nothing is drawn become some bytes.
        pixels = np.frombuffer(data, np.uint32)
        starts = np.flatnonzero(pixels[1:] != pixels[:-1]) + 1
        if len(starts) < len(pixels) // 4:
            starts = np.insert(starts, 0, 0)
            lengths = np.diff(starts, append=len(pixels)).astype(np.uint32)
            return _new_surface, (*made, options, pixels[starts].tobytes(), lengths.tobytes())
    return _new_surface, (*made, options, data, b"")


def _new_surface(
    size: Any, flags: int, depth: int, masks: Any, options: Any, data: bytes, lengths: bytes
) -> Any:
    pygame: Any = importlib.import_module("pygame")
    surface = pygame.Surface(size, flags, depth, masks)
    colorkey, alpha, clip = options
    if colorkey is not None:
        surface.set_colorkey(colorkey)
    if alpha is not None:
        surface.set_alpha(alpha)
    surface.set_clip(clip)
    if lengths:
        data = np.repeat(np.frombuffer(data, np.uint32), np.frombuffer(lengths, np.uint32)).tobytes()
    width = size[0] * surface.get_bytesize()
    rows = np.zeros((size[1], surface.get_pitch()), np.uint8)
    rows[:, :width] = np.frombuffer(data, np.uint8).reshape(size[1], width)
    surface.get_buffer().write(rows.tobytes())
    return surface


def reduce_library(obj: Any) -> Any:
    """Return the pickled form of an object of PyTorch or pygame; None for others."""
    return reduce_torch(obj) or reduce_pygame(obj)


# -- Takes objects apart: bytes for what an object is, and a list of what it holds ---------------------------

# packages whose objects count by what they pickle: their other attributes are caches, which copies lack
_BY_PICKLE = ("PIL", "pandas", "pygame", "torch")

_VALUES = (
    *(tuple, frozenset, slice, decimal.Decimal, fractions.Fraction, uuid.UUID, pathlib.PurePath),
    *(datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo),
)


def without_constructor(obj: object) -> Any:
    """Return the pickled form of an `EzPickle` object: its attributes, not its constructor's arguments."""
    if not isinstance(obj, EzPickle):
        return None
    return new_object, (type(obj),), attributes_of(obj), None, None, set_attributes


def with_own_setter(obj: Any) -> Any:
    """Return the pickled form of an object whose class sets its attributes itself; None for others."""
    kind: Any = type(obj)
    if not _sets_state(kind):
        return None
    reduced = obj.__reduce_ex__(5)
    return *reduced, *[None] * (5 - len(reduced)), _call_setter


@functools.cache
def _sets_state(cls: Any) -> bool:
    """Return whether a class has a `__setstate__` in Python, and is else pickled as Python does it."""
    names = "__reduce_ex__", "__reduce__"
    is_usual = all(getattr(cls, name) is getattr(object, name) for name in names)
    is_usual = is_usual and cls not in copyreg.dispatch_table
    return is_usual and isinstance(getattr(cls, "__setstate__", None), types.FunctionType)


def _call_setter(obj: Any, state: Any) -> None:
    # Python makes names of attributes that it sets one object for each text. A setter that takes the names as
    # they are (Gymnasium's spaces) would make others, and equal states would have different bytes.
    if type(state) is dict:
        state = {sys.intern(key) if type(key) is str else key: value for key, value in state.items()}
    obj.__setstate__(state)


def new_object(cls: type) -> Any:
    """Return an object of a class without a call of its constructor."""
    return object.__new__(cls)


def set_attributes(obj: object, attributes: dict[str, Any]) -> None:
    """Set attributes, those in slots included, without a call of the object's own `__setattr__`."""
    for name, value in attributes.items():
        object.__setattr__(obj, name, value)


def is_by_value(value: object) -> bool:
    """Return whether it has no influence which of several equal objects a value is."""
    return isinstance(value, _VALUES) and not type(value).__dictoffset__


def parts_of(value: object) -> tuple[bytes, list[Any]]:
    """Return bytes that stand for an object itself, and the objects that it holds."""
    # The parts of a set have no order.
    if isinstance(value, np.ndarray):
        token = f"array {dtype_text(value.dtype)} {value.shape};".encode()
        return (token, list(value.flat)) if value.dtype.hasobject else (token + value.tobytes(), [])
    parts = _parts(value)
    return f"{type(value).__module__}.{type(value).__qualname__} {len(parts)};".encode(), parts


def memory_of(value: Any) -> tuple[int, int] | None:
    """Return where the memory begins and ends in which an array or a buffer lies; else None."""
    torch = imported_torch()
    if torch is not None and type(value) is torch.UntypedStorage and value.nbytes():
        return value.data_ptr(), value.data_ptr() + value.nbytes()
    if isinstance(value, (bytearray, array.array)) and value:
        value = np.frombuffer(value, np.uint8)
    if not isinstance(value, np.ndarray) or not value.size:
        return None
    while isinstance(value.base, np.ndarray):
        value = value.base
    low = high = int(value.ctypes.data)
    for length, stride in zip(value.shape, value.strides, strict=True):
        low, high = (low, high + (length - 1) * stride) if stride > 0 else (low + (length - 1) * stride, high)
    return low, high + value.itemsize


def _parts(value: object) -> list[Any]:
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
    if isinstance(value, itertools.cycle) and sys.version_info < (3, 14):
        return _cycle(value)  # newer versions of Python do not tell what iterators of itertools hold
    if isinstance(value, gymnasium.Space):  # without the generator
        left_out = ("_np_random", "low_repr", "high_repr")  # the texts that its `repr` keeps
        return _flat(pair for pair in sorted(vars(value).items()) if pair[0] not in left_out)
    return _reduced(value)


def _reduced(value: object) -> list[Any]:
    """Return what a pickle of an object would hold."""
    kind = type(value)
    has_own = any(
        getattr(kind, name) is not getattr(object, name) for name in ("__reduce_ex__", "__reduce__")
    )
    reduce = copyreg.dispatch_table.get(kind)
    if not has_own and reduce is None and kind.__module__.partition(".")[0] not in _BY_PICKLE:
        return _attributes(value)
    try:
        reduced = without_constructor(value) or reduce_library(value)
        reduced = reduced or (value.__reduce_ex__(4) if reduce is None else reduce(value))
    except Exception:
        return _attributes(value)
    if isinstance(reduced, str):
        return [reduced]
    state, items, pairs = (*reduced[2:5], None, None, None)[:3]
    return [*reduced[1:2], state, *([] if items is None else items), *_flat([] if pairs is None else pairs)]


def copies_on_write(value: object) -> bool:
    """Return whether an object copies memory that it shares with others of its kind before it changes it."""
    if type(value).__module__.partition(".")[0] != "pandas":
        return False
    return int(sys.modules["pandas"].__version__.partition(".")[0]) >= 3


def _cycle(value: Any) -> list[Any]:
    """Return the elements of a cycle, and the index of the next one."""
    # A copy of a cycle keeps them in another form than the original, which has no influence.
    _, (rest,), (elements, has_all) = value.__reduce__()
    if not isinstance(rest, (type(iter([])), type(iter(())), type(iter("")), type(iter(range(0))))):
        return [rest, elements, has_all]
    remaining = [*copy.copy(rest)]
    period = elements if has_all else elements + remaining
    return [period, (len(period) - len(remaining)) % max(len(period), 1)]


def _attributes(value: object) -> list[Any]:
    return _flat(sorted(attributes_of(value).items(), key=lambda pair: str(pair[0])))


def _flat(pairs: Iterable[tuple[object, object]]) -> list[Any]:
    return [part for pair in pairs for part in pair]


# -- Puts the elements of sets into an order that follows from what they hold, not from addresses or
# history.
#
# Numbers, text and definitions are sorted. Objects need more, since they may be equal in content and differ
# in what refers to them:
#
#     reached without a set     told apart by the order in which they are met
#     reached through sets      told apart by colour refinement: a colour is a digest of an object, of
#                               the colours of what it holds and of the colours of what holds it
#
# What then has one colour and is held at several places is told apart by choosing one and refining again, as
# for a canonical form of a graph. What is held at one place is interchangeable.


class ElementOrders:
    """Orders the elements of the sets in a graph of objects."""

    def __init__(self, roots: Iterable[object], names: Mapping[int, str]) -> None:
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

    def _fixed(self, value: object) -> bytes | None:
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

    def _tell_apart(self) -> None:
        """Mix the colours of neighbours into each colour until all are told apart that can be."""
        number = 0
        while True:
            groups = defaultdict(list)
            for node in self._nodes:
                groups[node.color].append(node)
            if len(groups) == number:  # mixing tells no more of them apart
                ties = [color for color, nodes in groups.items() if len(nodes) > 1 < len(nodes[0].holders)]
                if not ties:
                    return
                first = groups[min(ties)][0]
                first.color = _mix(first.color + b"first")
                number = 0
                continue
            number = len(groups)
            colors = []
            for node in self._nodes:
                parts = [self._color_of(part) for part in node.parts]
                holders = sorted(self._nodes[holder].color + place for holder, place in node.holders)
                parts = parts if node.elements is None else sorted(parts)
                colors.append(_mix(b"|".join([node.color, *parts, b"held", *holders])))
            for node, color in zip(self._nodes, colors, strict=True):
                node.color = color


def _mix(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


SHARED_MEMORY = "(arrays that share memory)"  # key of the digest that tells which arrays share memory


def digests_of(roots: Mapping[str, object], names: Mapping[int, str]) -> dict[str, bytes]:
    """Return a digest of each root, and one of the memory that arrays share."""
    orders = ElementOrders(roots.values(), names)
    indices: dict[int, int] = {}  # id of each object -> the order in which it was met
    kept: list[Any] = []  # all of them, so that their ids stay valid
    # Where the memory of an object begins and ends, its index, whether it is copied before it changes.
    memories: list[tuple[int, int, int, bool]] = []

    def visit(value: object, is_lazy: bool) -> tuple[bytes, list[Any]]:
        """Return the bytes that stand for an object itself, and the objects that it holds."""
        name = names.get(id(value))
        token = token_of_atom(value) if name is None else f"name {name};".encode()
        if token is not None:
            return token, []
        if not is_by_value(value):
            index = indices.get(id(value))
            if index is not None:
                return f"same {index};".encode(), []
            index = indices[id(value)] = len(indices)
            kept.append(value)
            memory = memory_of(value)
            if memory is not None:
                memories.append((*memory, index, is_lazy))
        token, parts = parts_of(value)
        if isinstance(value, (set, frozenset)):
            parts = orders.of(value)
        kept.append(parts)
        return token, parts

    digests = {}
    for name, root in roots.items():
        sha = hashlib.sha256()
        stack = [(root, False)]
        while stack:
            value, is_lazy = stack.pop()
            is_lazy = is_lazy or copies_on_write(value)
            token, children = visit(value, is_lazy)
            sha.update(token)
            stack.extend((child, is_lazy) for child in reversed(children))
        digests[name] = sha.digest()
    groups: list[dict[int, bool]] = []  # of arrays and buffers that see each other's changes
    end = -1
    for low, high, index, is_lazy in sorted(memories):
        if low >= end:
            groups.append({})
        groups[-1][index] = is_lazy
        end = max(end, high)
    shared = sorted(sorted(group) for group in groups if len(group) > 1 and not all(group.values()))
    digests[SHARED_MEMORY] = repr(shared).encode()
    return digests


def digests_apart(roots: Mapping[str, object], names: Mapping[int, str]) -> dict[str, bytes]:
    """Return a digest of each root, whatever it shares with the others."""
    return {name: digests_of({name: value}, names)[name] for name, value in roots.items()}
