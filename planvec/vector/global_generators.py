"""Gives an environment the global generators of NumPy and Python to itself, as in a process of its own."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.random.mtrand import get_bit_generator, set_bit_generator


class GlobalGenerators:
    """Holds the global generators of one environment while others are at work."""

    # That of NumPy is None until the first `seed`: environments of the same kind must begin equal, so that
    # one proof does for all. That of Python is None until a reset is seen to use it, because exchanging it
    # takes 20 us.

    def __init__(self) -> None:
        self._numpy: Any = None
        self._python: Any = None

    def seed(self, seed: int | None) -> None:
        """Begin both with a seed. None begins those that have not begun yet, by chance."""
        if self._numpy is None or seed is not None:
            self._numpy = np.random.MT19937(seed)
        if self._python is not None and seed is not None:
            self._python = random.Random(seed).getstate()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Make them the global ones in the block."""
        if self._python is None:
            with _installed_numpy(self._numpy):
                yield
            return
        outer = random.getstate()
        random.setstate(self._python)
        try:
            with _installed_numpy(self._numpy):
                yield
        finally:
            self._python = random.getstate()
            random.setstate(outer)

    @contextmanager
    def installed_for_reset(self, seed: int | None) -> Iterator[None]:
        """Make them the global ones in the block, and notice whether it uses that of Python."""
        if self._python is not None:
            with self.installed():
                yield
            return
        outer, own = random.getstate(), random.Random(seed).getstate()
        random.setstate(own)
        try:
            with _installed_numpy(self._numpy):
                yield
        finally:
            after = random.getstate()
            self._python = after if after != own else None
            random.setstate(outer)


@contextmanager
def _installed_numpy(generator: Any) -> Iterator[None]:
    outer = get_bit_generator()
    set_bit_generator(generator)
    try:
        yield
    finally:
        set_bit_generator(outer)
