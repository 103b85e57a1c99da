"""The attributes of an object as one pickle, with what never changes left out.

Left out are spaces, the spec, functions, modules and classes, for as long as an attribute still holds the
object that it held at the start, and what the user names as constant. Everything else is saved every
time: an attribute that merely has not changed yet is no constant.
"""

from __future__ import annotations

import copy
import copyreg
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

from planvec.errors import UnsupportedEnvError

__all__ = ["ADVICE", "Attributes", "hidden_generator", "reseed_generators"]

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


def _by_name(obj: Any, names: dict[int, str], generators: list[Any]) -> Any:
    """How an object is pickled that is referred to by name; `NotImplemented` for any other.

    Generators among the others are put on a list.
    """
    name = names.get(id(obj))
    if name is not None:
        return _Named.resolve, (name,)
    if isinstance(obj, _RESEEDABLE):
        generators.append(obj)
    return NotImplemented


class _Pickler(pickle.Pickler):
    """Pickles references to the environment and its parts by name instead of copying them.

    It is asked about every object, functions and classes among them; see `_QuickPickler`.

    Attributes:
        generators: The random generators that it came across.
    """

    def __init__(self, file: io.BytesIO, names: dict[int, str]) -> None:
        super().__init__(file, protocol=5)
        self._names = names
        self.generators: list[Any] = []

    def reducer_override(self, obj: Any) -> Any:
        return _by_name(obj, self._names, self.generators)


class _QuickPickler:
    """The same, asked about objects of certain types alone: those of the parts, and generators.

    It takes half as long. A function or a class that is a part is pickled as usual, and that may fail.

    Args:
        parts: By name.
    """

    def __init__(self, parts: dict[str, Any]) -> None:
        self._file = io.BytesIO()
        self._pickler = pickle.Pickler(self._file, protocol=5)
        kinds = {type(part) for part in parts.values()} | {*_RESEEDABLE}
        self._pickler.dispatch_table = {**copyreg.dispatch_table, **dict.fromkeys(kinds, self._reduce)}
        self._names: dict[int, str] = {}
        self.generators: list[Any] = []

    def dumps(self, value: Any, names: dict[int, str]) -> bytes:
        """Pickle a value; `names` are those of the parts, by their ids."""
        self._names, self.generators = names, []
        self._file.seek(0)
        self._file.truncate()
        self._pickler.clear_memo()
        self._pickler.dump(value)
        return self._file.getvalue()

    def _reduce(self, part: Any) -> Any:
        found = _by_name(part, self._names, self.generators)
        return part.__reduce_ex__(5) if found is NotImplemented else found


class _Named(threading.local):
    """Where the names are looked up while a pickle is being read."""

    objects: ClassVar[dict[str, Any]] = {}

    @staticmethod
    def resolve(name: str) -> Any:
        return _named.objects[name]


_named = _Named()


def _unseeded(space: gymnasium.Space[Any]) -> gymnasium.Space[Any]:
    """A space that a reset has made anew, without its generator: that is seeded by the time of day."""
    bare = copy.copy(space)
    bare._np_random = None  # type: ignore[assignment]
    if isinstance(space, (gymnasium.spaces.Dict, gymnasium.spaces.Tuple)):
        children: Any = space.spaces
        items = children.items() if isinstance(children, dict) else enumerate(children)
        inner = {key: _unseeded(child) for key, child in items}
        bare.spaces = inner if isinstance(children, dict) else tuple(inner.values())  # type: ignore[attr-defined]
    return bare


class _Sorted:
    """A set with its elements in an order that does not depend on the process (its hash seed)."""

    def __init__(self, elements: Any) -> None:
        self._elements = elements

    def __reduce__(self) -> Any:
        return type(self._elements), (sorted(self._elements, key=repr),)


def reseed_generators(generators: Sequence[Any], seed: int) -> None:
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


class Attributes:
    """The attributes of one object, saved and restored together as one graph of objects.

    Args:
        target: The object.
        constants: Names of attributes that are left out whatever they hold.
        keep: Gives the objects, by name, that are referred to and never copied.
        stays_out: Whether a value is left out for as long as an attribute holds it, besides functions
            and the like.
    """

    def __init__(
        self,
        target: Any,
        constants: Sequence[str],
        keep: Callable[[], dict[str, Any]],
        stays_out: Callable[[Any], bool] = lambda value: False,
    ) -> None:
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
            if name not in self._left_out and (_is_constant(value, target) or stays_out(value))
        }
        self._keep = keep
        self._order = sorted(attributes)
        for name, value in self._constants.items():
            if hidden_generator(value):
                raise UnsupportedEnvError(
                    f"{type(target).__name__}.{name}: a random generator is hidden inside this "
                    f"function, where it cannot be saved; draw from self.np_random. {ADVICE}"
                )
        self._kept: list[int] = []
        self._quick: _QuickPickler | None = _QuickPickler(self._references())
        self._new = self.save()

    def _references(self) -> dict[str, Any]:
        """The objects that are referred to, by name. Asked every time: a generator may be a new one."""
        keep = self._keep()
        ids = [*map(id, keep.values())]
        if ids != self._kept:
            constants = {name: value for name, value in self._constants.items() if value is not None}
            self._named = {**constants, **keep}
            self._names = {id(value): name for name, value in self._named.items()}
            self._kept = ids
        return self._named

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
        changing = self._changing()
        self._references()
        names = self._names
        if self._quick is not None:
            try:
                return self._quick.dumps(changing, names), self._quick.generators
            except Exception:  # the other one can do more, and knows whom to blame
                self._quick = None
        file = io.BytesIO()
        pickler = _Pickler(file, names)
        try:
            pickler.dump(changing)
        except Exception as error:
            self._blame(changing, names, error)
        return file.getvalue(), pickler.generators

    def _changing(self) -> dict[str, Any]:
        """The attributes that are saved.

        They are sorted: their order tells what was stepped before, which is no part of the state.
        """
        attributes, constants = vars(self._target), self._constants
        if len(self._order) != len(attributes) or not all(map(attributes.__contains__, self._order)):
            self._order = sorted(attributes)
        ordered: dict[int, _Sorted] = {}  # one for each set: two names may mean the same one
        changing = {}
        for name in self._order:
            value = attributes[name]
            if name in self._left_out or (name in constants and value is constants[name]):
                continue
            if type(value) in (set, frozenset):
                value = ordered.setdefault(id(value), _Sorted(value))
            elif isinstance(value, gymnasium.Space):
                value = _unseeded(value)
            changing[name] = value
        return changing

    def restore(self, saved: bytes) -> None:
        """Put back what `save` gave; attributes that did not exist then are removed."""
        _named.objects = self._references()  # type: ignore[misc]
        changing = pickle.loads(saved)
        attributes = vars(self._target)
        for name in attributes.keys() - changing.keys() - self._constants.keys() - self._left_out:
            del attributes[name]
        attributes.update(self._constants)
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
