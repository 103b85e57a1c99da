"""Reads how far generators are that are no part of an environment, to notice that steps draw from them."""

from __future__ import annotations

import ctypes
import pickle
import random
import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import gymnasium
import numpy as np

GLOBAL_GENERATORS: dict[str, Any] = {  # by their modules
    "numpy.random": np.random.mtrand._rand,
    "random": random._inst,
}
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


class Positions:
    """Reads how far generators are that are no part of an environment: values that differ after a draw."""

    def __init__(self, others: Mapping[str, object] = MappingProxyType({})) -> None:
        """Watch the global generators, and by path, generators and spaces that others hold."""
        self._names: list[str] = []
        self._cells: list[_Cell] = []
        self._kept = [*others.values()]  # what the cells are in
        self._reads: list[tuple[str, Callable[[], object]]] = []  # of generators without known cells
        python = GLOBAL_GENERATORS["random"]
        self._add("the global generator of `random`", python)
        for path, value in others.items():
            for generator in spaces_in(value) if isinstance(value, gymnasium.Space) else [value]:
                self._add(f"the generator of {path}", generator)
        self._others = [*self._names], [*self._cells], [*self._reads]
        self._twister: object = None  # of the global generator of NumPy
        self._thread = 0  # where numba keeps the generators of the thread
        self._get_thread: Callable[[], int] = lambda: 0
        self._get_of_python = self._get_thread
        if "numba" in sys.modules:
            from numba import _helperlib

            helpers: Any = _helperlib
            self._get_thread = helpers.rnd_get_np_state_ptr
            self._get_of_python = helpers.rnd_get_py_state_ptr

    def _add(self, name: str, generator: object) -> None:
        cells: list[_Cell] = []
        if isinstance(generator, gymnasium.Space):
            read = _reader_of_space(generator)
        elif isinstance(generator, random.Random):
            read = generator.getstate
            if type(generator) is random.Random and sys.implementation.name == "cpython":
                cells = _cells_of_python(generator)
            if cells:  # `gauss` makes two deviates at once
                self._reads.append((name, partial(getattr, generator, "gauss_next")))
        else:
            if isinstance(generator, _Generator):
                cells = _cells_of_numpy(generator)
            read = partial(pickle.dumps, generator)
        self._names += [name] * len(cells)
        self._cells += cells
        if not cells:
            self._reads.append((name, read))

    def now(self) -> tuple[list[int], list[object]]:
        """Return the positions."""
        twister = GLOBAL_GENERATORS["numpy.random"]._bit_generator
        thread = self._get_thread()
        if twister is not self._twister or thread != self._thread:
            self._find(twister, thread)
        others = [read() for _, read in self._reads]
        if "torch" in sys.modules:
            others.append(torch_generator_state())
        return [cell.value for cell in self._cells], others

    def _find(self, twister: object, thread: int) -> None:
        """Find what can change: numba has generators for each thread, and NumPy's can be replaced."""
        self._names, self._cells, self._reads = ([*each] for each in self._others)
        self._twister, self._thread = twister, thread
        name = "the global generator of `numpy.random`"
        self._add(name, GLOBAL_GENERATORS["numpy.random"])
        if thread:
            self._cells += (*_cells_of_numba(thread), *_cells_of_numba(self._get_of_python()))
            self._names += 2 * [f"{name} in numba"] + 2 * ["the global generator of `random` in numba"]

    def moves(
        self, before: tuple[list[int], list[object]], after: tuple[list[int], list[object]]
    ) -> dict[str, int | None]:
        """Return the names of the generators that have moved, and for Mersenne Twisters, how many words."""
        moved: dict[str, int | None] = {}
        for name, first, last in zip(self._names, before[0], after[0], strict=False):
            if first != last:
                moved.setdefault(name, ((last & _INDEX) - (first & _INDEX)) % 624)
        others = [*(name for name, _ in self._reads), "the global generator of `torch`"]
        for name, *pair in zip(others, before[1], after[1], strict=False):
            if pair[0] != pair[1]:
                moved.setdefault(name, None)
        return moved


def _reader_of_space(space: gymnasium.Space[object]) -> Callable[[], object]:
    """Return how the position of a space is read, which may get another generator."""
    latest: _Generator | None = None
    cells: list[_Cell] = []

    def read() -> object:
        nonlocal latest, cells
        generator = space._np_random
        if generator is not latest:
            latest, cells = generator, [] if generator is None else _cells_of_numpy(generator)
        if latest is None or cells:
            return latest, [cell.value for cell in cells]
        return pickle.dumps(latest)

    return read
