"""Objects that pickles hold in a shorter form than Python's: generators, and arrays that never change."""

from __future__ import annotations

import functools
import hashlib
import struct
import threading
from typing import Any, ClassVar

import numpy as np
from numpy.random import PCG64, SeedSequence
from numpy.typing import NDArray

from planvec.codecs.differences import is_equal_memory
from planvec.codecs.generic.attributes import ATOMS, LibraryMemory, Place
from planvec.errors import UnsupportedEnvError

# -- Short forms of the state of the Mersenne Twister, the generator behind `np.random.RandomState`.
#
# Its state is 624 words. After `RandomState(seed)` with an integer, they follow from the seed alone, and 624
# draws later from these words. So a state is written as the seed and the number of such transitions, if there
# is a seed, and else as it is. A small environment with a `RandomState` has 435 bytes a state so, and 2,932
# with the words.
#
# Source: Matsumoto and Nishimura, "Mersenne Twister", ACM TOMACS 8 (1998), 3-30.

_N, _M = 624, 397
_UPPER, _LOWER, _MATRIX = np.uint32(0x80000000), np.uint32(0x7FFFFFFF), np.uint32(0x9908B0DF)
_FACTOR = 1812433253
_INVERSE = pow(_FACTOR, -1, 1 << 32)
_MAX_TRANSITIONS = 4  # largest number of transitions that are undone to find the seed
_SHORT = struct.Struct("<IB")


@functools.lru_cache(maxsize=256)
def compress_state(words: bytes) -> bytes:
    """Return a short form of 624 words of 32 bits, or the words themselves if there is none."""
    state = np.frombuffer(words, np.uint32)
    for number in range(_MAX_TRANSITIONS + 1):
        seed = _seed_of(state)
        if seed is not None and expand_state(_SHORT.pack(seed, number)) == words:
            return _SHORT.pack(seed, number)
        state = _undo_transition(state)
    return words


@functools.lru_cache(maxsize=256)
def expand_state(data: bytes) -> bytes:
    """Return the 624 words that `compress_state` took."""
    if len(data) != _SHORT.size:
        return data
    seed, num_transitions = _SHORT.unpack(data)
    generator = np.random.MT19937()
    generator._legacy_seeding(seed)
    if num_transitions:
        generator.random_raw(_N * num_transitions, output=False)
    state: Any = generator.state
    words: bytes = state["state"]["key"].tobytes()
    return words


def _seed_of(state: NDArray[np.uint32]) -> int | None:
    """Return the seed from which words 1 to 623 follow; None if there is none. Word 0 is ignored."""
    before = state[1:-1]
    with np.errstate(over="ignore"):
        after = np.uint32(_FACTOR) * (before ^ (before >> np.uint32(30))) + np.arange(2, _N, dtype=np.uint32)
    if not np.array_equal(after, state[2:]):
        return None
    mixed = (int(state[1]) - 1) * _INVERSE % (1 << 32)
    return mixed ^ (mixed >> 30)


