"""Saves the attributes of an object as one pickle, without those that never change.

Spaces, the spec, functions, modules and classes are left out as long as an attribute holds the same object as
at the start. So are the attributes that the user names as constant. Everything else is saved every time,
since an attribute that has not changed yet may still change.
"""

from __future__ import annotations

import copy
import copyreg
import io
import pickle
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import gymnasium
from gymnasium.envs.registration import EnvSpec

from planvec.codecs.generic.generators import RESEEDABLE, hidden_generator
from planvec.errors import UnsupportedEnvError

__all__ = ["ADVICE", "Attributes"]

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


def _is_constant(value: Any, target: Any) -> bool:
    """Return whether a value is left out of the pickle as long as an attribute holds it.

    A method of another object is saved together with that object, which may change.
    """
    owner = getattr(value, "__self__", None)
    if isinstance(value, (types.MethodType, types.BuiltinFunctionType)):
        return owner is None or owner is target or isinstance(owner, (types.ModuleType, type))
    return value is None or isinstance(value, _CONSTANT_TYPES)


def _by_name(obj: Any, names: dict[int, str], generators: list[Any]) -> Any:
    """Return the pickled form of an object that is referred to by name; `NotImplemented` for any other.

    Other objects that are random generators are appended to `generators`.
    """
    name = names.get(id(obj))
    if name is not None:
        return _Named.resolve, (name,)
    if isinstance(obj, RESEEDABLE):
        generators.append(obj)
    return NotImplemented


class _Pickler(pickle.Pickler):
    """Pickles references to the environment and its parts by name instead of copying them.

    Python calls `reducer_override` for every object, functions and classes included. `_FastPickler` is
    faster but cannot handle functions and classes.

    Attributes:
        generators: The random generators that were pickled.
    """

    def __init__(self, file: io.BytesIO, names: dict[int, str]) -> None:
        super().__init__(file, protocol=5)
        self._names = names
        self.generators: list[Any] = []

    def reducer_override(self, obj: Any) -> Any:
        return _by_name(obj, self._names, self.generators)


class _FastPickler:
    """Pickles like `_Pickler` in half the time.

    Python calls it only for objects that have the type of a part or of a generator. Parts that are functions
    or classes are pickled in the usual way, which may fail.

    Args:
        parts: The objects that are referred to, by name.

    Attributes:
        generators: The random generators that were pickled last.
    """

    def __init__(self, parts: dict[str, Any]) -> None:
        self._file = io.BytesIO()
        self._pickler = pickle.Pickler(self._file, protocol=5)
        kinds = {type(part) for part in parts.values()} | {*RESEEDABLE}
        self._pickler.dispatch_table = {**copyreg.dispatch_table, **dict.fromkeys(kinds, self._reduce)}
        self._names: dict[int, str] = {}
        self.generators: list[Any] = []

    def dumps(self, value: Any, names: dict[int, str]) -> bytes:
        """Pickle a value. `names` maps the ids of the parts to their names."""
        self._names, self.generators = names, []
        self._file.seek(0)
        self._file.truncate()
        self._pickler.clear_memo()
        self._pickler.dump(value)
        return self._file.getvalue()

    def _reduce(self, part: Any) -> Any:
        reduced = _by_name(part, self._names, self.generators)
        return part.__reduce_ex__(5) if reduced is NotImplemented else reduced


class _Named(threading.local):
    """Looks up objects by name while a pickle is read. Each thread has its own objects."""

    objects: ClassVar[dict[str, Any]] = {}

    @staticmethod
    def resolve(name: str) -> Any:
        return _named.objects[name]


_named = _Named()


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


class _Sorted:
    """Pickles a set with its elements in an order that does not depend on the hash seed of the process."""

    def __init__(self, elements: Any) -> None:
        self._elements = elements

    def __reduce__(self) -> Any:
        return type(self._elements), (sorted(self._elements, key=repr),)


