"""Separates the attributes of one object into those that are saved and those that never change.

Spaces, the spec, functions, modules and classes are left out as long as an attribute holds the same object as
at the start. So are the attributes that the user names as constant. Everything else is saved every time,
since an attribute that has not changed yet may still change.
"""

from __future__ import annotations

import bisect
import contextlib
import copy
import enum
import functools
import inspect
import random
import struct
import types
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from planvec.codecs.compare import dtype_text
from planvec.errors import UnsupportedEnvError

# -- Reads what functions use: the variables in their closures, and the names in their code ------------------


def cell_contents(cells: Iterable[types.CellType]) -> list[Any]:
    """Return the values of cells, without the variables that have no value yet."""
    contents = []
    for cell in cells:
        try:
            contents.append(cell.cell_contents)
        except ValueError:
            continue
    return contents


def names_in_code(code: types.CodeType) -> set[str]:
    """Return the names of attributes and of globals in the code of a function and of functions inside it."""
    inner = (names_in_code(part) for part in code.co_consts if isinstance(part, types.CodeType))
    return set(code.co_names).union(*inner)


# -- Random generators among the attributes of an object -----------------------------------------------------

# the types of generators that `reseed_generators` takes
RESEEDABLE = (np.random.Generator, np.random.RandomState, random.Random)
_GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator)


def is_reseedable(value: object) -> bool:
    """Return whether `reseed_generators` takes a value: one of `RESEEDABLE`, or a generator of PyTorch."""
    return isinstance(value, RESEEDABLE) or _is_of_torch(value)


def _is_of_torch(value: object) -> bool:
    return (type(value).__module__, type(value).__name__) == ("torch._C", "Generator")


def hidden_generator(value: object, seen: set[int] | None = None) -> bool:
    """Return whether a function holds a random generator in a place where it cannot be saved."""
    # `seen` has the ids of the functions before it: they may hold each other.
    seen = set() if seen is None else seen
    function = getattr(value, "__func__", value)
    if id(function) in seen:
        return False
    seen.add(id(function))
    cells = getattr(function, "__closure__", None) or ()
    defaults = getattr(function, "__defaults__", None) or ()
    inner: list[Any] = [*defaults, getattr(value, "__self__", None), *cell_contents(cells)]
    return any(
        isinstance(item, (*_GENERATORS, types.GeneratorType))
        or type(item).__module__ == "random"
        or _is_of_torch(item)
        or (isinstance(item, types.FunctionType) and hidden_generator(item, seen))
        for item in inner
    )


def reseed_generators(generators: Sequence[Any], seed: int) -> None:
    """Seed each generator from its own stream, derived from the seed and its index."""
    for index, generator in enumerate(generators):
        sequence = np.random.SeedSequence([seed, index])
        if isinstance(generator, np.random.Generator):
            bit_generator: Any = type(generator.bit_generator)
            generator.bit_generator.state = bit_generator(sequence).state
        elif isinstance(generator, np.random.RandomState):
            generator.seed(sequence.generate_state(8))
        elif _is_of_torch(generator):
            generator.manual_seed(int(sequence.generate_state(1, np.uint64)[0]))
        else:
            generator.seed(int.from_bytes(sequence.generate_state(8).tobytes(), "little"))


ADVICE = (
    "Register a codec for it (planvec.register_codec), or, if it restarts exactly from a seed, pass "
    'codec="replay"'
)

_CONSTANT_TYPES = (
    gymnasium.Space,
    EnvSpec,
    types.ModuleType,
    types.FunctionType,
    type,
)
# packages whose functions are compiled: they can be called, but hold nothing that changes
_COMPILERS = ("jax", "jaxlib", "numba")


def is_compiled_function(value: object) -> bool:
    """Return whether a value is a function that JAX or numba compiles."""
    return callable(value) and type(value).__module__.partition(".")[0] in _COMPILERS


def slot_names(cls: type) -> tuple[str, ...]:
    """Return the names of the attributes that a class and its bases keep in `__slots__`."""
    names: dict[str, None] = {}
    for base in cls.__mro__:
        slots: Any = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__"):
                is_private = name.startswith("__") and not name.endswith("__")
                names[f"_{base.__name__.lstrip('_')}{name}" if is_private else name] = None
    return tuple(names)


def attributes_of(obj: object) -> dict[str, Any]:
    """Return the attributes of an object, those in `__slots__` included, in no particular order."""
    # A `__getattr__` of its class does not count: it may have an answer for any name, `__dict__` included.
    own = getattr(obj, "__dict__", None)
    attributes: dict[str, Any] = dict(own) if isinstance(own, (dict, types.MappingProxyType)) else {}
    for name in slot_names(type(obj)):
        try:
            attributes[name] = object.__getattribute__(obj, name)
        except AttributeError:  # it is not set
            continue
    return attributes