def _undo_transition(state: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the words before the last 624 draws. The lower 31 bits of word 0 are lost."""
    after = state.copy()
    before = np.zeros(_N, np.uint32)
    mixed = np.zeros(_N, np.uint32)  # upper bit of word i and lower bits of word i + 1
    mixed[_N - 1 :] = _unmix(after[_N - 1 :] ^ after[_M - 1 : _M])
    after[0] = (after[0] & _UPPER) | (mixed[_N - 1] & _LOWER)
    split = _N - _M
    mixed[split:] = _unmix(after[split:] ^ after[: _N - split])
    _join(before, mixed, split)
    mixed[:split] = _unmix(after[:split] ^ before[_M:])
    _join(before, mixed, 0)
    return before


def _join(before: NDArray[np.uint32], mixed: NDArray[np.uint32], start: int) -> None:
    before[start:] = mixed[start:] & _UPPER
    before[start + 1 :] |= mixed[start : _N - 1] & _LOWER


def _unmix(twisted: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Undo the multiplication by the matrix of the generator."""
    odd = twisted >> np.uint32(31)
    result: NDArray[np.uint32] = ((twisted ^ (odd * _MATRIX)) << np.uint32(1)) | odd
    return result


# -- Saves the usual generators of NumPy, and restores them into objects that are kept.
#
# Making a `RandomState` takes 100 us, and a PCG64 (`np.random.default_rng`) 20 us. Python's own pickles of
# them take 2,700 and 500 bytes. Saving and restoring a small environment that holds one takes 2.8 and 1.6
# times as long in that way. NumPy 1 forgets the seed sequence of a PCG64, from which generators are spawned.

# position in the words, whether there is a spare normal number, and that number
_REST = struct.Struct("<H?d")
# entropy, spawn key, size of the pool, and number of spawned children
_Seeds = tuple[Any, tuple[int, ...], int, int]


def _short_state(generator: np.random.RandomState | PCG64) -> bytes | tuple[Any, ...] | None:
    """Return the state of a generator; None if it has no short form."""
    if isinstance(generator, PCG64):
        seeds = _seeds_of(generator)
        state: Any = generator.state
        inner = state["state"]
        words = inner["state"], inner["inc"], state["has_uint32"], state["uinteger"]
        return None if seeds is None else (*words, seeds)
    state = generator.get_state(legacy=False)
    if state["bit_generator"] != "MT19937":
        return None
    inner = state["state"]
    rest = _REST.pack(inner["pos"], bool(state["has_gauss"]), state["gauss"])
    return rest + compress_state(inner["key"].tobytes())


def _seeds_of(generator: PCG64) -> _Seeds | None:
    """Return what the seed sequence of a generator was made of; None if it is none of NumPy's own."""
    sequence: Any = generator.seed_seq
    if type(sequence) is not SeedSequence:
        return None
    entropy: Any = sequence.entropy
    words = entropy if isinstance(entropy, (list, tuple)) else [entropy]
    if entropy is not None and not all(isinstance(word, (int, np.integer)) for word in words):
        return None
    return entropy, tuple(sequence.spawn_key), sequence.pool_size, sequence.n_children_spawned


# -- Arrays that an environment made when it was opened and has not changed since: prices, maps, weights.
#
# Pickles refer to them by name. Whether they have changed is seen by comparing their memory, which takes 5 us
# for 160 KB. An environment that trades at 20,000 prices has 361 bytes a state so, and 160,386 with them.

_MIN_BYTES = 16 << 10  # size of the smallest array that is a table


class _Table:
    """Holds an array and its content at the start."""

    def __init__(self, array: np.ndarray, name: str) -> None:
        self.array, self.name = array, name
        self._first = array.copy(order="K")  # of an array of objects, it keeps the objects alive
        self._form = _form_of(array)
        self._place = int(array.ctypes.data), int(self._first.ctypes.data), int(array.nbytes)

    def is_unchanged(self) -> bool:
        return _form_of(self.array) == self._form and is_equal_memory(*self._place)

    def restore(self) -> np.ndarray:
        if self.is_unchanged():
            return self.array
        if _form_of(self.array) != self._form:  # resized, reshaped or made read-only
            return self._first.copy(order="K")
        self.array[...] = self._first
        return self.array


def _form_of(array: np.ndarray) -> tuple[Any, ...]:
    """Return all of an array but its content."""
    return array.shape, array.strides, array.dtype, array.flags.writeable, array.ctypes.data


class Tables:
    """Gives names to large arrays, as long as they hold what they held at the start."""

    def __init__(self) -> None:
        self._by_id: dict[int, _Table] = {}
        self._by_name: dict[str, _Table] = {}

    def names(self) -> list[str]:
        """Return the names, which depend on the order of the arrays and on their content."""
        return [table.name for table in self._by_id.values()]

    def add(self, value: object) -> None:
        """Make a value a table if it is a large array whose memory shows every change."""
        if type(value) is not np.ndarray or value.nbytes < _MIN_BYTES or id(value) in self._by_id:
            return
        is_dense = value.flags.c_contiguous or value.flags.f_contiguous
        # A view is none: it would have to share its memory with a copy of the other array, once one is made.
        is_own = value.base is None and value.flags.owndata
        if not (is_own and is_dense and value.flags.writeable) or value.dtype.names is not None:
            return
        if value.dtype.hasobject and not all(type(item) in ATOMS for item in value.flat):
            return
        content = repr(value.tolist()).encode() if value.dtype.hasobject else value.tobytes()
        digest = hashlib.sha256(f"{value.dtype.str} {value.shape}".encode() + content).hexdigest()
        table = _Table(value, f"table {len(self._by_id)} {digest[:16]}")
        self._by_id[id(value)] = self._by_name[table.name] = table

    def name_of(self, array: object) -> str | None:
        """Return the name of an array; None if it is no table, or has changed."""
        table = self._by_id.get(id(array))
        return None if table is None or not table.is_unchanged() else table.name

    def resolve(self, name: str) -> np.ndarray:
        """Return an array by its name, with its content at the start."""
        table = self._by_name.get(name)
        if table is None:
            raise UnsupportedEnvError(
                "states: expected states of this environment, got one that refers to data (a large array) "
                "which this environment does not hold. Make both environments from the same data"
            )
        return table.restore()


# types of objects inside generators that an environment may hold, too
PARTS = (np.random.SeedSequence, np.random.MT19937)


class ShortForms:
    """Holds what the short forms of one environment refer to."""

    # `shares_parts`: Whether two objects of the pickle that was written last share a part of a generator.

    shares_parts = False

    def __init__(self, memory: LibraryMemory | None = None) -> None:
        self.memory = memory  # the memory of a C library, which a codec saves; None if there is none
        # The generators of the last state, by their numbers in pickles: they are filled anew for the next.
        self.kept: dict[int, np.random.RandomState | PCG64] = {}
        self.tables = Tables()  # the arrays that never change
        self._num_generators = 0
        self._parts: set[int] = set()
        self.shortens_generators = True  # False pickles them as Python does

    def begin(self) -> None:
        """Prepare to write a pickle."""
        self._num_generators = 0
        self._parts.clear()
        self.shares_parts = False

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
        if not self.shortens_generators:
            return _reduce_with_parts(obj)
        if kind in (PCG64, np.random.RandomState):
            self._see(obj.seed_seq if kind is PCG64 else obj._bit_generator)
            data = _short_state(obj)
            if data is None:
                return _reduce_with_parts(obj) if kind is PCG64 else None
            self._num_generators += 1
            read = Reading.bit_generator if kind is PCG64 else Reading.random_state
            return read, (self._num_generators - 1, data)
        if kind in PARTS:
            self._see(obj)
        return None

    def _see(self, part: object) -> None:
        """Notice a part of a generator. `shares_parts` becomes True if it is met for the second time."""
        self.shares_parts |= id(part) in self._parts
        self._parts.add(id(part))


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
        kept = _reading._short_forms.kept
        generator = kept.get(index)
        if not isinstance(generator, np.random.RandomState):
            generator = kept[index] = np.random.RandomState(0)
        position, has_spare, spare = _REST.unpack_from(data)
        words = np.frombuffer(expand_state(data[_REST.size :]), np.uint32)
        generator.set_state(("MT19937", words, position, int(has_spare), spare))
        return generator

    @staticmethod
    def bit_generator(index: int, saved: tuple[int, int, int, int, _Seeds]) -> PCG64:
        """Return a bit generator in a saved state."""
        state, increment, has_uint32, uinteger, seeds = saved
        kept = _reading._short_forms.kept
        generator = kept.get(index)
        if not isinstance(generator, PCG64) or _seeds_of(generator) != seeds:
            entropy, spawn_key, pool_size, num_spawned = seeds
            sequence = SeedSequence(
                entropy, spawn_key=spawn_key, pool_size=pool_size, n_children_spawned=num_spawned
            )
            generator = kept[index] = PCG64(sequence)
        generator.state = {
            "bit_generator": "PCG64",
            "state": {"state": state, "inc": increment},
            "has_uint32": has_uint32,
            "uinteger": uinteger,
        }
        return generator

    @staticmethod
    def new_bit_generator(kind: Any, seed_sequence: object, state: object) -> Any:
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
    def in_library(place: Place) -> np.ndarray:
        """Return an array at a place in the memory of a library."""
        memory = _reading._short_forms.memory
        assert memory is not None
        return memory.array_at(place)

    @staticmethod
    def table(name: str) -> np.ndarray:
        """Return an array that never changes."""
        return _reading._short_forms.tables.resolve(name)


_reading = Reading()
