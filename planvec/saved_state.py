"""One saved state of variable size."""

from __future__ import annotations

__all__ = ["SavedState"]


class SavedState:
    """One saved state of variable size: opaque, immutable, hashable, equal by its bytes.

    Arrays of states whose size varies have dtype object and hold these. (Plain `bytes` would not
    do: NumPy turns them into its own string type and strips their trailing zeros.)

    Attributes:
        origin: Which kind of environment and codec saved it; a state is only restored into the same.
    """

    __slots__ = ("_data", "origin")

    _data: bytes
    origin: str

    def __init__(self, data: bytes, origin: str) -> None:
        object.__setattr__(self, "_data", bytes(data))
        object.__setattr__(self, "origin", origin)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a SavedState cannot be changed, so {name!r} cannot be set")

    def __bytes__(self) -> bytes:
        return self._data

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

    def __reduce__(self) -> tuple[type[SavedState], tuple[bytes, str]]:
        return SavedState, (self._data, self.origin)

    def __repr__(self) -> str:
        return f"<SavedState of {self.origin}, {self.nbytes} bytes>"
