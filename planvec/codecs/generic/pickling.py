"""Pickles objects as one graph in which some objects are referred to by name.

`FastPickler` handles most environments. `ThoroughPickler` looks at every object, which takes several times
longer. It is needed for

- sets, frozen ones too: their elements are written in an order that does not depend on how they were filled;
- containers at the level of a module, to which the environment refers;
- functions inside other objects, which are referred to by name;
- long chains of objects, which would exceed Python's recursion limit.
"""

from __future__ import annotations

import copyreg
import functools
import io
import pickle
import sys
import types
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from planvec.codecs.compare import ShuffledFrozenSet, ShuffledSet, choose_order
from planvec.codecs.generic.attributes import (
    ATOMS,
    RESEEDABLE,
    attributes_of,
    is_reseedable,
    is_simulator_type,
)
from planvec.codecs.generic.short_forms import PARTS, Reading, ShortForms
from planvec.codecs.generic.structure import (
    ElementOrders,
    new_object,
    reduce_library,
    set_attributes,
    with_own_setter,
    without_constructor,
)
from planvec.codecs.unpickling import check_name, unpickle
from planvec.errors import UnsupportedEnvError

# -- Types whose objects cannot be copied, or do not behave like the original afterwards ---------------------

_REPLAY = 'Pass codec="replay", which is exact if the environment restarts from its seed'
# class -> why its objects cannot be saved, and what to do
_REASONS = {
    "pymunk.space.Space": f"a copy of it loses the cached contacts of the bodies. {_REPLAY}",
    "pybullet_utils.bullet_client.BulletClient": f"PyBullet does not restore its states exactly. {_REPLAY}",
    "Box2D.Box2D.b2World": f"a world of Box2D lies in the memory of a C library. {_REPLAY}",
    "nes_py.nes_env.NESEnv": f"the memory of its emulator cannot be copied. {_REPLAY}",
}


@functools.cache
def check_copyable(kind: Any) -> None:
    """Check that objects of a type can be copied exactly, as far as is known."""
    names = [f"{getattr(base, '__module__', '')}.{base.__qualname__}" for base in kind.__mro__]
    reason = next((_REASONS[name] for name in names if name in _REASONS), "")
    if not reason and is_simulator_type(kind):
        reason = (
            "it belongs to a simulator and was made after the environment was opened, so planvec does not "
            f"know what it holds. Make it in __init__ and keep it. {_REPLAY}"
        )
    if reason:
        raise UnsupportedEnvError(f"{names[0]}: {reason}")


# -- What pickles of one environment refer to by number: names of attributes, classes, functions, named
# objects.
#
# They make up most of a pickle of a few attributes, and looking up classes by name takes most of the time to
# read it. With the names in the pickles, states of BabyAI-GoToLocal have a third more bytes, and saving and
# restoring them takes 1.7 times as long; MiniGrid-DoorKey, and CartPole below a wrapper of a user, 1.4 times.
# All of them are found in the first pickle after a reset, which is the same in every process.

# Pickles refer to the first 256 objects by two bytes. Further ones are left to the objects in the state.
_MAX_NUMBERED = 200
_TAKE_NEXT = pickle.NEXT_BUFFER + pickle.MEMOIZE + pickle.POP
_PLAIN_OBJECT = "object "
_DEFINITIONS = (type, types.FunctionType, types.BuiltinFunctionType)
_HAS_NO_NAMES = (str, bytes, bytearray, tuple, list, dict, set, frozenset, np.ndarray)


class NumberedObjects:
    """Numbers objects that a pickler need not write and an unpickler need not look up."""

    def __init__(self, objects: Mapping[str, object]) -> None:
        self._by_name = objects
        self._names = sorted(objects)[:_MAX_NUMBERED]
        self._objects = [objects[name] for name in self._names]
        # What a pickler knows at the start. Assigning the memo of another one copies it.
        self.known = pickle.Pickler(io.BytesIO(), protocol=5)
        self.known.memo = {id(obj): (index, obj) for index, obj in enumerate(self._objects)}
        # To the unpickler they are out-of-band buffers, which it takes one by one as they are.
        self._header = pickle.PROTO + b"\x05" + _TAKE_NEXT * len(self._objects)

    def with_objects(self, named: Mapping[str, object]) -> NumberedObjects:
        """Return the same numbers for another environment of the same kind."""
        return NumberedObjects(
            {
                text: named[text.removeprefix(_PLAIN_OBJECT)] if text.startswith(_PLAIN_OBJECT) else obj
                for text, obj in self._by_name.items()
            }
        )

    def names(self) -> list[str]:
        """Return the names, in the order of the numbers."""
        return self._names

    def loads(self, data: bytes) -> Any:
        """Return what such a pickler wrote."""
        return unpickle(self._header + data, buffers=self._objects)


NOTHING_NUMBERED = NumberedObjects({})


