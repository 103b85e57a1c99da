"""Plain Python environments: a pickle of the attributes that may change.

Left out are spaces, the spec, functions, modules and classes, for as long as an attribute still holds the
object that it held at the start, and what the user names as constant. Everything else is saved every
time: an attribute that merely has not changed yet is no constant.
"""

from __future__ import annotations

import io
import pickle
import random
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import EzPickle

from planvec.codecs.base import Codec, WrapperCodec
from planvec.errors import UnsupportedEnvError

__all__ = ["ADVICE", "Copied", "CopiedCodec", "CopiedWrapperCodec", "hidden_generator"]

ADVICE = (
    "Register a codec for it (planvec.register_codec), or, where it restarts exactly from a seed, pass "
    'codec="replay"'
)

_CONSTANT_TYPES = (
    gymnasium.Space,
    EnvSpec,
    types.ModuleType,
    types.FunctionType,
    type,
)
_RESEEDABLE = (np.random.Generator, np.random.RandomState, random.Random)
_GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator)


def hidden_generator(value: Any) -> bool:
    """Whether a function holds a random generator where it cannot be saved."""
    function = getattr(value, "__func__", value)
    cells = getattr(function, "__closure__", None) or ()
    defaults = getattr(function, "__defaults__", None) or ()
    inner: list[Any] = [*defaults, getattr(value, "__self__", None)]
    for cell in cells:
        try:
            inner.append(cell.cell_contents)
        except ValueError:  # not filled yet
            continue
    return any(
        isinstance(item, (*_GENERATORS, types.GeneratorType))
        or type(item).__module__ == "random"
        or (isinstance(item, types.FunctionType) and hidden_generator(item))
        for item in inner
    )


def _is_constant(value: Any, target: Any) -> bool:
    """Whether a value stays out of the pickle for as long as an attribute holds it.

    A method of some other object is saved together with that object, which may change.
    """
    owner = getattr(value, "__self__", None)
    if isinstance(value, (types.MethodType, types.BuiltinFunctionType)):
        return owner is None or owner is target or isinstance(owner, (types.ModuleType, type))
    return value is None or isinstance(value, _CONSTANT_TYPES)


class _Pickler(pickle.Pickler):
    """Pickles references to the environment and its parts by name instead of copying them.

    Attributes:
        generators: The random generators that it came across.
    """

    def __init__(self, file: io.BytesIO, names: dict[int, str]) -> None:
        super().__init__(file, protocol=5)
        self._names = names
        self.generators: list[Any] = []

    def reducer_override(self, obj: Any) -> Any:
        name = self._names.get(id(obj))
        if name is not None:
            return _Named.resolve, (name,)
        if isinstance(obj, _RESEEDABLE):
            self.generators.append(obj)
        return NotImplemented


class _Named(threading.local):
    """Where the names are looked up while a pickle is being read."""

    objects: ClassVar[dict[str, Any]] = {}

    @staticmethod
    def resolve(name: str) -> Any:
        return _named.objects[name]


_named = _Named()


class _Sorted:
    """A set with its elements in an order that does not depend on the process (its hash seed)."""

    def __init__(self, elements: Any) -> None:
        self._elements = elements

    def __reduce__(self) -> Any:
        return type(self._elements), (sorted(self._elements, key=repr),)


def _reseed(generators: Sequence[Any], seed: int) -> None:
    """Seed each generator from a stream of its own."""
    for index, generator in enumerate(generators):
        sequence = np.random.SeedSequence([seed, index])
        if isinstance(generator, np.random.Generator):
            bit_generator: Any = type(generator.bit_generator)
            generator.bit_generator.state = bit_generator(sequence).state
        elif isinstance(generator, np.random.RandomState):
            generator.seed(sequence.generate_state(8))
        else:
            generator.seed(int.from_bytes(sequence.generate_state(8).tobytes(), "little"))


