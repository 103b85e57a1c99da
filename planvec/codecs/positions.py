"""Reads how far generators are that are no part of an environment, to notice that steps draw from them."""

from __future__ import annotations

import copy
import ctypes
import pickle
import random
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
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


def generator_states(space: gymnasium.Space[object]) -> list[str | None]:
    """Return the states of the generators of a space and of the spaces in it, as texts, or None."""
    generators = [inner._np_random for inner in spaces_in(space)]
    return [None if generator is None else repr(generator.bit_generator.state) for generator in generators]


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


def seeded_by(reset: Callable[[], object], spaces: Mapping[str, gymnasium.Space[Any]]) -> list[str]:
    """Return the names, as in `Positions`, of the generators that a reset seeds."""
    before, torch, states = global_generators(), imported_torch(), []
    inner_spaces = [inner for space in spaces.values() for inner in spaces_in(space)]
    of_spaces = [copy.deepcopy(inner._np_random) for inner in inner_spaces]
    try:
        for num_draws in (1, 2):  # so that they are elsewhere before each of two resets
            for _ in range(num_draws):
                random.random()
                np.random.random()  # noqa: NPY002
                if torch is not None:
                    torch.rand(1)
                for inner in inner_spaces:
                    inner.np_random.random()
            reset()
            states.append(
                {f"{_GLOBAL} `{name}`": state for name, state in global_generators().items()}
                | {f"the generator of {path}": generator_states(space) for path, space in spaces.items()}
            )
    finally:
        random.setstate(before["random"])
        np.random.set_state(pickle.loads(before["numpy.random"]))  # noqa: NPY002
        if torch is not None:
            torch.set_rng_state(torch.frombuffer(bytearray(before["torch"]), dtype=torch.uint8))
        for inner, generator in zip(inner_spaces, of_spaces, strict=True):
            inner._np_random = generator
    return [name for name, state in states[0].items() if state and state == states[1][name]]


# Where CPython, NumPy 1 and 2, and numba keep the position of a generator in memory; [] if it is not found
# there. That of a Mersenne Twister is the index of the next word, and one of the words, all of which are made
# anew when they are used up. Comparing whole states would take 60 us; this takes one, around every batch.

_Cell = ctypes.c_uint32 | ctypes.c_uint64
_Read = Callable[[], object]
_Generator = np.random.Generator | np.random.RandomState


def _cells_of_python(generator: random.Random) -> list[_Cell]:
    position = ctypes.c_uint64.from_address(id(generator) + object.__basicsize__)  # the index, a word
    for _ in range(3):  # another thread may draw meanwhile
        if position.value & _INDEX == generator.getstate()[1][-1]:
            return [position]
    return []


def _cells_of_numpy(generator: _Generator, bits: np.random.BitGenerator) -> list[_Cell]:
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


def _position_of(generator: object, bits: np.random.BitGenerator | None) -> tuple[list[_Cell], list[_Read]]:
    """Return where the position of a generator with a bit generator is, and how the rest of it is read."""
    # Both must be kept while the cells are used.
    cells: list[_Cell] = []
    if isinstance(generator, random.Random):
        if type(generator) is random.Random and sys.implementation.name == "cpython":
            cells = _cells_of_python(generator)
        # `gauss` makes two deviates at once.
        return cells, [partial(getattr, generator, "gauss_next") if cells else generator.getstate]
    if isinstance(generator, _Generator) and bits is not None:
        cells = _cells_of_numpy(generator, bits)
    return cells, [] if cells else [partial(pickle.dumps, generator)]


def _reader(get: Callable[[], object]) -> _Read:
    """Return how the position is read of a generator that may be replaced by another one, or by None."""
    latest: object = None
    inner: object = None
    cells: list[_Cell] = []
    reads: list[_Read] = []

    def read() -> object:
        nonlocal latest, inner, cells, reads
        generator = get()
        if generator is None:  # most spaces draw nothing
            return None
        bits = getattr(generator, "_bit_generator", None)
        if generator is not latest or bits is not inner:
            latest, inner = generator, bits
            cells, reads = _position_of(generator, bits)
        return [cell.value for cell in cells], [each() for each in reads]

    return read


