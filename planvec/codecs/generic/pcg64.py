"""Saves PCG64, the generator behind `np.random.default_rng`, and restores it into objects that are kept.

Python's own pickle of one takes 500 bytes, and making a new one from it 20 us. NumPy 1 forgets its seed
sequence, from which further generators are spawned.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import PCG64, SeedSequence

# state, increment, whether 32 bits are left from the last draw, these bits, and the `_Seeds`
SavedPcg64 = tuple[int, int, int, int, Any]
# entropy, spawn key, size of the pool, and number of spawned children
_Seeds = tuple[Any, tuple[int, ...], int, int]


class Pcg64s:
    """Saves and restores bit generators."""

    # The objects that a state of the environment refers to are filled anew for the next state.

    def __init__(self) -> None:
        self._slots: list[tuple[PCG64, _Seeds]] = []

    def save(self, generator: PCG64) -> SavedPcg64 | None:
        """Return the state of a generator; None if its seed sequence is none of NumPy's."""
        seeds = _seeds_of(generator)
        if seeds is None:
            return None
        state: Any = generator.state
        inner = state["state"]
        return inner["state"], inner["inc"], state["has_uint32"], state["uinteger"], seeds

    def restore(self, index: int, saved: SavedPcg64) -> PCG64:
        """Return a generator in a saved state."""
        state, increment, has_uint32, uinteger, seeds = saved
        while index >= len(self._slots):
            self._slots.append(_new((0, (), 4, 0)))
        generator, own_seeds = self._slots[index]
        if seeds != own_seeds or _seeds_of(generator) != own_seeds:
            generator, _ = self._slots[index] = _new(seeds)
        generator.state = {
            "bit_generator": "PCG64",
            "state": {"state": state, "inc": increment},
            "has_uint32": has_uint32,
            "uinteger": uinteger,
        }
        return generator


def _new(seeds: _Seeds) -> tuple[PCG64, _Seeds]:
    entropy, spawn_key, pool_size, num_spawned = seeds
    sequence = SeedSequence(entropy, spawn_key=spawn_key, pool_size=pool_size, n_children_spawned=num_spawned)
    return PCG64(sequence), seeds


def _is_flat(entropy: Any) -> bool:
    return isinstance(entropy, (list, tuple)) and all(isinstance(word, (int, np.integer)) for word in entropy)


def _seeds_of(generator: PCG64) -> _Seeds | None:
    sequence: Any = generator.seed_seq
    if type(sequence) is not SeedSequence:
        return None
    entropy: Any = sequence.entropy
    if not (entropy is None or isinstance(entropy, (int, np.integer)) or _is_flat(entropy)):
        return None
    return entropy, tuple(sequence.spawn_key), sequence.pool_size, sequence.n_children_spawned
