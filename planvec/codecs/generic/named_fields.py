"""Reads and writes one attribute as a field of a record, without a change of its type."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planvec.errors import UnsupportedEnvError

# stands for the value of an attribute that does not exist
MISSING: Any = type("Missing", (), {"__deepcopy__": lambda self, memo: self})()

_DTYPES: dict[type, str] = {bool: "?", int: "<i8", float: "<f8"}


class NamedField(NamedTuple):
    """Describes an attribute: a number or an array."""

    # NumPy rounds by the types of numbers, so each is restored with the type that it had after a reset.

    owner: str  # name of the class of the environment
    name: str  # name of the attribute
    kind: Any  # the type of its value
    dtype: np.dtype[Any]
    shape: tuple[int, ...]  # the shape of the array; () for a number

    @classmethod
    def of(cls, env: Any, name: str) -> NamedField:
        """Return the field of an attribute."""
        value = getattr(env, name)
        kind, owner = type(value), type(env).__name__
        if kind in _DTYPES:
            return cls(owner, name, kind, np.dtype(_DTYPES[kind]), ())
        if isinstance(value, np.generic) or kind is np.ndarray:
            dtype = value.dtype.newbyteorder("<")
            if dtype.kind in "fiub" and dtype.itemsize <= 8 and value.size:
                return cls(owner, name, kind, dtype, value.shape)
        raise UnsupportedEnvError(
            f"state: expected attributes of {owner} that are numbers or arrays of numbers, got {name} = "
            f"{value!r:.100} of type {kind.__name__}. Let the environment keep an array, or several numbers"
        )

    def get(self, env: Any) -> Any:
        """Return the value of the attribute: a number, or a copy of an array."""
        value: Any = getattr(env, self.name)
        if type(value) is self.kind:
            if self.kind is not np.ndarray:
                return value
            array: NDArray[Any] = value
            if array.shape == self.shape and array.dtype == self.dtype:
                return array.copy()
        elif self._is_alike(value):
            return value
        expected, got = self.kind.__name__, f"{value!r:.100} of type {type(value).__name__}"
        if self.kind is np.ndarray:
            expected = f"{self.dtype}{list(self.shape)}"
        if isinstance(value, np.ndarray):
            got = f"{value.dtype}{list(value.shape)}"
        raise UnsupportedEnvError(
            f"{self.owner}.{self.name}: expected {expected} as after a reset, got {got}. NumPy rounds by the "
            "types of numbers: let reset and step assign values of one type"
        )

    def _is_alike(self, value: Any) -> bool:
        """Return whether a number has another type that computes alike: of Python or of NumPy."""
        # The verification compares steps with both. An int, as `max(0, x)` returns it, may stand for a float.
        if self.kind is np.ndarray or not isinstance(value, (bool, int, float, np.generic)):
            return False
        if type(value) is int and self.dtype == np.float64:
            return value == float(value)
        return bool(np.asarray(value).dtype == self.dtype)

    def restored(self, value: Any) -> Any:
        """Return a value with the type that it had after a reset; an array is a copy."""
        if self.kind is np.ndarray:
            return np.array(value, self.dtype)
        return value if type(value) is self.kind else self.kind(value)