# what is watched: a space, or a function that returns a generator
Source = gymnasium.Space[object] | Callable[[], object]
Position = tuple[list[int], list[object]]  # of all generators: values of cells, and what was read otherwise


class _Watched(NamedTuple):
    """Holds how the position of a generator is read."""

    name: str
    cells: list[_Cell]
    reads: list[_Read]  # return what the cells do not show


class Positions:
    """Reads how far generators are that are no part of an environment: values that differ after a draw."""

    def __init__(self, others: Iterable[tuple[str, Source]] = ()) -> None:
        """Watch the global generators, and others by their paths: spaces, or functions that return one."""
        self.allowed: Collection[str] = ()  # names of those that may move
        # each once: several environments may share a space, or a module
        found = {id(one) if isinstance(one, gymnasium.Space) else path: (path, one) for path, one in others}
        self._others = [
            _Watched(f"{_GLOBAL} `random`", *_position_of(GLOBAL_GENERATORS["random"], None)),
            _Watched(f"{_GLOBAL} `torch`", [], [torch_generator_state]),
            *(
                _Watched(f"the generator of {path}", [], [_reader(get)])
                for path, value in found.values()
                for get in (_getters(value) if isinstance(value, gymnasium.Space) else [value])
            ),
        ]
        self._twister: object = None  # of the global generator of NumPy
        self._thread = 0  # where numba keeps the generators of the thread
        self._numba: Any = None  # its module, once the program has imported it

    def now(self) -> Position:
        """Return the positions."""
        twister = GLOBAL_GENERATORS["numpy.random"]._bit_generator
        if self._numba is None:
            self._numba = sys.modules.get("numba._helperlib")
        thread = 0 if self._numba is None else self._numba.rnd_get_np_state_ptr()
        if twister is not self._twister or thread != self._thread:
            self._find(twister, thread)
        return [cell.value for cell in self._cells], [read() for read in self._reads]

    def _find(self, twister: np.random.BitGenerator, thread: int) -> None:
        """Find what can change: NumPy's generator can be replaced, and numba has some for each thread."""
        name = f"{_GLOBAL} `numpy.random`"
        if twister is not self._twister:
            self._of_numpy = _Watched(name, *_position_of(GLOBAL_GENERATORS["numpy.random"], twister))
        self._twister, self._thread = twister, thread
        watched = [*self._others, self._of_numpy]
        if thread:
            of_python = _cells_of_numba(self._numba.rnd_get_py_state_ptr())
            watched.append(_Watched(f"{name} in numba", _cells_of_numba(thread), []))
            watched.append(_Watched(f"{_GLOBAL} `random` in numba", of_python, []))
        self._cells = [cell for each in watched for cell in each.cells]
        self._reads = [read for each in watched for read in each.reads]
        self._names = [each.name for each in watched for _ in each.cells]
        self._names_of_reads = [each.name for each in watched for _ in each.reads]

    def has_same(self, before: Position) -> bool:
        """Return whether no generator has moved that was there before."""
        now = self.now()
        return now[0][: len(before[0])] == before[0] and now[1] == before[1]

    def moved(self, before: Position) -> list[str]:
        """Return the names of the generators that have moved since then."""
        now = self.now()
        if now == before:
            return []
        num_cells = len(before[0])
        cells = zip(self._names, before[0], now[0], strict=False)
        reads = zip(self._names_of_reads, before[1], now[1], strict=True)
        moved = [name for name, first, last in cells if first != last]
        moved += [name for name, first, last in reads if first != last]
        moved += self._names[num_cells:]  # those of numba, which was imported meanwhile
        return [name for name in dict.fromkeys(moved) if name not in self.allowed]


def _getters(space: gymnasium.Space[object]) -> list[Callable[[], object]]:
    return [partial(getattr, inner, "_np_random") for inner in spaces_in(space)]
