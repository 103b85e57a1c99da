"""The elements of simple spaces, as fields of a record."""

from __future__ import annotations

from typing import Any

from gymnasium import Space, spaces


def element_dtype(space: Space[Any]) -> tuple[Any, tuple[int, ...]] | None:
    """Return the dtype and the shape of the elements of a simple space; None for a nested space."""
    if isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        assert space.shape is not None
        return space.dtype, space.shape
    return None


def to_element(space: Space[Any], stored: Any) -> Any:
    """Convert a stored element to the type that environments use: an int for Discrete, else an array."""
    return int(stored) if isinstance(space, spaces.Discrete) else stored
