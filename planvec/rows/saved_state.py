"""One saved state of variable size."""

from __future__ import annotations

__all__ = ["GENERATOR_FIELD", "SavedState"]

GENERATOR_FIELD = "generator"
"""Name of the field that holds the random generator, in states of fixed size that save one."""


class SavedState:
    """One saved state of variable size: opaque, immutable, hashable, equal by its bytes.

    Arrays of states whose size varies have dtype object and hold these. (Plain `bytes` would not
    do: NumPy turns them into its own string type and strips their trailing zeros.)

    Attributes:
        origin: Which kind of environment and codec saved it; a state is only restored into the same.
        without_generator: Its bytes without those of the random generator, where that is saved apart at
            their end.
    """

    __slots__ = ("_data", "_generator_size", "origin")

    _data: bytes
    _generator_size: int
    origin: str

    def __init__(self, data: bytes, origin: str, generator_size: int = 0) -> None:
        object.__setattr__(self, "_data", bytes(data))
        object.__setattr__(self, "_generator_size", generator_size)
        object.__setattr__(self, "origin", origin)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a SavedState cannot be changed, so {name!r} cannot be set")

    def __bytes__(self) -> bytes:
        return self._data

    @property
    def without_generator(self) -> bytes:
        """Its bytes without those of the random generator: equal for states that differ in nothing else."""
        return self._data[: len(self._data) - self._generator_size]

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return len(self._data)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SavedState):
            return NotImplemented
        return self._data == other._data and self.origin == other.origin

    def __hash__(self) -> int:
        return hash(self._data)

    def __reduce__(self) -> tuple[type[SavedState], tuple[bytes, str, int]]:
        return SavedState, (self._data, self.origin, self._generator_size)

    def __repr__(self) -> str:
        return f"<SavedState of {self.origin}, {self.nbytes} bytes>"