class Attributes:
    """Saves and restores the attributes of one object together, as one graph of objects.

    Args:
        target: The object.
        constants: Names of attributes that are left out, whatever they hold.
        references: Returns the objects that are referred to by name and never copied.
        is_left_out: Returns whether a value is left out as long as an attribute holds it, in addition to
            spaces, functions and the like.

    Raises:
        UnsupportedEnvError: An attribute of `constants` does not exist, a function holds a random generator,
            or an attribute cannot be pickled.
    """

    def __init__(
        self,
        target: Any,
        constants: Sequence[str],
        references: Callable[[], dict[str, Any]],
        is_left_out: Callable[[Any], bool] = lambda value: False,
    ) -> None:
        attributes = vars(target)
        missing = [name for name in constants if name not in attributes]
        if missing:
            raise UnsupportedEnvError(
                f"constants: expected names of attributes of {type(target).__name__}, {sorted(attributes)}; "
                f"got {missing}"
            )
        self._target = target
        self._left_out = set(constants)
        self._constants = {
            name: value
            for name, value in attributes.items()
            if name not in self._left_out and (_is_constant(value, target) or is_left_out(value))
        }
        self._get_references = references
        self._order = sorted(attributes)
        for name, value in self._constants.items():
            if hidden_generator(value):
                raise UnsupportedEnvError(
                    f"{type(target).__name__}.{name}: a random generator is hidden inside this "
                    f"function, where it cannot be saved. Draw from self.np_random instead. {ADVICE}"
                )
        self._reference_ids: list[int] = []
        self._fast: _FastPickler | None = _FastPickler(self._references())
        self._initial = self.save()

    def _references(self) -> dict[str, Any]:
        """Return the objects that are referred to, by name. The generator may be a new one every time."""
        references = self._get_references()
        ids = [*map(id, references.values())]
        if ids != self._reference_ids:
            constants = {name: value for name, value in self._constants.items() if value is not None}
            self._named = {**constants, **references}
            self._names = {id(value): name for name, value in self._named.items()}
            self._reference_ids = ids
        return self._named

    def save(self) -> bytes:
        """Return the current attributes as a pickle.

        Raises:
            UnsupportedEnvError: An attribute cannot be pickled.
        """
        return self._dump()[0]

    def generators(self) -> list[Any]:
        """Return the random generators among the attributes and inside them."""
        return self._dump()[1]

    def _dump(self) -> tuple[bytes, list[Any]]:
        changing = self._changing()
        self._references()
        names = self._names
        if self._fast is not None:
            try:
                return self._fast.dumps(changing, names), self._fast.generators
            except Exception:  # `_Pickler` handles more types, and its errors are reported below
                self._fast = None
        file = io.BytesIO()
        pickler = _Pickler(file, names)
        try:
            pickler.dump(changing)
        except Exception as error:
            self._raise_unpicklable(changing, names, error)
        return file.getvalue(), pickler.generators

    def _changing(self) -> dict[str, Any]:
        """Return the attributes that are saved.

        They are sorted, because their order depends on the steps taken before, which are not part of the
        state.
        """
        attributes, constants = vars(self._target), self._constants
        if len(self._order) != len(attributes) or not all(map(attributes.__contains__, self._order)):
            self._order = sorted(attributes)
        ordered: dict[int, _Sorted] = {}  # by the id of the set: two attributes may hold the same set
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
        """Restore the attributes from a pickle of `save`. Attributes that did not exist then are removed."""
        _named.objects = self._references()  # type: ignore[misc]
        changing = pickle.loads(saved)
        attributes = vars(self._target)
        for name in attributes.keys() - changing.keys() - self._constants.keys() - self._left_out:
            del attributes[name]
        attributes.update(self._constants)
        attributes.update(changing)

    def restore_initial(self) -> None:
        """Restore the attributes that the object had before the first reset."""
        self.restore(self._initial)

    def _raise_unpicklable(self, changing: dict[str, Any], names: dict[int, str], error: Exception) -> None:
        """Raise the error of a failed pickle, with the name of the attribute that caused it."""
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