def numbered_in(
    attributes: Iterable[Mapping[str, object]], pickled: Iterable[object], named: Mapping[str, object]
) -> NumberedObjects:
    """Return what later pickles refer to by number, of what one has pickled."""
    objects: dict[str, Any] = {}
    names = {id(obj): name for name, obj in named.items()}
    for obj in pickled:
        if id(obj) in names:
            objects[_PLAIN_OBJECT + names[id(obj)]] = obj
        elif isinstance(obj, _DEFINITIONS):
            if isinstance(getattr(obj, "__self__", None), (types.ModuleType, types.NoneType)):  # no method
                objects[f"{obj.__module__}.{obj.__qualname__}"] = obj
        elif isinstance(obj, np.dtype):
            if obj is np.dtype(obj.str):
                objects[f"dtype {obj.str}"] = obj
        elif not isinstance(obj, _HAS_NO_NAMES):
            objects |= _attribute_names(attributes_of(obj))
    for of_one_object in attributes:
        objects |= _attribute_names(of_one_object)
    return NumberedObjects(objects)


def _attribute_names(attributes: Mapping[str, object]) -> dict[str, str]:
    # Equal names are one object in what follows, as Python's own compiler makes them.
    return {f"attribute {name}": sys.intern(name) for name in attributes}


def has_own_type(value: object) -> bool:
    """Return whether few other objects have the type of a value, so that a callback for it costs little."""
    kind = type(value)
    return kind is object or not (kind.__module__ == "builtins" or isinstance(value, np.ndarray))


_THOROUGH = b"T"  # First byte of what `ThoroughPickler` writes. A pickle begins with another byte.
_SET, _OBJECT = "set", "object"
# methods that decide how an object is pickled, and when its attributes are needed
_PICKLE_METHODS = (
    *("__reduce_ex__", "__reduce__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__"),
    "__hash__",
)
_HEAP_TYPE = 1 << 9  # flag of classes that Python code defines
# types that Python pickles without asking `FastPickler`
_CONTAINERS = (list, dict, tuple, set, frozenset, bytearray)


def _reduced(obj: object, short_forms: ShortForms, generators: list[Any]) -> Any:
    """Return the form in which both picklers write an object, and add it to generators; None: Python's."""
    if is_reseedable(obj):
        generators.append(obj)
    reduced = without_constructor(obj) or short_forms.reduce(obj)
    return reduced or reduce_library(obj) or with_own_setter(obj)


class FastPickler:
    """Pickles with callbacks for the types of named objects, generators and `EzPickle` objects alone."""

    def __init__(
        self,
        named: Iterable[object],
        kinds: Iterable[type],
        short_forms: ShortForms,
        numbered: NumberedObjects,
    ) -> None:
        self._short_forms = short_forms
        self._numbered = numbered
        self._file = io.BytesIO()
        self._pickler = pickle.Pickler(self._file, protocol=5)
        types = {type(obj) for obj in named} | {*RESEEDABLE, *PARTS, np.random.PCG64} | {*kinds}
        self._pickler.dispatch_table = {**copyreg.dispatch_table, **dict.fromkeys(types, self._reduce)}
        self._names: dict[int, str] = {}
        self.generators: list[Any] = []  # the random generators that were pickled last

    def dumps(self, value: object, names: dict[int, str]) -> bytes:
        """Pickle a value."""
        self._names, self.generators = names, []
        self._short_forms.begin()
        self._file.seek(0)
        self._file.truncate()
        self._pickler.memo = self._numbered.known.memo
        self._pickler.dump(value)
        return self._file.getvalue()

    def memorised(self) -> list[Any]:
        """Return the objects to which the pickle that was written last could refer a second time."""
        return [obj for _, obj in self._pickler.memo.copy().values()]

    def _reduce(self, obj: object) -> Any:
        name = self._names.get(id(obj))
        if name is not None:
            return Reading.named, (name,)
        kind: Any = type(obj)
        check_copyable(kind)
        return _reduced(obj, self._short_forms, self.generators) or obj.__reduce_ex__(5)


class _FrozenElements:
    """Stands for a frozen set, and is pickled as one with its elements in order."""

    def __init__(self, elements: list[Any]) -> None:
        self._elements = elements

    def __reduce__(self) -> Any:
        return frozenset, ([*self._elements],)  # a new list each time: an element may hold the set, too


