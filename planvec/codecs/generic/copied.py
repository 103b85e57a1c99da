"""Codecs for plain Python environments and for unknown wrappers: a pickle of the attributes that may change.

`attributes` describes which attributes are left out, and `survey` which objects are referred to by name.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from planvec.codecs import generator
from planvec.codecs.base import Codec, WrapperCodec, layer_name, layers_by_name
from planvec.codecs.generic.attributes import Attributes, attributes_of, names_in_code, reseed_generators
from planvec.codecs.generic.graph import ObjectGraph
from planvec.codecs.generic.structure import SHARED_MEMORY
from planvec.errors import UnsupportedEnvError


class GraphCodec:
    """Defines the methods by which an `ObjectGraph` saves an object: an environment or a wrapper."""

    graph: ObjectGraph  # Saves the attributes of the object. `registry` joins the graphs of all layers.
    caches: Sequence[str] = ()  # variables beside the environment that may change; see `Copied`

    def before_reset(self, saved: Any) -> None:
        self.graph.restore_initial()

    def get(self, saved: Any) -> Any:
        return self.graph.save()

    def set(self, saved: Any, value: Any) -> None:
        self.graph.restore(value)

    def digests(self, saved: Any) -> dict[str, bytes]:
        """Return a digest of each attribute that is saved."""
        return self.graph.digests()

    def reseed(self, saved: Any, seed: int) -> None:
        """Reseed the generators that the object keeps, apart from the `np_random` of an environment."""
        reseed_generators(self.graph.generators(), seed)


class CopiedCodec(GraphCodec, Codec):
    """Saves the attributes of the unwrapped environment."""

    how = "a pickle of the attributes"

    def __init__(
        self, env: gymnasium.Env[Any, Any], constants: Sequence[str] = (), caches: Sequence[str] = ()
    ) -> None:
        self.caches = caches
        vars(env).setdefault("_np_random", None)
        # The generator is saved separately: that takes 1 us, pickling it would take 50.
        present = attributes_of(env)
        later = [name for name in constants if name not in present and name in _names_in_methods(type(env))]
        now = [name for name in constants if name not in later]
        attributes = Attributes(env, layer_name(env), [*now, "_np_random"], later)
        self.graph = ObjectGraph([attributes], layers_by_name(env), env)


def _names_in_methods(cls: type) -> set[str]:
    """Return the names of attributes that the methods of a class read or set, and others."""
    # Attributes that `reset` or `step` sets do not exist yet when the environment is opened.
    values = [value for base in cls.__mro__ for value in vars(base).values()]
    return set().union(*(names_in_code(value.__code__) for value in values if hasattr(value, "__code__")))


class CopiedWrapperCodec(GraphCodec, WrapperCodec):
    """Saves the attributes of a wrapper that planvec does not know."""

    draws = True

    def __init__(self, wrapper: Any) -> None:
        base = wrapper.unwrapped
        for name, value in vars(wrapper).items():
            if type(value).__name__ == "ALEInterface":  # planvec has replaced it in the environment
                setattr(wrapper, name, base.ale)
        attributes = Attributes(wrapper, layer_name(wrapper), ["env"])
        self.graph = ObjectGraph([attributes], layers_by_name(wrapper), base)


class Copied:
    """Makes a codec that copies all attributes except the named ones, which never change.

    `codec=planvec.Copied(["table"])` is `codec="copied"` without the attribute `table`.

    Args:
        constants: Attribute names of the unwrapped environment. `__init__`, `reset` or `step` sets them.
        caches: Variables of modules and classes that steps may change because they have no influence on
            results, by their paths ("my_package.rocket.TABLE"). All others must not change.

    Raises:
        TypeError: An argument is one text instead of a list of them.
    """

    def __init__(self, constants: Sequence[str] = (), *, caches: Sequence[str] = ()) -> None:
        for argument, names in (("constants", constants), ("caches", caches)):
            if isinstance(names, str):
                raise TypeError(f"{argument}: expected a list of names, got {names!r}; pass [{names!r}]")
        self.constants = tuple(constants)
        self.caches = tuple(caches)

    def __call__(self, env: gymnasium.Env[Any, Any]) -> CopiedCodec:
        return CopiedCodec(env, self.constants, self.caches)


# -- Reads and writes one attribute as a field of a record, without a change of its type ---------------------

# stands for the value of an attribute that does not exist
MISSING: Any = type("Missing", (), {"__deepcopy__": lambda self, memo: self})()

_DTYPES: dict[type, str] = {bool: "?", int: "<i8", float: "<f8"}


class NamedField(NamedTuple):
    """Describes an attribute: a number or an array."""

    # NumPy rounds by the types of numbers, so each is restored with the type that it had after a reset.

    owner: str  # name of the class of the environment
    name: str  # name of the attribute
    kind: Any  # the type of its value
    dtype: np.dtype[Any]
    shape: tuple[int, ...]  # the shape of the array; () for a number

    @classmethod
    def of(cls, env: Any, name: str) -> NamedField:
        """Return the field of an attribute."""
        value = getattr(env, name)
        kind, owner = type(value), type(env).__name__
        if kind in _DTYPES:
            return cls(owner, name, kind, np.dtype(_DTYPES[kind]), ())
        if isinstance(value, np.generic) or kind is np.ndarray:
            dtype = value.dtype.newbyteorder("<")
            if dtype.kind in "fiub" and dtype.itemsize <= 8 and value.size:
                return cls(owner, name, kind, dtype, value.shape)
        raise UnsupportedEnvError(
            f"state: expected attributes of {owner} that are numbers or arrays of numbers, got {name} = "
            f"{value!r:.100} of type {kind.__name__}. Let the environment keep an array, or several numbers"
        )

    def get(self, env: Any) -> Any:
        """Return the value of the attribute: a number, or a copy of an array."""
        value: Any = getattr(env, self.name)
        if type(value) is self.kind:
            if self.kind is not np.ndarray:
                return value
            array: NDArray[Any] = value
            if array.shape == self.shape and array.dtype == self.dtype:
                return array.copy()
        elif self._is_alike(value):
            return value
        expected, got = self.kind.__name__, f"{value!r:.100} of type {type(value).__name__}"
        if self.kind is np.ndarray:
            expected = f"{self.dtype}{list(self.shape)}"
        if isinstance(value, np.ndarray):
            got = f"{value.dtype}{list(value.shape)}"
        raise UnsupportedEnvError(
            f"{self.owner}.{self.name}: expected {expected} as after a reset, got {got}. NumPy rounds by the "
            "types of numbers: let reset and step assign values of one type"
        )

    def _is_alike(self, value: Any) -> bool:
        """Return whether a number has another type that computes alike: of Python or of NumPy."""
        # The verification compares steps with both. An int, as `max(0, x)` returns it, may stand for a float.
        if self.kind is np.ndarray or not isinstance(value, (bool, int, float, np.generic)):
            return False
        if type(value) is int and self.dtype == np.float64:
            return value == float(value)
        return bool(np.asarray(value).dtype == self.dtype)

    def restored(self, value: Any) -> Any:
        """Return a value with the type that it had after a reset; an array is a copy."""
        if self.kind is np.ndarray:
            return np.array(value, self.dtype)
        return value if type(value) is self.kind else self.kind(value)


# -- A codec for environments whose state is a few named attributes: numbers and arrays of fixed size.
#
# All other attributes must never change. The verification by replay compares digests of them, too, so that an
# attribute that is not named and changes is an error.


@dataclass(frozen=True)
class Named:
    """Makes a codec that saves the named attributes of an environment."""

    state: tuple[str, ...]  # names of the attributes that make up the state, in order
    ignored: tuple[str, ...]  # names of attributes that may change, since they have no influence on results
    # names of attributes that may differ between two environments, but not between workers
    constants: tuple[str, ...]
    draws: bool  # whether steps draw from `env.np_random`
    # `observe(env, values)` returns the observation of a state from the values of `state`; None if it cannot
    # be computed
    observe: Callable[[Any, tuple[Any, ...]], Any]

    @property
    def advice(self) -> str:
        """How to fix states that are not restored exactly, for the error."""
        advice = (
            f"The state of this environment was declared as the attributes {list(self.state)}. Name all "
            "attributes that change in state=, except those without influence on results (a clock, a cache), "
            "which belong in ignored="
        )
        return advice if self.draws else f"{advice}. If steps draw from np_random, let step take `random`"

    def __call__(self, env: gymnasium.Env[Any, Any]) -> NamedCodec:
        return NamedCodec(env, self)


class NamedCodec(GraphCodec, Codec):
    """Saves the named attributes of an environment; see `Named`."""

    how = "named attributes"

    def __init__(self, env: gymnasium.Env[Any, Any], choice: Named) -> None:
        self._choice = choice
        self.draws, self.constants = choice.draws, choice.constants
        vars(env).setdefault("_np_random", None)
        left_out = (*choice.state, *choice.ignored, "_np_random_seed")
        attributes = Attributes(env, layer_name(env), ["_np_random"], left_out)
        self.graph = ObjectGraph([attributes], layers_by_name(env), env)
        present = attributes_of(env)
        self._initial = {name: copy.deepcopy(present.get(name, MISSING)) for name in choice.state}
        self._fields: tuple[NamedField, ...] = ()
        self._drawn_from: Any = None

    def after_first_reset(self, env: Any) -> None:
        missing = [name for name in self._choice.state if not hasattr(env, name)]
        if missing:
            present = sorted(name for name in vars(env) if not name.startswith("_"))
            raise UnsupportedEnvError(
                f"state: expected names of attributes of {type(env).__name__}, {present}; got {missing}"
            )
        self._fields = tuple(NamedField.of(env, name) for name in self._choice.state)
        self.dtype = np.dtype([(field.name, field.dtype, field.shape) for field in self._fields])

    def before_reset(self, saved: Any) -> None:
        if not self._fields:  # what the first walk has changed shows in the next one
            self.graph.restore_initial()
        self._drawn_from = None
        for name, value in self._initial.items():
            if value is not MISSING:
                setattr(saved, name, copy.deepcopy(value))
            elif name in attributes_of(saved):
                delattr(saved, name)

    def get(self, saved: Any) -> Any:
        return tuple([field.get(saved) for field in self._fields])

    def set(self, saved: Any, value: Any) -> None:
        for field, number in zip(self._fields, value, strict=True):
            setattr(saved, field.name, field.restored(number))

    def observe(self, env: Any) -> Any:
        return self._choice.observe(env, self.get(env))

    def reseed(self, saved: Any, seed: int) -> None:
        """Do nothing: all generators but `np_random` never change."""

    def digests(self, saved: Any) -> dict[str, bytes]:
        """Return a digest of each attribute, and one that tells whether steps have drawn from `np_random`."""
        # Without draws, the generator changes in resets alone.
        others = {name: value for name, value in self.graph.digests().items() if name != SHARED_MEMORY}
        digests = {
            f"the attribute {name.rpartition('.')[2]}": value
            for name, value in [*Codec.digests(self, saved).items(), *others.items()]
        }
        if not self.draws:
            present = generator.get_generator(saved)
            if self._drawn_from is None:
                self._drawn_from = present
            digests["the generator np_random"] = bytes(present != self._drawn_from)
        return digests


def names_of(argument: str, names: Sequence[str] | str) -> tuple[str, ...]:
    """Return the names of attributes that a user has given: one or several."""
    listed = (names,) if isinstance(names, str) else tuple(names)
    if not all(isinstance(name, str) for name in listed) or len(set(listed)) < len(listed):
        raise TypeError(f"{argument}: expected different names of attributes, got {names!r}")
    return listed
