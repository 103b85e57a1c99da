"""Separates the attributes of one object into those that are saved and those that never change.

Spaces, the spec, functions, modules and classes are left out as long as an attribute holds the same object as
at the start. So are the attributes that the user names as constant. Everything else is saved every time,
since an attribute that has not changed yet may still change.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from planvec.codecs.generic.generators import hidden_generator
from planvec.errors import UnsupportedEnvError

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


def is_compiled_function(value: Any) -> bool:
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


def attributes_of(obj: Any) -> dict[str, Any]:
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


def spaces_in(space: gymnasium.Space[Any]) -> list[gymnasium.Space[Any]]:
    """Return a space and all spaces in it."""
    found = [space]
    for value in vars(space).values():
        children = value.values() if isinstance(value, dict) else value
        if isinstance(children, gymnasium.Space):
            found += spaces_in(children)
        elif isinstance(children, (list, tuple, type({}.values()))):
            for child in children:
                found += spaces_in(child) if isinstance(child, gymnasium.Space) else []
    return found


def _is_constant(value: Any, target: Any) -> bool:
    """Return whether a value is left out of the pickle as long as an attribute holds it."""
    # A method of another object is saved together with that object, which may change.
    owner = getattr(value, "__self__", None)
    if isinstance(value, (types.MethodType, types.BuiltinFunctionType)):
        return owner is None or owner is target or isinstance(owner, (types.ModuleType, type))
    return value is None or isinstance(value, _CONSTANT_TYPES) or is_compiled_function(value)


def _is_render_mode(name: str, value: Any) -> bool:
    """Return whether an attribute is Gymnasium's render mode."""
    # It is left out, so that an environment that renders takes the states of one that does not.
    return name == "render_mode" and isinstance(value, str)


def _unseeded(space: gymnasium.Space[Any]) -> gymnasium.Space[Any]:
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

    def __init__(self, target: Any, name: str, left_out: Sequence[str], later: Sequence[str] = ()) -> None:
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
