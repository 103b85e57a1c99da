"""Random generators among the attributes of an object."""

from __future__ import annotations

import random
import types
from collections.abc import Sequence
from typing import Any

import numpy as np

from planvec.codecs.generic.functions import cell_contents

# the types of generators that `reseed_generators` takes
RESEEDABLE = (np.random.Generator, np.random.RandomState, random.Random)
_GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator)


def is_reseedable(value: Any) -> bool:
    """Return whether `reseed_generators` takes a value: one of `RESEEDABLE`, or a generator of PyTorch."""
    return isinstance(value, RESEEDABLE) or _is_of_torch(value)


def _is_of_torch(value: Any) -> bool:
    return (type(value).__module__, type(value).__name__) == ("torch._C", "Generator")


def hidden_generator(value: Any) -> bool:
    """Return whether a function holds a random generator in a place where it cannot be saved."""
    return _holds_generator(value, set())


def _holds_generator(value: Any, seen: set[int]) -> bool:
    """Look into a function. `seen` has the ids of the functions before it: they may hold each other."""
    function = getattr(value, "__func__", value)
    cells = getattr(function, "__closure__", None) or ()
    defaults = getattr(function, "__defaults__", None) or ()
    if id(function) in seen:
        return False
    seen.add(id(function))
    inner: list[Any] = [*defaults, getattr(value, "__self__", None), *cell_contents(cells)]
    return any(
        isinstance(item, (*_GENERATORS, types.GeneratorType))
        or type(item).__module__ == "random"
        or _is_of_torch(item)
        or (isinstance(item, types.FunctionType) and _holds_generator(item, seen))
        for item in inner
    )


def reseed_generators(generators: Sequence[Any], seed: int) -> None:
    """Seed each generator from its own stream, derived from the seed and its index."""
    for index, generator in enumerate(generators):
        sequence = np.random.SeedSequence([seed, index])
        if isinstance(generator, np.random.Generator):
            bit_generator: Any = type(generator.bit_generator)
            generator.bit_generator.state = bit_generator(sequence).state
        elif isinstance(generator, np.random.RandomState):
            generator.seed(sequence.generate_state(8))
        elif _is_of_torch(generator):
            generator.manual_seed(int(sequence.generate_state(1, np.uint64)[0]))
        else:
            generator.seed(int.from_bytes(sequence.generate_state(8).tobytes(), "little"))
