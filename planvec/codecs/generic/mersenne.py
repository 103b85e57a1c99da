"""Short forms of the state of the Mersenne Twister, the generator behind `np.random.RandomState`.

Its state is 624 words. After `RandomState(seed)` with an integer, they follow from the seed alone, and 624
draws later from these words. So a state is written as the seed and the number of such transitions, if there
is a seed, and else as it is.

Source: Matsumoto and Nishimura, "Mersenne Twister", ACM TOMACS 8 (1998), 3-30.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

_N, _M = 624, 397
_UPPER, _LOWER, _MATRIX = np.uint32(0x80000000), np.uint32(0x7FFFFFFF), np.uint32(0x9908B0DF)
_FACTOR = 1812433253
_INVERSE = pow(_FACTOR, -1, 1 << 32)
_MAX_TRANSITIONS = 4  # largest number of transitions that are undone to find the seed
_SHORT = struct.Struct("<IB")
# position in the words, whether there is a spare normal number, and that number
_REST = struct.Struct("<H?d")
_MEMORY = 4 * _N + 4  # size of the memory with the words and the position in them


class RandomStates:
    """Saves `RandomState`s, and restores them into objects of its own, since making one takes 100 us."""

    # The objects that a state of the environment refers to are filled anew for the next state.

    def __init__(self) -> None:
        self._slots: list[_Slot] = []
        self._slot_of: dict[int, _Slot] = {}

    def save(self, generator: np.random.RandomState) -> bytes | None:
        """Return the state of a generator; None if it is no Mersenne Twister."""
        slot = self._slot_of.get(id(generator))
        return _state_of(generator) if slot is None else slot.save()

    def restore(self, index: int, data: bytes) -> np.random.RandomState:
        """Return a generator in a saved state."""
        while index >= len(self._slots):
            slot = _Slot()
            self._slots.append(slot)
            self._slot_of[id(slot.generator)] = slot
        return self._slots[index].restore(data)


class _Slot:
    """Holds one generator, and knows without asking NumPy whether it was used since it was restored."""

    def __init__(self) -> None:
        self.generator = np.random.RandomState(0)
        self._address = int(self.generator._bit_generator.ctypes.state_address)
        self._words, self._data = b"", b""

    def save(self) -> bytes | None:
        if self._is_unused():
            return self._data
        return _state_of(self.generator)

    def restore(self, data: bytes) -> np.random.RandomState:
        if data != self._data or not self._is_unused():
            position, has_spare, spare = _REST.unpack_from(data)
            words = np.frombuffer(expand_state(data[_REST.size :]), np.uint32)
            self.generator.set_state(("MT19937", words, position, int(has_spare), spare))
            # The spare normal number can be used without a draw. It would not show in the words.
            self._words, self._data = b"" if has_spare else self._read(), data
        return self.generator

    def _is_unused(self) -> bool:
        return self._words != b"" and self._read() == self._words

    def _read(self) -> bytes:
        return ctypes.string_at(self._address, _MEMORY)


def _state_of(generator: np.random.RandomState) -> bytes | None:
    state: Any = generator.get_state(legacy=False)
    if state["bit_generator"] != "MT19937":
        return None
    inner = state["state"]
    rest = _REST.pack(inner["pos"], bool(state["has_gauss"]), state["gauss"])
    return rest + compress_state(inner["key"].tobytes())


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