def _is_constant(value: object, target: object) -> bool:
    """Return whether a value is left out of the pickle as long as an attribute holds it."""
    # A method of another object is saved together with that object, which may change.
    owner = getattr(value, "__self__", None)
    if isinstance(value, (types.MethodType, types.BuiltinFunctionType)):
        return owner is None or owner is target or isinstance(owner, (types.ModuleType, type))
    return value is None or isinstance(value, _CONSTANT_TYPES) or is_compiled_function(value)


def _is_render_mode(name: str, value: object) -> bool:
    """Return whether an attribute is Gymnasium's render mode."""
    # It is left out, so that an environment that renders takes the states of one that does not.
    return name == "render_mode" and isinstance(value, str)


def _unseeded(space: gymnasium.Space[object]) -> gymnasium.Space[Any]:
    """Return a copy of a space without its generator, which is seeded by the time of day."""
    unseeded = copy.copy(space)
    unseeded._np_random = None  # type: ignore[assignment]
    if isinstance(space, (gymnasium.spaces.Dict, gymnasium.spaces.Tuple)):
        children: Any = space.spaces
        items = children.items() if isinstance(children, dict) else enumerate(children)
        inner = {key: _unseeded(child) for key, child in items}
        unseeded.spaces = inner if isinstance(children, dict) else tuple(inner.values())  # type: ignore[attr-defined]
    return unseeded


class Attributes:
    """Reads and writes the attributes of one object that may change."""

    def __init__(self, target: object, name: str, left_out: Sequence[str], later: Sequence[str] = ()) -> None:
        self.target = target  # the object
        self.name = name  # the name by which pickles refer to it
        self._slots = slot_names(type(target))
        attributes = self._read()
        missing = [key for key in left_out if key not in attributes]
        if missing:
            raise UnsupportedEnvError(
                f"constants: expected names of attributes of {type(target).__name__}, {sorted(attributes)}, "
                f"or of those that its methods set later; got {missing}"
            )
        self._left_out = {*left_out, *later}
        self._constants = {
            key: value
            for key, value in attributes.items()
            if key not in self._left_out and (_is_constant(value, target) or _is_render_mode(key, value))
        }
        self._kept = self._constants.keys() | self._left_out
        self._order = sorted(attributes)
        for key, value in self._constants.items():
            if hidden_generator(value):
                raise UnsupportedEnvError(
                    f"{type(target).__name__}.{key}: a random generator is hidden inside this "
                    f"function, where it cannot be saved. Draw from self.np_random instead. {ADVICE}"
                )

    def _read(self) -> dict[str, Any]:
        """Return all attributes, in no particular order."""
        return attributes_of(self.target) if self._slots else vars(self.target)

    def constants(self) -> Iterator[tuple[str, Any]]:
        """Iterate over the names and values that are left out as long as they stay the same."""
        for key, value in self._constants.items():
            if value is not None and not _is_render_mode(key, value):
                yield f"{self.name}.{key}", value

    def changing(self) -> dict[str, Any]:
        """Return the attributes that are saved."""
        # They are sorted, because their order depends on the steps taken before, which are not part of the
        # state.
        attributes, constants = self._read(), self._constants
        if len(self._order) != len(attributes) or not all(map(attributes.__contains__, self._order)):
            self._order = sorted(attributes)
        changing = {}
        for key in self._order:
            value = attributes[key]
            if key in self._left_out or (key in constants and value is constants[key]):
                continue
            changing[key] = _unseeded(value) if isinstance(value, gymnasium.Space) else value
        return changing

    def update(self, changing: dict[str, Any]) -> None:
        """Set the attributes to values that `changing` returned. Remove those that did not exist then."""
        if self._slots:
            for key in self._read().keys() - changing.keys() - self._kept:
                delattr(self.target, key)
            for key, value in (self._constants | changing).items():
                setattr(self.target, key, value)
            return
        attributes = vars(self.target)
        for key in attributes.keys() - changing.keys() - self._kept:
            del attributes[key]
        attributes.update(self._constants)
        attributes.update(changing)


# -- Recognises the objects of simulators, which are referred to by name and never copied.
#
# What they hold lies in the memory of a C library. The codec of the simulator's family saves it.

# modules that define the objects of simulators, their renderers and indices, with their submodules; classes
_MODULES = (
    *("ale_py._ale_py", "mujoco", "dm_control.mujoco", "dm_control.mjcf", "dm_control._render"),
    *("pygame.font", "pygame.freetype", "pygame.mixer.Sound"),
    *(
        "stable_retro._retro",
        "gymnasium.envs.mujoco.mujoco_rendering",
        "gymnasium_robotics.utils.mujoco_utils",
    ),
)
_PREFIXES = tuple(f"{name}." for name in _MODULES)


