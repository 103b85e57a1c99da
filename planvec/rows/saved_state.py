"""Defines `SavedState`, the form of a state of variable size, and names of fields of states."""

from __future__ import annotations

from typing import Any

import numpy as np

GENERATOR_FIELD = "generator"  # name of the field that holds the random generator, in records that have one
# Name of the field that holds the player to move, in the states of games for two players: 0, or 1, whose
# rewards are those of player 0 with the other sign. An integer of one byte.
PLAYER_FIELD = "current_player"
# key of the info that reports the legal actions, and name of the field that holds them, `[M]` bool
ACTION_MASK_FIELD = "action_mask"


class SavedState:
    """Holds one saved state of variable size: opaque, immutable and hashable.

    Two states are equal if their bytes and their origins are equal. If the size of states varies, arrays of
    states have dtype object and hold objects of this type. (NumPy would strip trailing zeros from plain
    `bytes`.)

    Args:
        data: The bytes of the state. If the random generator is saved separately, its bytes come last.
        origin: Name of the environment and codec that saved the state. Others refuse to restore it.
        generator_size: Number of bytes of the random generator; 0 if it is not saved separately.
        action_mask: The legal actions, one byte for each number of a mask; b"" if it is not known.

    Attributes:
        origin: Name of the environment and codec that saved the state.
        action_mask: As given. It follows from the data.
    """

    __slots__ = ("_data", "_generator_size", "action_mask", "origin")

    _data: bytes
    _generator_size: int
    origin: str
    action_mask: bytes

    def __init__(self, data: bytes, origin: str, generator_size: int = 0, action_mask: bytes = b"") -> None:
        object.__setattr__(self, "_data", bytes(data))
        object.__setattr__(self, "_generator_size", generator_size)
        object.__setattr__(self, "origin", origin)
        object.__setattr__(self, "action_mask", bytes(action_mask))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a SavedState cannot be changed, so {name!r} cannot be set")

    def __bytes__(self) -> bytes:
        return self._data

    @property
    def without_generator(self) -> bytes:
        """The bytes without those of the random generator: equal for states that differ only in it."""
        return self._data[: len(self._data) - self._generator_size]

    @property
    def generator_size(self) -> int:
        """The number of bytes of the random generator; 0 if it is not saved separately."""
        return self._generator_size

    @property
    def nbytes(self) -> int:
        """The size of the state in bytes."""
        return len(self._data)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SavedState):
            return NotImplemented
        return self._data == other._data and self.origin == other.origin

    def __hash__(self) -> int:
        return hash(self._data)

    def __reduce__(self) -> tuple[type[SavedState], tuple[bytes, str, int, bytes]]:
        return SavedState, (self._data, self.origin, self._generator_size, self.action_mask)

    def __repr__(self) -> str:
        return f"<SavedState of {self.origin}, {self.nbytes} bytes>"


def has_players(dtype: np.dtype[Any]) -> bool:
    """Return whether states of a dtype tell which of two players is to move."""
    return PLAYER_FIELD in (dtype.names or ())
