"""Codecs for plain Python environments and for unknown wrappers: a pickle of the attributes that may change.

`attributes` describes which attributes are left out, and `survey` which objects are referred to by name.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import timeit
import types
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import gymnasium
import numpy as np

from planvec.codecs.base import Codec, Env, WrapperCodec, layer_name, layers_by_name
from planvec.codecs.generator import get_generator
from planvec.codecs.generic.attributes import (
    ADVICE,
    Attributes,
    LibraryMemory,
    attributes_of,
    is_in_library,
    names_in_code,
    reseed_generators,
    settings_of,
)
from planvec.codecs.generic.pickling import (
    NOTHING_NUMBERED,
    FastPickler,
    ThoroughPickler,
    has_own_type,
    load_graph,
    numbered_in,
)
from planvec.codecs.generic.short_forms import ShortForms
from planvec.codecs.generic.structure import SHARED_MEMORY, digests_of
from planvec.codecs.generic.survey import (
    NUMBERS_AND_TEXT,
    Beside,
    Entry,
    entries_of,
    is_nameable,
    objects_beside,
    own_classes,
)
from planvec.codecs.positions import GLOBAL_GENERATORS, spaces_in
from planvec.errors import UnsupportedEnvError

_SMALLEST_ADDRESS = 1 << 20  # of an object


class ObjectGraph:
    """Saves and restores the attributes of one or several objects."""

    # `initial`: What the objects held before the first reset. `classes`: The classes that define the objects
    # and what they hold, without those of Python, NumPy, Gymnasium and planvec. `has_sets`: Whether a set was
    # saved so far.

    _order_of_sets: int | None = None

    def __init__(
        self,
        members: Sequence[Attributes],
        references: dict[str, Any],
        base: Any,
        memory: LibraryMemory | None = None,
    ) -> None:
        self._members = [*members]
        # An object that holds a global generator (a distribution of SciPy) still does when it is restored.
        self._references = {**references, **GLOBAL_GENERATORS}
        self._base = base
        self._memory = memory
        self._begin()

    def _begin(self) -> None:
        """Survey the objects, and save what they hold before the first reset."""
        self._generator: Any = None
        self._objects, self._names = dict[str, Any](), dict[int, str]()
        self._named_at_start = {**self._find_named(), **self._references}
        settings = {path: settings_of(value) for path, value in self._named_at_start.items()}
        self._settings = {path: known for path, known in settings.items() if known}
        # path -> the space there and those inside it, with copies of their first generators
        self._spaces = {
            path: [(inner, copy.deepcopy(inner._np_random)) for inner in spaces_in(space)]
            for path, space in self._named_at_start.items()
            if isinstance(space, gymnasium.Space)
        }
        self._saved_spaces: list[gymnasium.Space[Any]] = []  # those whose generators are part of states
        self._short_forms = ShortForms(self._memory)
        self._numbered = NOTHING_NUMBERED
        self._fast: FastPickler | None = None  # until `settle`
        self._needs_callbacks = self.has_sets = False
        self._kinds: set[type] = set() if self._memory is None else {np.ndarray}
        self._named()
        with contextlib.suppress(Exception):  # the first `save` reports it
            pickler = ThoroughPickler(self._names, self._short_forms, finds_tables=True)
            pickler.dumps(self._changing())
        self._first_np_random = copy.deepcopy(self._base._np_random)
        self.initial = self.save()

    def absorb(self, other: ObjectGraph) -> None:
        """Save the objects of another graph, too. The other graph saves nothing from now on."""
        self._members += other._members
        self._references |= other._references
        other._members = []
        self._begin()

    # -- names ------------------------------------------------------------------------------------

    def _find_named(self) -> dict[str, Any]:
        """Return the objects that are found now and referred to by name from now on."""
        named = {name: value for member in self._members for name, value in member.constants()}
        entries = self._entries()
        self.classes = own_classes([entry.value for entry in entries] + [m.target for m in self._members])
        named |= dict(objects_beside(self.classes))
        for path, value in entries:
            # A later view of an array has no name; `LibraryMemory` knows its place.
            is_array = isinstance(value, np.ndarray) and self._memory is not None
            if (is_array and is_in_library(value)) or is_nameable(value):
                named[path] = value
        return named

    def beside(self, env: object, caches: Collection[str]) -> Beside:
        """Return what watches the state beside the environment."""
        functions, spaces = {}, {}
        for path, value in self._named_at_start.items():
            if isinstance(value, types.FunctionType):
                functions[path] = value
            elif isinstance(value, gymnasium.Space):
                spaces[path] = value
        return Beside(env, self.classes, functions, spaces, caches)

    def save_generators_of(self, paths: Sequence[str]) -> None:
        """Save the generators of spaces from which the environment draws."""
        if not paths:
            return
        self.restore_initial()
        for space, generator in [pair for path in paths for pair in self._spaces[path]]:
            space._np_random = copy.deepcopy(generator)
            self._saved_spaces.append(space)
        self.initial = self.save()

    def spaces(self) -> list[gymnasium.Space[Any]]:
        """Return the spaces that are referred to by name. Resets may draw from them, which no state shows."""
        return [space for pairs in self._spaces.values() for space, _ in pairs]

    def digests(self) -> dict[str, bytes]:
        """Return a digest of the present value of each attribute that is saved."""
        # Two digests are equal if the values are, and if the same objects occur several times in them.
        self._named()
        roots = {
            f"{type(member.target).__name__}.{name}": value
            for member in self._members
            for name, value in member.changing().items()
        }
        roots |= {
            f"generator {number} of a space": space._np_random
            for number, space in enumerate(self._saved_spaces)
        }
        return digests_of(roots, self._names)

    def _entries(self) -> list[Entry]:
        """Return all objects that are saved."""
        roots = [
            Entry(f"{member.name}.{name}", value)
            for member in self._members
            for name, value in member.changing().items()
        ]
        return list(entries_of(roots, [*self._references.values(), self._base._np_random]))

    def shared_memory(self) -> bytes:
        """Return a digest of which arrays share memory."""
        return self.digests()[SHARED_MEMORY]

    def check_shared_memory(self, expected: bytes) -> None:
        """Check, after `before_reset`, that the same arrays share memory as when the environment was made."""
        if self.shared_memory() != expected:
            raise UnsupportedEnvError(
                "an array of the environment is a view of another one, or both are views of a third: a copy "
                f"of them would not share memory. Make views where they are used. {ADVICE}"
            )

    def check_addresses(self) -> None:
        """Check that no number that is saved is the address of an object."""
        # Such a number means nothing after the objects are restored at other addresses.
        numbers: dict[int, str] = {}
        objects: dict[int, str] = {}
        for path, value in self._entries():
            if type(value) is int:
                if value > _SMALLEST_ADDRESS:
                    numbers.setdefault(value, path)
            elif not isinstance(value, NUMBERS_AND_TEXT):
                objects[id(value)] = path
        for number, path in numbers.items():
            if number in objects:
                raise UnsupportedEnvError(
                    f"{self._in_words(path)} is the id() of {self._in_words(objects[number])}, which changes "
                    "when that object is restored. Use the object itself as the key, or a number that it "
                    "keeps in an attribute"
                )

    def _in_words(self, path: str) -> str:
        """Return a path with the class of an object in place of the number of its layer."""
        for member in self._members:
            path = path.replace(f"{member.name}.", f"{type(member.target).__name__}.")
        return path

    def _named(self) -> dict[str, Any]:
        """Return the objects that are referred to, by name. The generator may be a new one every time."""
        generator = self._base._np_random
        if generator is not self._generator or not self._objects:
            self._generator = generator
            self._objects = {**self._named_at_start, "layer0.np_random": generator}
            self._names = {id(value): name for name, value in self._objects.items() if value is not None}
        return self._objects

    # -- saving -----------------------------------------------------------------------------------

    def save(self) -> bytes:
        """Return the current attributes as a pickle."""
        return self._pickle(self._changing())[0]

    def generators(self) -> list[Any]:
        """Return the random generators among the attributes and inside them."""
        return self._pickle(self._changing())[1]

    def _pickle(self, attributes: list[dict[str, Any]]) -> tuple[bytes, list[Any]]:
        """Return the pickle of attributes, and the random generators in them."""
        if not self._members:
            return b"", []
        for path, known in self._settings.items():
            if settings_of(self._named_at_start[path]) != known:
                raise UnsupportedEnvError(
                    f"steps change a setting of {self._in_words(path)}, and fonts and sounds count as "
                    f"constant. Set it back in the same step. {ADVICE}"
                )
        self._named()
        data, generators = b"", list[Any]()
        if self._fast is not None:
            try:
                data, generators = self._fast.dumps(attributes, self._names), self._fast.generators
            except Exception:  # `ThoroughPickler` handles more types, and its errors are reported below
                self._fast = None
        if self._fast is None:
            try:
                data, generators = self._pickle_thoroughly(attributes)
            except Exception as error:
                self._raise_unpicklable(attributes, error)
        if self._short_forms.shares_parts:
            self._short_forms.shortens_generators = False  # the short forms do not share parts
            return self._pickle(attributes)
        return data, generators

    def _pickle_thoroughly(self, attributes: list[dict[str, Any]]) -> tuple[bytes, list[Any]]:
        pickler = ThoroughPickler(self._names, self._short_forms)
        try:
            data = pickler.dumps(attributes)
        except RecursionError:
            pickler = ThoroughPickler(self._names, self._short_forms, is_deep=True)
            data = pickler.dumps(attributes)
        self._needs_callbacks |= pickler.needs_callbacks
        self.has_sets |= pickler.has_sets
        self._kinds |= pickler.kinds
        return data, pickler.generators

    def _raise_unpicklable(self, attributes: list[dict[str, Any]], error: Exception) -> NoReturn:
        """Raise the error of a failed pickle, with the names of the attributes that caused it."""
        owners = [type(member.target).__name__ for member in self._members]
        failed: dict[str, Exception] = {}
        first = ""
        for owner, values in zip(owners, attributes, strict=False):
            for name, value in values.items():
                try:
                    ThoroughPickler(self._names, self._short_forms).dumps(value)
                except RecursionError:
                    continue
                except UnsupportedEnvError as cause:
                    raise UnsupportedEnvError(f"{owner}.{name} holds a {cause}") from cause
                except Exception as cause:
                    first = first or f"{owner}.{name}: {type(value).__name__} cannot be pickled ({cause})"
                    failed.setdefault(name, cause)
        if failed:
            names, others = ", ".join(f'"{name}"' for name in failed), ", ".join([*failed][1:])
            if others:
                first += f"; nor can {others}. If they never change"
            else:
                first += ". If it never changes"
            raise UnsupportedEnvError(f"{first}, pass codec=planvec.Copied([{names}]). {ADVICE}") from next(
                iter(failed.values())
            )
        raise UnsupportedEnvError(
            f"{owners[0]}: its attributes cannot be pickled ({error}). {ADVICE}"
        ) from error

    def _changing(self) -> list[dict[str, Any]]:
        """Return the attributes that are saved, of each object."""
        changing = [member.changing() for member in self._members]
        if self._saved_spaces:
            changing.append({"generators": [space._np_random for space in self._saved_spaces]})
        return changing

    def settle(self) -> None:
        """Choose the faster pickler, if it has written nothing else so far. To be called after some steps."""
        if not self._needs_callbacks:
            self._fast = self._fast_pickler()

    def settle_as(self, other: ObjectGraph) -> None:
        """Save in the same form as the graph of another environment of the same kind, after its proof."""
        self._numbered = other._numbered.with_objects(self._named_at_start)
        self._kinds |= other._kinds
        self._needs_callbacks |= other._needs_callbacks
        self.settle()

    def _fast_pickler(self) -> FastPickler:
        named = filter(has_own_type, self._named().values())
        return FastPickler(named, self._kinds, self._short_forms, self._numbered)

    def most_expensive_attribute(self) -> tuple[str, str]:
        """Return the class and the name of the attribute that takes longest to save."""
        times: dict[tuple[str, str], float] = {("", ""): 0.0}
        self._named()
        for member in self._members:
            for name, value in member.changing().items():
                # The fastest of three: the first one may have to free the memory of the pickle before it.
                save = functools.partial(self._pickle, [{name: value}])
                times[type(member.target).__name__, name] = min(timeit.repeat(save, number=1, repeat=3))
        return max(times, key=times.__getitem__)

    def find_numbered(self) -> None:
        """Look for what pickles refer to by number. To be called after a reset, and before `settle`."""
        changing, pickler = self._changing(), self._fast_pickler()
        with contextlib.suppress(Exception):  # `ThoroughPickler` will do
            pickler.dumps(changing, self._names)
            self._numbered = numbered_in(changing, pickler.memorised(), self._named_at_start)

    @contextlib.contextmanager
    def shuffled_sets(self, order: int) -> Iterator[None]:
        """Restore sets as `ShuffledSet`, which should have no influence."""
        self._order_of_sets = order
        try:
            yield
        finally:
            self._order_of_sets = None

    def referred(self) -> list[str]:
        """Return the names of what pickles refer to: large arrays, and what has a number."""
        return [*self._short_forms.tables.names(), *self._numbered.names()]

    def numbered(self) -> list[str]:
        """Return the names of what has a number, in the order of the numbers."""
        return self._numbered.names()

    # -- restoring --------------------------------------------------------------------------------

    def restore(self, saved: bytes) -> None:
        """Restore the attributes from a pickle of `save`. Attributes that did not exist then are removed."""
        if self._members:
            changing = load_graph(
                saved, self._named(), self._short_forms, self._numbered, self._order_of_sets
            )
            if self._saved_spaces:
                for space, generator in zip(self._saved_spaces, changing.pop()["generators"], strict=True):
                    space._np_random = generator
            for member, attributes in zip(self._members, changing, strict=True):
                member.update(attributes)

    def restore_initial(self) -> None:
        """Restore the attributes that the objects had before the first reset, and `np_random`."""
        self._base._np_random = copy.deepcopy(self._first_np_random)
        self.restore(self.initial)


class GraphCodec:
    """Defines the methods by which an `ObjectGraph` saves an object: an environment or a wrapper."""

    graph: ObjectGraph  # Saves the attributes of the object. `stack` joins the graphs of all layers.
    caches: Sequence[str] = ()  # variables beside the environment that may change; see `Copied`

    def before_reset(self, saved: object) -> None:
        self.graph.restore_initial()

    def get(self, saved: object) -> Any:
        return self.graph.save()

    def set(self, saved: object, value: Any) -> None:
        self.graph.restore(value)

    def digests(self, saved: object) -> dict[str, bytes]:
        """Return a digest of each attribute that is saved."""
        return self.graph.digests()

    def reseed(self, saved: object, seed: int) -> None:
        """Reseed the generators that the object keeps, apart from the `np_random` of an environment."""
        reseed_generators(self.graph.generators(), seed)


class CopiedCodec(GraphCodec, Codec):
    """Saves the attributes of the unwrapped environment."""

    how = "a pickle of the attributes"

    def __init__(self, env: Env, constants: Sequence[str] = (), caches: Sequence[str] = ()) -> None:
        self.caches = caches
        vars(env).setdefault("_np_random", None)
        # The generator is saved separately: that takes 1 us, pickling it would take 50.
        # Attributes that `reset` or `step` sets do not exist yet when the environment is opened.
        values = [value for base in type(env).__mro__ for value in vars(base).values()]
        codes = [value.__code__ for value in values if hasattr(value, "__code__")]
        names, present = set().union(*map(names_in_code, codes)), attributes_of(env)
        later = [name for name in constants if name not in present and name in names]
        now = [name for name in constants if name not in later]
        attributes = Attributes(env, layer_name(env), [*now, "_np_random"], later)
        self.graph = ObjectGraph([attributes], layers_by_name(env), env)


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

    def __call__(self, env: Env) -> CopiedCodec:
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
    dtype: np.dtype
    shape: tuple[int, ...]  # the shape of the array; () for a number

    @classmethod
    def of(cls, env: object, name: str) -> NamedField:
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

    def get(self, env: object) -> Any:
        """Return the value of the attribute: a number, or a copy of an array."""
        value: Any = getattr(env, self.name)
        if type(value) is self.kind:
            if self.kind is not np.ndarray:
                return value
            array: np.ndarray = value
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

    def _is_alike(self, value: object) -> bool:
        """Return whether a number has another type that computes alike: of Python or of NumPy."""
        # The verification compares steps with both. An int, as `max(0, x)` returns it, may stand for a float.
        if self.kind is np.ndarray or not isinstance(value, (bool, int, float, np.generic)):
            return False
        if type(value) is int and self.dtype == np.float64:
            return value == float(value)
        return bool(np.asarray(value).dtype == self.dtype)

    def restored(self, value: object) -> Any:
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

    def __call__(self, env: Env) -> NamedCodec:
        return NamedCodec(env, self)


class NamedCodec(GraphCodec, Codec):
    """Saves the named attributes of an environment; see `Named`."""

    how = "named attributes"

    def __init__(self, env: Env, choice: Named) -> None:
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

    def after_first_reset(self, env: object) -> None:
        missing = [name for name in self._choice.state if not hasattr(env, name)]
        if missing:
            present = sorted(name for name in vars(env) if not name.startswith("_"))
            raise UnsupportedEnvError(
                f"state: expected names of attributes of {type(env).__name__}, {present}; got {missing}"
            )
        self._fields = tuple(NamedField.of(env, name) for name in self._choice.state)
        self.dtype = np.dtype([(field.name, field.dtype, field.shape) for field in self._fields])

    def before_reset(self, saved: object) -> None:
        if not self._fields:  # what the first walk has changed shows in the next one
            self.graph.restore_initial()
        self._drawn_from = None
        for name, value in self._initial.items():
            if value is not MISSING:
                setattr(saved, name, copy.deepcopy(value))
            elif name in attributes_of(saved):
                delattr(saved, name)

    def get(self, saved: object) -> Any:
        return tuple([field.get(saved) for field in self._fields])

    def set(self, saved: object, value: Any) -> None:
        for field, number in zip(self._fields, value, strict=True):
            setattr(saved, field.name, field.restored(number))

    def observe(self, env: object) -> Any:
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
            present = get_generator(saved)
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
