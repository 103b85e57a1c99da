"""The score of Miniature Golf, which ale-py 0.12 saves as flags instead of numbers.

`MiniatureGolfSettings::saveState` writes five numbers as booleans and reads them back as numbers, so that
the reward for a hole is lost after a restore. They follow from the memory of the console, frame by frame, so
they are counted here too and written into the saved state where the flags stand.

Source: Farama-Foundation/Arcade-Learning-Environment, pull request 732 (mended after 0.12.1).
"""

from __future__ import annotations

import struct
from typing import Any

from planvec.errors import UnsupportedEnvError

__all__ = ["GolfScore"]

_NUMBERS = struct.Struct("<5i")
_PLACE = slice(-32, -12)  # before the flag for the generator and the two limits of the paddles
_FALSE, _TRUE = -0x452E452E, -0x054E054E
"""What a boolean looks like in a saved state."""


def _decimal(byte: int) -> int:
    return 10 * (byte >> 4) + (byte & 15)


class GolfScore:
    """Counts what the reward of Miniature Golf is made of.

    Args:
        memory: `[128]` uint8, of the console after a reset.
    """

    def __init__(self, memory: Any) -> None:
        self._hole = self._par = self._wrapped = self._strokes = self._strokes_before = 0
        self.see(memory)

    def see(self, memory: Any) -> None:
        """Count on after a frame."""
        left, right, hole = (_decimal(int(memory[place])) for place in (0x07, 0x08, 0x2F))
        if hole != self._hole:
            self._hole, self._wrapped, self._strokes_before = hole, 0, self._strokes
        if right:  # between two holes the par is shown there, and the number of the hole on the left
            self._par = right
            return
        if left < self._strokes:  # the display has two digits
            self._wrapped += self._strokes
        self._strokes = left

    def write(self, state: bytes) -> bytes:
        """The saved state with the numbers in the place of the flags.

        Raises:
            UnsupportedEnvError: The flags are not those of the numbers.
        """
        flags = _NUMBERS.unpack(state[_PLACE])
        if not {_FALSE, _TRUE}.issuperset(flags):
            return state  # an ale-py that saves numbers
        numbers = self._hole, self._par, self._wrapped, self._strokes, self._strokes_before
        if tuple(_TRUE if number else _FALSE for number in numbers) != flags:
            raise UnsupportedEnvError('the score of Miniature Golf cannot be followed; pass codec="replay"')
        return state[: _PLACE.start] + _NUMBERS.pack(*numbers) + state[_PLACE.stop :]

    def read(self, state: bytes) -> None:
        """Take the numbers of a saved state."""
        (self._hole, self._par, self._wrapped, self._strokes, self._strokes_before) = _NUMBERS.unpack(
            state[_PLACE]
        )
