"""The score of Miniature Golf, which ale-py 0.12 saves as flags instead of numbers.

`MiniatureGolfSettings::saveState` writes five numbers as booleans and reads them back as numbers, so the
reward for a hole is lost after a restore. The numbers follow from the memory of the console, frame by frame.
They are counted here too, and replace the flags in the saved state.

Source: Farama-Foundation/Arcade-Learning-Environment, pull request 732 (fixed after 0.12.1).
"""

from __future__ import annotations

import struct
from typing import Any

from planvec.errors import UnsupportedEnvError

_NUMBERS = struct.Struct("<5i")
_SCORE = slice(-32, -12)  # before the flag for the generator and the two limits of the paddles
_FALSE, _TRUE = -0x452E452E, -0x054E054E  # the two booleans, in the form of a saved state


def _decimal(byte: int) -> int:
    return 10 * (byte >> 4) + (byte & 15)


class GolfScore:
    """Counts the numbers that the reward of Miniature Golf is computed from."""

    def __init__(self, memory: Any) -> None:
        self._hole = self._par = self._wrapped = self._strokes = self._strokes_before = 0
        self.update(memory)

    def update(self, memory: Any) -> None:
        """Update the numbers after a frame."""
        left, right, hole = (_decimal(int(memory[address])) for address in (0x07, 0x08, 0x2F))
        if hole != self._hole:
            self._hole, self._wrapped, self._strokes_before = hole, 0, self._strokes
        if right:
            # Between two holes the right display shows the par, and the left one the number of the hole.
            self._par = right
            return
        if left < self._strokes:  # the display has two digits
            self._wrapped += self._strokes
        self._strokes = left

    def write(self, state: bytes) -> bytes:
        """Return a saved state with the numbers instead of the flags."""
        flags = _NUMBERS.unpack(state[_SCORE])
        if not {_FALSE, _TRUE}.issuperset(flags):
            return state  # a later ale-py saves numbers
        numbers = self._hole, self._par, self._wrapped, self._strokes, self._strokes_before
        if tuple(_TRUE if number else _FALSE for number in numbers) != flags:
            raise UnsupportedEnvError(
                f"Miniature Golf: expected flags that fit the score {numbers}, got {flags}; pass "
                'codec="replay"'
            )
        return state[: _SCORE.start] + _NUMBERS.pack(*numbers) + state[_SCORE.stop :]

    def read(self, state: bytes) -> None:
        """Read the numbers from a saved state."""
        (self._hole, self._par, self._wrapped, self._strokes, self._strokes_before) = _NUMBERS.unpack(
            state[_SCORE]
        )
