"""Converts what codecs save to and from the fields of records. Letters: B rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Fields(ABC):
    """Converts batches of values to and from the fields of a structured array.

    A *value* is what `get` returns for one state: a tuple with one entry per field of `dtype`.
    Whole batches are converted at once, since reading records one by one costs several times more.

    Attributes:
        dtype: A structured dtype with the fields to save, or None if the size of a value varies. Such values
            are pickled. They must be plain data that nothing else changes.
        draws: Whether stepping draws from `env.np_random`. If it does, the generator is part of the state.
        stochastic: Whether these random draws can change the outcome of a step. None means the same as
            `draws`.
    """

    dtype: np.dtype[Any] | None = None
    draws: bool = True
    stochastic: bool | None = None

    @abstractmethod
    def get(self, saved: Any) -> Any:
        """Return the value of the present state."""

    def digests(self, saved: Any) -> dict[str, bytes]:
        """Return digests of what an object holds now, by name. They are equal for equal states.

        Args:
            saved: The environment or the wrapper.
        """
        if self.dtype is None:
            return {}
        record = np.zeros(1, self.dtype)
        self.pack([self.get(saved)], record)
        return {f"{type(saved).__name__}.{name}": record[name].tobytes() for name in self._names()}

    def _names(self) -> tuple[str, ...]:
        return (self.dtype.names or ()) if self.dtype is not None else ()

    def pack(self, values: Sequence[Any], records: NDArray[Any]) -> None:
        """Write values into the fields of records.

        Args:
            values: `[B]`, what `get` returned for each row.
            records: `[B]`, filled. They have the fields of `dtype`, and fields of other layers, which stay
                as they are.
        """
        for name, column in zip(self._names(), zip(*values, strict=True), strict=True):
            records[name] = column

    def unpack(self, records: NDArray[Any]) -> list[Any]:
        """Read values from the fields of records.

        Args:
            records: `[B]`, with the fields of `dtype` among others.

        Returns:
            `[B]`, what `set` takes for each row. Arrays in it are private copies.
        """
        columns = []
        for name in self._names():
            column = records[name]
            columns.append(column.tolist() if column.ndim == 1 else list(column.copy()))
        return list(zip(*columns, strict=True)) if columns else [()] * len(records)