class _Attributes:
    """The attributes of one object, saved and restored together as one graph of objects.

    Args:
        target: The object.
        constants: Names of attributes that are left out whatever they hold.
        keep: Gives the objects, by name, that are referred to and never copied.
    """

    def __init__(self, target: Any, constants: Sequence[str], keep: Callable[[], dict[str, Any]]) -> None:
        attributes = vars(target)
        missing = [name for name in constants if name not in attributes]
        if missing:
            raise UnsupportedEnvError(
                f"constants: {type(target).__name__} has no attributes {missing}; it has {sorted(attributes)}"
            )
        self._target = target
        self._left_out = set(constants)
        self._constants = {
            name: value
            for name, value in attributes.items()
            if name not in self._left_out and _is_constant(value, target)
        }
        self._keep = keep
        for name, value in self._constants.items():
            if hidden_generator(value):
                raise UnsupportedEnvError(
                    f"{type(target).__name__}.{name}: a random generator is hidden inside this "
                    f"function, where it cannot be saved; draw from self.np_random. {ADVICE}"
                )
        self._new = self.save()

    def _references(self) -> dict[str, Any]:
        constants = {name: value for name, value in self._constants.items() if value is not None}
        return {**constants, **self._keep()}

    def save(self) -> bytes:
        """The attributes as they are now.

        Raises:
            UnsupportedEnvError: One cannot be pickled.
        """
        return self._dump()[0]

    def generators(self) -> list[Any]:
        """The random generators among the attributes, and inside them."""
        return self._dump()[1]

    def _dump(self) -> tuple[bytes, list[Any]]:
        constants = self._constants
        # Sorted: the order of attributes tells what was stepped before, which is no part of the state.
        ordered: dict[int, _Sorted] = {}  # one for each set: two names may mean the same one
        changing = {
            name: ordered.setdefault(id(value), _Sorted(value)) if type(value) in (set, frozenset) else value
            for name, value in sorted(vars(self._target).items())
            if name not in self._left_out and (name not in constants or value is not constants[name])
        }
        names = {id(value): name for name, value in self._references().items()}
        file = io.BytesIO()
        pickler = _Pickler(file, names)
        try:
            pickler.dump(changing)
        except Exception as error:
            self._blame(changing, names, error)
        return file.getvalue(), pickler.generators

    def restore(self, saved: bytes) -> None:
        """Put back what `save` gave; attributes that did not exist then are removed."""
        _named.objects = self._references()  # type: ignore[misc]
        changing = pickle.loads(saved)
        attributes = vars(self._target)
        for name in [*attributes]:
            if name not in changing and name not in self._constants and name not in self._left_out:
                del attributes[name]
        for name, value in self._constants.items():
            if name not in changing:
                attributes[name] = value
        attributes.update(changing)

    def restore_new(self) -> None:
        """Put everything back to how it was before the first reset."""
        self.restore(self._new)

    def _blame(self, changing: dict[str, Any], names: dict[int, str], error: Exception) -> None:
        for name, value in changing.items():
            try:
                _Pickler(io.BytesIO(), names).dump(value)
            except Exception as cause:
                raise UnsupportedEnvError(
                    f"{type(self._target).__name__}.{name}: {type(value).__name__} cannot be "
                    f'pickled ({cause}). If it never changes, pass codec=planvec.Copied(["{name}"]). '
                    f"{ADVICE}"
                ) from cause
        raise UnsupportedEnvError(f"{self._target}: cannot be pickled ({error}). {ADVICE}") from error


class CopiedCodec(Codec):
    """Saves the attributes of the unwrapped environment.

    Args:
        env: The environment.
        constants: Names of attributes that never change (large tables, handles).

    Raises:
        UnsupportedEnvError: It pickles itself as constructor arguments (`EzPickle`), or has an
            attribute that cannot be pickled.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], constants: Sequence[str] = ()) -> None:
        if isinstance(env, EzPickle):
            raise UnsupportedEnvError(
                f"{type(env).__name__} is an EzPickle environment: a copy of it is a new one, made "
                f"from its constructor's arguments, in another state. {ADVICE}"
            )
        vars(env).setdefault("_np_random", None)
        # The generator is saved beside the pickle: a microsecond instead of fifty.
        self._attributes = _Attributes(
            env, [*constants, "_np_random"], lambda: {".env": env, ".np_random": env._np_random}
        )

    def begin(self, env: Any) -> None:
        self._attributes.restore_new()

    def get(self, env: Any) -> bytes:
        return self._attributes.save()

    def set(self, env: Any, value: bytes) -> None:
        self._attributes.restore(value)

    def reseed(self, env: Any, seed: int) -> None:
        """Reseed the generators that the environment keeps besides `np_random`."""
        _reseed(self._attributes.generators(), seed)


class CopiedWrapperCodec(WrapperCodec):
    """Saves the attributes of a wrapper that planvec does not know.

    Args:
        wrapper: The wrapper.

    Raises:
        UnsupportedEnvError: It has an attribute that cannot be pickled.
    """

    draws = True

    def __init__(self, wrapper: Any) -> None:
        base = wrapper.unwrapped
        self._attributes = _Attributes(
            wrapper,
            ["env"],
            lambda: {
                ".env": wrapper.env,
                ".wrapper": wrapper,
                ".base": base,
                ".np_random": base._np_random,
            },
        )

    def begin(self, wrapper: Any) -> None:
        self._attributes.restore_new()

    def get(self, wrapper: Any) -> bytes:
        return self._attributes.save()

    def set(self, wrapper: Any, value: bytes) -> None:
        self._attributes.restore(value)

    def reseed(self, wrapper: Any, seed: int) -> None:
        """Reseed the generators that the wrapper keeps."""
        _reseed(self._attributes.generators(), seed)


class Copied:
    """`codec=planvec.Copied(["table"])`: `copied`, with the attributes named that never change.

    Args:
        constants: Attribute names of the unwrapped environment.
    """

    def __init__(self, constants: Sequence[str] = ()) -> None:
        self.constants = tuple(constants)

    def __call__(self, env: gymnasium.Env[Any, Any]) -> CopiedCodec:
        return CopiedCodec(env, self.constants)
