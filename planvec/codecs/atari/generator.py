"""The generator of the emulator, from which each reset draws the contents of the console's memory.

Loading a game seeds it, always with the same number. So its text follows from the number of resets since.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

# numbers of a Mersenne twister (MT19937), which the text lists, with the position after them
_STATE_SIZE = 624


class GeneratorTexts:
    """Knows the text of the generator after any number of resets."""

    def __init__(self, after_reset: Callable[[bytes], bytes]) -> None:
        self._after_reset = after_reset
        self._first = b""
        self._latest: tuple[int, bytes] = (0, b"")
        self._num_draws: int | None = None  # of one reset; None: not known yet

    def begin(self, text: bytes) -> None:
        """Note the text after the first reset since the game was loaded."""
        if text != self._first:
            self._first, self._num_draws = text, None
        self._latest = (1, text)

    def note(self, num_resets: int, text: bytes) -> None:
        """Note the text after a number of resets, which are often followed by the next one."""
        self._latest = (num_resets, text)

    def after(self, num_resets: int) -> bytes:
        """Return the text after a number of resets, at least one."""
        if num_resets != self._latest[0]:
            self._latest = (num_resets, self._computed(num_resets))
        return self._latest[1]

    def _computed(self, num_resets: int) -> bytes:
        if num_resets == 1:
            return self._first
        if self._num_draws is None:
            second = self._after_reset(self._first)
            self._num_draws = (_position(second) - _position(self._first)) % _STATE_SIZE
            if _advanced(self._first, self._num_draws) != second:
                self._num_draws = 0
        if self._num_draws:
            return _advanced(self._first, self._num_draws * (num_resets - 1))
        text = self._first  # a game that draws in another way
        for _ in range(num_resets - 1):
            text = self._after_reset(text)
        return text


def _position(text: bytes) -> int:
    return int(text.split()[-1])


def _advanced(text: bytes, num_draws: int) -> bytes:
    """Return the text after a number of draws."""
    *key, position = map(int, text.split())
    twister = np.random.MT19937()
    state: Any = {"key": np.array(key, np.uint32), "pos": position}
    twister.state = {"bit_generator": "MT19937", "state": state}
    twister.random_raw(num_draws, output=False)
    after = twister.state["state"]
    return b" ".join(str(number).encode() for number in (*after["key"].tolist(), after["pos"]))