def is_simulator_object(value: object) -> bool:
    """Return whether a value belongs to a simulator or a renderer."""
    kind: Any = type(value)
    return is_simulator_type(kind)


@functools.cache
def is_simulator_type(kind: Any) -> bool:
    """Return whether a class, or one of its bases, is defined by a simulator or a renderer."""
    bases = (f"{getattr(base, '__module__', '')}.{base.__qualname__}" for base in kind.__mro__)
    return any(map(is_simulator_module, bases))


def is_simulator_module(name: str) -> bool:
    """Return whether a module belongs to a simulator or a renderer."""
    return f"{name}.".startswith(_PREFIXES)


def settings_of(value: object) -> list[object]:
    """Return what can be set of a font or a sound of pygame; [] for anything else."""
    kind: Any = type(value)
    if not is_simulator_type(kind):
        return []
    bases = [base for base in kind.__mro__ if getattr(base, "__module__", "").startswith("pygame.")]
    settings: list[object] = []
    for name, item in [pair for base in bases for pair in vars(base).items()]:
        if inspect.isgetsetdescriptor(item):
            with contextlib.suppress(Exception):  # of a font of fixed size
                settings.append((name, repr(getattr(value, name))))
    if bases and hasattr(value, "get_volume"):
        settings.append(value.get_volume())
    return settings


# -- Values without identity (numbers, text, definitions): bytes that stand for them, their order in
# sets.
#
# The bytes and the order are the same in every process, however a set was filled.

ATOMS = (str, bytes, int, float, bool, complex, type(None))  # numbers and text of Python
_PLAIN = (*ATOMS, np.generic, enum.Enum, type)


def token_of_atom(value: object) -> bytes | None:
    """Return the bytes of a value without identity; None for any other."""
    if isinstance(value, enum.Enum):  # one object for each name
        return f"{type(value).__module__}.{type(value).__qualname__}.{value._name_};".encode()
    if isinstance(value, float):
        return b"float" + struct.pack("<d", value)
    if value is None or isinstance(value, (bool, int, complex, range)) or value is Ellipsis:
        return f"{type(value).__name__} {value!r};".encode()
    if isinstance(value, str):
        return f"{type(value).__name__} {len(value)} {value};".encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return f"bytes {len(value)};".encode() + value
    if isinstance(value, np.generic) and not value.dtype.hasobject:
        return f"scalar {dtype_text(value.dtype)};".encode() + value.tobytes()
    if isinstance(value, np.dtype):
        return f"dtype {dtype_text(value)};".encode()
    if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
        return f"{value.__module__}.{value.__qualname__};".encode()
    if is_compiled_function(value):
        return f"compiled {getattr(value, '__name__', '')};".encode()
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__};".encode()
    return None


def sort_key(element: object) -> tuple[str, bytes]:
    """Return a key that sorts the elements of a plain set."""
    kind = type(element)
    if isinstance(element, (tuple, frozenset)):
        keys = [sort_key(part) for part in element]
        token = repr(keys if isinstance(element, tuple) else sorted(keys)).encode()
    else:
        token = token_of_atom(element) or b""
    return f"{kind.__module__}.{kind.__qualname__}", token


def is_plain(elements: Collection[object]) -> bool:
    """Return whether a collection holds only values without identity, and tuples and frozen sets of them."""
    return all(
        isinstance(element, _PLAIN) or (isinstance(element, (tuple, frozenset)) and is_plain(element))
        for element in elements
    )


# -- Arrays in the memory of a C library, whose content a codec saves: states refer to their places ----------

# name of the array that owns the memory, offset in bytes, shape, strides, dtype
Place = tuple[str, int, tuple[int, ...], tuple[int, ...], str]


class LibraryMemory:
    """Tells where in the memory of a library an array lies, and makes it again."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._arrays = arrays
        self._starts = sorted((int(array.ctypes.data), name) for name, array in arrays.items() if array.size)

    def place_of(self, array: np.ndarray) -> Place | None:
        """Return the place of an array; None if it lies elsewhere."""
        if array.base is None or not is_in_library(array):
            return None
        address = int(array.ctypes.data)
        index = bisect.bisect_right(self._starts, (address, "\uffff")) - 1
        if index >= 0:
            start, name = self._starts[index]
            if address < start + self._arrays[name].nbytes:
                return name, address - start, array.shape, array.strides, array.dtype.str
        raise UnsupportedEnvError(
            "view of memory of the simulator that planvec does not save (a contact, a picture). Copy it"
        )

    def array_at(self, place: Place) -> np.ndarray:
        """Return an array at a place."""
        name, offset, shape, strides, dtype = place
        buffer: Any = self._arrays[name]
        return np.ndarray(shape, dtype, buffer, offset, strides)


def is_in_library(array: np.ndarray) -> bool:
    """Return whether an array is a view of memory that a C library owns."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return type(owner).__name__ == "PyCapsule"