class ThoroughPickler(pickle.Pickler):
    """Pickles with a callback for every object."""

    # The elements of sets are written after everything else, as pickles that share one memo. With `is_deep`,
    # so are the attributes of ordinary objects: then a chain of objects needs no recursion.

    def __init__(
        self,
        names: dict[int, str],
        short_forms: ShortForms,
        is_deep: bool = False,
        finds_tables: bool = False,
    ) -> None:
        self._short_forms = short_forms
        self._file = io.BytesIO()
        super().__init__(self._file, protocol=5)
        self._names = names
        self._is_deep = is_deep
        self._finds_tables = finds_tables
        self._later: list[Any] = []
        self._indices: dict[int, int] = {}
        self._frozen: dict[int, _FrozenElements] = {}
        self.generators: list[Any] = []  # the random generators that were pickled
        self.needs_callbacks = is_deep  # whether `FastPickler` would write something else
        self.has_sets = False  # whether a set was pickled
        self.kinds: set[type] = set()  # types for which `FastPickler` needs a callback

    def dumps(self, value: object) -> bytes:
        """Pickle a value. To be called once."""
        self._short_forms.begin()
        self._file.write(_THOROUGH)
        self._orders = ElementOrders([value], self._names)
        self.dump(value)
        for content in self._later:  # grows in this loop
            self.dump(content)
        return self._file.getvalue()

    def persistent_id(self, obj: object) -> Any:
        name = self._names.get(id(obj))
        kind: Any = type(obj)
        if name is not None:
            if kind in _CONTAINERS or (kind.__module__ == "builtins" and kind is not object):
                self.needs_callbacks = True
            else:
                self.kinds.add(kind)
            return name
        check_copyable(kind)
        if kind is set or kind is ShuffledSet:
            self.needs_callbacks = self.has_sets = True
            return (_SET, self._index(obj, lambda: self._orders.of(obj)))
        if kind is frozenset or kind is ShuffledFrozenSet:
            self.needs_callbacks = self.has_sets = True
            if id(obj) not in self._frozen:
                self._frozen[id(obj)] = _FrozenElements(self._orders.of(obj))
            return self._frozen[id(obj)]
        if self._is_deep and _is_ordinary(kind):
            return (_OBJECT, self._index(obj, lambda: attributes_of(obj)), kind)
        return None

    def _index(self, obj: object, content: Any) -> int:
        index = self._indices.get(id(obj))
        if index is None:
            index = self._indices[id(obj)] = len(self._later)
            self._later.append(content())
        return index

    def reducer_override(self, obj: object) -> Any:
        if self._finds_tables:
            self._short_forms.tables.add(obj)
        reduced = _reduced(obj, self._short_forms, self.generators)
        if reduced is not None:
            self.kinds.add(type(obj))
            return reduced
        if isinstance(obj, (set, frozenset)):  # of a class of its own: the elements are put in order
            self.needs_callbacks = self.has_sets = True
            own: Any = type(obj).__reduce__
            if own is set.__reduce__ or own is frozenset.__reduce__:
                reduced = own(obj)
                return reduced[0], (self._orders.of(obj),), *reduced[2:]
        return NotImplemented


def _is_ordinary(kind: type) -> bool:
    """Return whether objects of a class are pickled by their attributes and are hashed by identity."""
    return (
        all(base is object or base.__flags__ & _HEAP_TYPE for base in kind.__mro__)
        and all(getattr(kind, name, None) is getattr(object, name, None) for name in _PICKLE_METHODS)
        and not issubclass(kind, (type, BaseException, *_CONTAINERS, *ATOMS[:-1]))
    )


class _Unpickler(pickle.Unpickler):
    """Reads what `ThoroughPickler` wrote."""

    def __init__(self, file: io.BytesIO, named: dict[str, Any], order_of_sets: int | None) -> None:
        super().__init__(file)
        self._named = named
        self._set: type[set[Any]] = set
        self._frozenset: type[frozenset[Any]] = frozenset
        if order_of_sets is not None:
            self._set, self._frozenset = ShuffledSet, ShuffledFrozenSet
            choose_order(order_of_sets)
        self.later: dict[int, Any] = {}

    def find_class(self, module: str, name: str) -> Any:
        check_name(module, name)
        if (module, name) == ("builtins", "frozenset"):
            return self._frozenset
        return super().find_class(module, name)

    def persistent_load(self, pid: Any) -> Any:
        if isinstance(pid, str):
            return self._named[pid]
        if isinstance(pid, frozenset):
            return pid
        index = pid[1]
        if index not in self.later:
            self.later[index] = self._set() if pid[0] == _SET else new_object(pid[2])
        return self.later[index]


def load_graph(
    data: bytes,  # the bytes
    named: dict[str, Any],
    short_forms: ShortForms,
    numbered: NumberedObjects,
    order_of_sets: int | None,
) -> Any:
    """Read what one of the picklers wrote."""
    Reading.begin(named, short_forms)
    if data[:1] != _THOROUGH:
        return numbered.loads(data)
    file = io.BytesIO(data)
    file.seek(1)
    unpickler = _Unpickler(file, named, order_of_sets)
    value = unpickler.load()
    contents: list[tuple[Any, Any]] = []
    while len(contents) < len(unpickler.later):
        content = unpickler.load()
        contents.append((unpickler.later[len(contents)], content))
    for target, content in contents:
        if not isinstance(target, set):
            set_attributes(target, content)
    for target, content in contents:
        if isinstance(target, set):
            target.update(content)
    return value
