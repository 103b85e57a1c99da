"""Saves the attributes of several objects as one graph, so that what they share stays shared."""

from __future__ import annotations

import contextlib
import copy
import functools
import timeit
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from planvec.codecs.generic.attributes import ADVICE, Attributes, LibraryMemory, is_in_library, spaces_in
from planvec.codecs.generic.beside import Beside
from planvec.codecs.generic.pickling import GraphWriter
from planvec.codecs.generic.structure import SHARED_MEMORY, digests_of
from planvec.codecs.generic.survey import (
    Entry,
    entries_of,
    find_address,
    is_nameable,
    objects_beside,
    own_classes,
)
from planvec.errors import UnsupportedEnvError

# -- Holds the spaces that pickles refer to by name, and saves their generators if the environment draws -----


class NamedSpaces:
    """Holds spaces, with those inside them."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._spaces = {
            path: spaces_in(space) for path, space in named.items() if isinstance(space, gymnasium.Space)
        }
        self._first = {
            path: [copy.deepcopy(space._np_random) for space in spaces]
            for path, spaces in self._spaces.items()
        }
        self.saved: list[gymnasium.Space[Any]] = []  # the spaces whose generators are part of states

    def all(self) -> list[gymnasium.Space[Any]]:
        """Return all spaces. Resets may draw from them, which no state shows."""
        return [space for spaces in self._spaces.values() for space in spaces]

    def save(self, paths: Sequence[str]) -> None:
        """Put the generators of spaces back to the start, and save them from now on."""
        for path in paths:
            spaces = self._spaces[path]
            for space, generator in zip(spaces, self._first[path], strict=True):
                space._np_random = copy.deepcopy(generator)
            self.saved += spaces

    def generators(self) -> list[Any]:
        """Return the generators that are saved."""
        return [space._np_random for space in self.saved]

    def restore(self, generators: Sequence[Any]) -> None:
        """Restore what `generators` returned."""
        for space, generator in zip(self.saved, generators, strict=True):
            space._np_random = generator


class ObjectGraph:
    """Saves and restores the attributes of one or several objects."""

    # `initial`: What the objects held before the first reset. `spaces`: The spaces that are referred to by
    # name. `classes`: The classes that define the objects and what they hold, without those of Python, NumPy,
    # Gymnasium and planvec.

    _order_of_sets: int | None = None

    def __init__(
        self,
        members: Sequence[Attributes],
        references: dict[str, Any],
        base: Any,
        memory: LibraryMemory | None = None,
    ) -> None:
        self._members = [*members]
        self._references = references
        self._base = base
        self._memory = memory
        self._begin()

    def _begin(self) -> None:
        """Survey the objects, and save what they hold before the first reset."""
        self._generator: Any = None
        self._objects, self._names = dict[str, Any](), dict[int, str]()
        self._named_at_start = {**self._find_named(), **self._references}
        self.spaces = NamedSpaces(self._named_at_start)
        owners = [type(member.target).__name__ for member in self._members]
        self._writer = GraphWriter(owners, self._memory)
        self._named()
        self._writer.find_tables(self._changing(), self._names)
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
        return named | {path: value for path, value in entries if self._is_nameable(value)}

    def _is_nameable(self, value: Any) -> bool:
        if isinstance(value, np.ndarray):  # a later view has no name; `LibraryMemory` knows its place
            return self._memory is not None and is_in_library(value)
        return is_nameable(value)

    def beside(self, env: Any, caches: Collection[str]) -> Beside:
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
        self.spaces.save(paths)
        self.initial = self.save()

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
            f"generator {number} of a space": generator
            for number, generator in enumerate(self.spaces.generators())
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
        address = find_address(self._entries())
        if address is not None:
            number, owner = (self._readable(path) for path in address)
            raise UnsupportedEnvError(
                f"{number} is the id() of {owner}, which changes when that object is restored. Use the "
                "object itself as the key, or a number that it keeps in an attribute"
            )

    def _readable(self, path: str) -> str:
        """Return a path with the name of the class in place of the number of the layer."""
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
        return self._dump()[0]

    def generators(self) -> list[Any]:
        """Return the random generators among the attributes and inside them."""
        return self._dump()[1]

    def _dump(self) -> tuple[bytes, list[Any]]:
        if not self._members:
            return b"", []
        self._named()
        return self._writer.dumps(self._changing(), self._names)

    def _changing(self) -> list[dict[str, Any]]:
        """Return the attributes that are saved, of each object."""
        changing = [member.changing() for member in self._members]
        if self.spaces.saved:
            changing.append({"generators": self.spaces.generators()})
        return changing

    def settle(self) -> None:
        """Choose the faster pickler, if it has written nothing else so far. To be called after some steps."""
        self._writer.settle(self._named().values())

    def settle_as(self, other: ObjectGraph) -> None:
        """Save in the same form as another graph; see `GraphWriter.settle_as`."""
        self._writer.settle_as(other._writer, self._named_at_start, self._named().values())

    def most_expensive_attribute(self) -> tuple[str, str]:
        """Return the class and the name of the attribute that takes longest to save."""
        times: dict[tuple[str, str], float] = {("", ""): 0.0}
        self._named()
        for member in self._members:
            for name, value in member.changing().items():
                # The fastest of three: the first one may have to free the memory of the pickle before it.
                save = functools.partial(self._writer.dumps, [{name: value}], self._names)
                times[type(member.target).__name__, name] = min(timeit.repeat(save, number=1, repeat=3))
        return max(times, key=times.__getitem__)

    def find_words(self) -> None:
        """Look for what pickles refer to by number. To be called after a reset, and before `settle`."""
        self._named()
        self._writer.find_words(self._changing(), self._names, self._named_at_start)

    @contextlib.contextmanager
    def shuffled_sets(self, order: int) -> Iterator[None]:
        """Restore sets as `ShuffledSet`, which should have no influence."""
        self._order_of_sets = order
        try:
            yield
        finally:
            self._order_of_sets = None

    @property
    def has_sets(self) -> bool:
        """Whether a set was saved so far."""
        return self._writer.has_sets

    def referred(self) -> list[str]:
        """Return the names of what pickles refer to: large arrays, and what has a number."""
        return self._writer.referred()

    def numbered(self) -> list[str]:
        """Return the names of what has a number, in the order of the numbers."""
        return self._writer.numbered()

    # -- restoring --------------------------------------------------------------------------------

    def restore(self, saved: bytes) -> None:
        """Restore the attributes from a pickle of `save`. Attributes that did not exist then are removed."""
        if self._members:
            changing = self._writer.loads(saved, self._named(), self._order_of_sets)
            if self.spaces.saved:
                self.spaces.restore(changing.pop()["generators"])
            for member, attributes in zip(self._members, changing, strict=True):
                member.update(attributes)

    def restore_initial(self) -> None:
        """Restore the attributes that the objects had before the first reset, and `np_random`."""
        self._base._np_random = copy.deepcopy(self._first_np_random)
        self.restore(self.initial)
