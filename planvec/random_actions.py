"""Uniformly random actions, one stream per row, whichever process draws them.

Row `i` of a batch with seed `s` draws from Philox (Salmon et al. 2011, "Parallel random numbers: as easy
as 1, 2, 3") under the key `(s, i)`: a counter-based generator, whose streams need no seeding to be apart.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import Space, spaces

__all__ = ["ActionStreams"]

_BLOCK = 64
"""Actions drawn at once. Part of what a seed means: another size would give other actions."""


class ActionStreams:
    """Random actions for the rows of a batch.

    Args:
        space: The space of one action.
        seed: In [0, 2**64).
    """

    def __init__(self, space: Space[Any], seed: int) -> None:
        self._seed = seed
        self._generator = np.random.Generator(np.random.Philox(key=np.array([seed, 0], np.uint64)))
        self._start: dict[str, Any] = dict(self._generator.bit_generator.state)
        self._draw = _drawer(space, self._generator)

    def start(self, row: int) -> None:
        """Go to the beginning of a row's stream."""
        key = np.array([self._seed, row], np.uint64)
        state = {**self._start, "state": {**self._start["state"], "key": key}}
        self._generator.bit_generator.state = state

    def block(self) -> list[Any]:
        """The next actions of the stream, each as `env.step` takes it."""
        return self._draw()


def _drawer(space: Space[Any], generator: np.random.Generator) -> Callable[[], list[Any]]:
    if isinstance(space, spaces.Discrete):
        low, high = int(space.start), int(space.start + space.n)
        return lambda: list(generator.integers(low, high, _BLOCK).tolist())
    if isinstance(space, spaces.Box) and space.is_bounded("both") and space.dtype is not None:
        shape = (_BLOCK, *space.shape)
        if space.dtype.kind == "f":
            span = space.high.astype(float) - space.low
            return lambda: list(
                np.minimum((space.low + span * generator.random(shape)).astype(space.dtype), space.high)
            )
        return lambda: list(
            generator.integers(space.low, space.high, shape, dtype=space.dtype, endpoint=True)
        )
    if isinstance(space, spaces.MultiDiscrete):
        starts, sizes = space.start, space.nvec
        return lambda: list(
            generator.integers(starts, starts + sizes, (_BLOCK, *space.shape)).astype(space.dtype)
        )
    sampled = copy.deepcopy(space)

    def draw() -> list[Any]:
        sampled.seed(int(generator.integers(2**31)))
        return [sampled.sample() for _ in range(_BLOCK)]

    return draw
