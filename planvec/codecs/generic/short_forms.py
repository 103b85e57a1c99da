"""Objects that pickles hold in a shorter form than Python's: generators, and arrays that never change."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from planvec.codecs.generic.library_memory import LibraryMemory, Place
from planvec.codecs.generic.mersenne import RandomStates
from planvec.codecs.generic.pcg64 import Pcg64s, SavedPcg64
from planvec.codecs.generic.tables import Tables

# types of objects inside generators that an environment may hold, too
PARTS = (np.random.SeedSequence, np.random.MT19937)


class ShortForms:
    """Holds what the short forms of one environment refer to."""

    # `shares_parts`: Whether two objects of the pickle that was written last share a part of a generator.

    shares_parts = False

    def __init__(self, memory: LibraryMemory | None = None) -> None:
        self.memory = memory  # the memory of a C library, which a codec saves; None if there is none
        self.random_states = RandomStates()  # saves and restores `RandomState`s
        self.bit_generators = Pcg64s()  # saves and restores bit generators
        self.tables = Tables()  # the arrays that never change
        self._num_generators = 0
        self._parts: set[int] = set()
        self._shortens_generators = True

    def begin(self) -> None:
        """Prepare to write a pickle."""
        self._num_generators = 0
        self._parts.clear()
        self.shares_parts = False

    def lengthen_generators(self) -> None:
        """Pickle generators as Python does from now on, since they share parts, which short forms do not."""
        self._shortens_generators = False

    def reduce(self, obj: Any) -> Any:
        """Return the short form of an object; None if it has none."""
        kind = type(obj)
        if kind is np.ndarray:
            name = self.tables.name_of(obj)
            if name is not None:
                return Reading.table, (name,)
            place = None if self.memory is None else self.memory.place_of(obj)
            return None if place is None else (Reading.in_library, (place,))
        if isinstance(obj, np.random.Generator) and _is_plain(obj):
            return kind, (obj.bit_generator,)
        if not self._shortens_generators:
            return _reduce_with_parts(obj)
        if kind is np.random.PCG64:
            self._see(obj.seed_seq)
            saved = self.bit_generators.save(obj)
            return _reduce_with_parts(obj) if saved is None else self._number(Reading.bit_generator, saved)
        if kind is np.random.RandomState:
            self._see(obj._bit_generator)
            return self._number(Reading.random_state, self.random_states.save(obj))
        if kind in PARTS:
            self._see(obj)
        return None

    def _see(self, part: Any) -> None:
        """Notice a part of a generator. `shares_parts` becomes True if it is met for the second time."""
        self.shares_parts |= id(part) in self._parts
        self._parts.add(id(part))

    def _number(self, read: Callable[..., Any], data: Any) -> Any:
        """Return the short form of the next generator."""
        if data is None:
            return None
        self._num_generators += 1
        return read, (self._num_generators - 1, data)


def _is_plain(generator: np.random.Generator) -> bool:
    """Return whether a generator, which may be one of a subclass (`gym`'s), has only its bit generator."""
    # The subclass's own `__reduce__` may not work: that of `gym` was written for NumPy before 1.24.
    kind = type(generator)
    return (
        kind.__init__ is np.random.Generator.__init__
        and kind.__new__ is np.random.Generator.__new__
        and not getattr(generator, "__dict__", None)
    )


def _reduce_with_parts(obj: Any) -> Any:
    """Return the form of a generator in which its parts are objects of their own; None for other objects."""
    # NumPy 1 leaves the parts out.
    kind = type(obj)
    if kind in (np.random.PCG64, np.random.MT19937):
        return Reading.new_bit_generator, (kind, obj.seed_seq, obj.state)
    if kind is np.random.RandomState:
        return Reading.new_random_state, (obj._bit_generator, obj.get_state(legacy=False))
    return None


class Reading(threading.local):
    """Looks up what a pickle refers to while it is read. Each thread reads its own."""

    _objects: ClassVar[dict[str, Any]] = {}
    _short_forms: ClassVar[ShortForms] = ShortForms()

    @staticmethod
    def begin(objects: dict[str, Any], short_forms: ShortForms) -> None:
        """Prepare to read a pickle."""
        _reading._objects = objects  # type: ignore[misc]
        _reading._short_forms = short_forms  # type: ignore[misc]

    @staticmethod
    def named(name: str) -> Any:
        """Return a named object."""
        return _reading._objects[name]

    @staticmethod
    def random_state(index: int, data: bytes) -> np.random.RandomState:
        """Return a generator in a saved state."""
        return _reading._short_forms.random_states.restore(index, data)

    @staticmethod
    def bit_generator(index: int, saved: SavedPcg64) -> np.random.PCG64:
        """Return a bit generator in a saved state."""
        return _reading._short_forms.bit_generators.restore(index, saved)

    @staticmethod
    def new_bit_generator(kind: Any, seed_sequence: Any, state: Any) -> Any:
        """Return a new bit generator with a seed sequence, in a state."""
        generator = kind(seed_sequence)
        generator.state = state
        return generator

    @staticmethod
    def new_random_state(bit_generator: Any, state: Any) -> np.random.RandomState:
        """Return a new `RandomState` with a bit generator, in a state."""
        generator = np.random.RandomState(bit_generator)
        generator.set_state(state)
        return generator

    @staticmethod
    def in_library(place: Place) -> NDArray[Any]:
        """Return an array at a place in the memory of a library."""
        memory = _reading._short_forms.memory
        assert memory is not None
        return memory.array_at(place)

    @staticmethod
    def table(name: str) -> NDArray[Any]:
        """Return an array that never changes."""
        return _reading._short_forms.tables.resolve(name)


_reading = Reading()
