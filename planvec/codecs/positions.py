"""Reads how far generators are that are no part of an environment, to notice that steps draw from them."""

from __future__ import annotations

import ctypes
import pickle
import random
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import gymnasium
import numpy as np

GLOBAL_GENERATORS: dict[str, Any] = {  # by their modules
    "numpy.random": np.random.mtrand._rand,
    "random": random._inst,
}
_GLOBAL = "the global generator of"
_INDEX = 0xFFFFFFFF


def spaces_in(space: gymnasium.Space[object]) -> list[gymnasium.Space[Any]]:
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


def torch_generator_state() -> bytes:
    """Return the state of PyTorch's global generator; empty if PyTorch is not imported."""
    torch = imported_torch()
    return b"" if torch is None else torch.get_rng_state().numpy().tobytes()


def imported_torch() -> Any:
    """Return PyTorch if it is imported, and not just being imported."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "get_rng_state") else None


def global_generators() -> dict[str, Any]:
    """Return the states of the global generators by their modules, to be compared with later ones."""
    return {
        "random": random.getstate(),
        "numpy.random": pickle.dumps(np.random.get_state(legacy=False)),  # noqa: NPY002
        "torch": torch_generator_state(),
    }


# Where CPython, NumPy 1 and 2, and numba keep the position of a generator in memory; [] if it is not found
# there. That of a Mersenne Twister is the index of the next word, and one of the words, all of which are made
# anew when they are used up. Comparing whole states would take 60 us; this takes one, around every batch.

_Cell = ctypes.c_uint32 | ctypes.c_uint64
_Generator = np.random.Generator | np.random.RandomState


def _cells_of_python(generator: random.Random) -> list[_Cell]:
    position = ctypes.c_uint64.from_address(id(generator) + object.__basicsize__)  # the index, a word
    for _ in range(3):  # another thread may draw meanwhile
        if position.value & _INDEX == generator.getstate()[1][-1]:
            return [position]
    return []


def _cells_of_numpy(generator: _Generator) -> list[_Cell]:
    bits = generator.bit_generator if isinstance(generator, np.random.Generator) else generator._bit_generator
    address = bits.ctypes.state_address
    if isinstance(bits, np.random.MT19937):  # 624 words, the index
        cells: list[_Cell] = [ctypes.c_uint32.from_address(address + 4 * n) for n in (624, 0)]
        number = bits.state["state"]["pos"]
    elif isinstance(bits, np.random.PCG64):  # a pointer, and whether half a word is left
        inner = ctypes.c_size_t.from_address(address)
        half = ctypes.c_uint32.from_address(address + ctypes.sizeof(inner))
        cells = [*(ctypes.c_uint64.from_address(inner.value + n) for n in (0, 8)), half]
        number = bits.state["state"]["state"] & _INDEX
    else:
        return []
    if isinstance(generator, np.random.RandomState):
        size = type(generator).__basicsize__
        words = (ctypes.c_size_t * (size // 8)).from_address(id(generator))
        # A pointer to a part of itself; then whether the second one of a pair of normal deviates is left.
        own = [number for number, word in enumerate(words) if 0 <= word - id(generator) < size]
        if len(own) != 1:
            return []
        cells.append(ctypes.c_uint32.from_address(id(generator) + 8 * (own[0] + 1)))
        state = generator.get_state(legacy=False)
        if not isinstance(state, dict) or cells[-1].value != state["has_gauss"]:
            return []
    return cells if cells[0].value & _INDEX == number else []


def _cells_of_numba(address: int) -> list[_Cell]:
    # the index, 624 words, whether a deviate is left
    return [ctypes.c_uint64.from_address(address), ctypes.c_uint32.from_address(address + 4 * 625)]


class _Watched(NamedTuple):
    """Holds how the position of a generator is read."""

    name: str
    generator: object  # keeps the memory that the cells are in
    cells: list[_Cell]
    reads: list[Callable[[], object]]  # return what the cells do not show


def _watched(name: str, generator: object) -> _Watched:
    """Return how the position of a generator is read, or of a space, which has one."""
    if isinstance(generator, gymnasium.Space):
        return _Watched(name, generator, [], [_reader_of_space(generator)])
    if isinstance(generator, random.Random):
        is_known = type(generator) is random.Random and sys.implementation.name == "cpython"
        cells = _cells_of_python(generator) if is_known else []
        # `gauss` makes two deviates at once.
        read = partial(getattr, generator, "gauss_next") if cells else generator.getstate
        return _Watched(name, generator, cells, [read])
    cells = _cells_of_numpy(generator) if isinstance(generator, _Generator) else []
    return _Watched(name, generator, cells, [] if cells else [partial(pickle.dumps, generator)])


def _reader_of_space(space: gymnasium.Space[object]) -> Callable[[], object]:
    """Return how the position of a space is read, which may get another generator."""
    latest: _Generator | None = None
    cells: list[_Cell] = []

    def read() -> object:
        nonlocal latest, cells
        generator = space._np_random
        if generator is not latest:
            latest, cells = generator, [] if generator is None else _cells_of_numpy(generator)
        if latest is None:  # most spaces draw nothing
            return None
        return (latest, [cell.value for cell in cells]) if cells else pickle.dumps(latest)

    return read


def without_global(moved: dict[str, int | None]) -> dict[str, int | None]:
    """Return those generators that have moved from which other threads hardly draw."""
    return {name: words for name, words in moved.items() if not name.startswith(_GLOBAL)}


Position = tuple[list[int], list[object]]  # of all generators: values of cells, and what was read otherwise


class Positions:
    """Reads how far generators are that are no part of an environment: values that differ after a draw."""

    def __init__(self, others: Iterable[tuple[str, object]] = ()) -> None:
        """Watch the global generators, and with their paths, generators and spaces that others hold."""
        found = {id(value): (path, value) for path, value in others}  # each once
        self._others = [
            _watched(f"{_GLOBAL} `random`", GLOBAL_GENERATORS["random"]),
            _Watched(f"{_GLOBAL} `torch`", None, [], [torch_generator_state]),
            *(
                _watched(f"the generator of {path}", generator)
                for path, value in found.values()
                for generator in (spaces_in(value) if isinstance(value, gymnasium.Space) else [value])
            ),
        ]
        self._twister: object = None  # of the global generator of NumPy
        self._thread = 0  # where numba keeps the generators of the thread
        self._get_thread: Callable[[], int] = lambda: 0
        self._get_of_python = self._get_thread
        if "numba" in sys.modules:
            from numba import _helperlib

            helpers: Any = _helperlib
            self._get_thread = helpers.rnd_get_np_state_ptr
            self._get_of_python = helpers.rnd_get_py_state_ptr

    def now(self) -> Position:
        """Return the positions."""
        twister = GLOBAL_GENERATORS["numpy.random"]._bit_generator
        thread = self._get_thread()
        if twister is not self._twister or thread != self._thread:
            self._find(twister, thread)
        return [cell.value for cell in self._cells], [read() for read in self._reads]

    def _find(self, twister: object, thread: int) -> None:
        """Find what can change: NumPy's generator can be replaced, and numba has some for each thread."""
        name = f"{_GLOBAL} `numpy.random`"
        if twister is not self._twister:
            self._of_numpy = _watched(name, GLOBAL_GENERATORS["numpy.random"])
        self._twister, self._thread = twister, thread
        watched = [*self._others, self._of_numpy]
        if thread:
            of_python = f"{_GLOBAL} `random` in numba"
            watched.append(_Watched(f"{name} in numba", None, _cells_of_numba(thread), []))
            watched.append(_Watched(of_python, None, _cells_of_numba(self._get_of_python()), []))
        self._cells = [cell for each in watched for cell in each.cells]
        self._reads = [read for each in watched for read in each.reads]
        self._names = [each.name for each in watched for _ in each.cells]
        self._names_of_reads = [each.name for each in watched for _ in each.reads]

    def moved(self, before: Position) -> dict[str, int | None]:
        """Return the generators that have moved since then, and for Mersenne Twisters, by how many words."""
        now = self.now()
        if now == before:
            return {}
        moved: dict[str, int | None] = {}
        for name, first, last in zip(self._names, before[0], now[0], strict=False):
            if first != last:
                moved.setdefault(name, ((last & _INDEX) - (first & _INDEX)) % 624)
        for name, *pair in zip(self._names_of_reads, before[1], now[1], strict=False):
            if pair[0] != pair[1]:
                moved.setdefault(name, None)
        return moved
