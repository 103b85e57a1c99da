"""Arrays that an environment made when it was opened and has not changed since: prices, maps, weights.

Pickles refer to them by name. Whether they have changed is seen by comparing their memory, which takes 5 us
for 160 KB; pickling as much takes many times longer, and every state would hold it.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.codecs.differences import is_equal_memory
from planvec.codecs.generic.atoms import ATOMS
from planvec.errors import UnsupportedEnvError

_MIN_BYTES = 16 << 10  # size of the smallest array that is a table


class _Table:
    """Holds an array and its content at the start."""

    def __init__(self, array: NDArray[Any], name: str) -> None:
        self.array, self.name = array, name
        self._first = array.copy(order="K")  # of an array of objects, it keeps the objects alive
        self._form = _form_of(array)
        self._place = int(array.ctypes.data), int(self._first.ctypes.data), int(array.nbytes)

    def is_unchanged(self) -> bool:
        return _form_of(self.array) == self._form and is_equal_memory(*self._place)

    def restore(self) -> NDArray[Any]:
        if self.is_unchanged():
            return self.array
        if _form_of(self.array) != self._form:  # resized, reshaped or made read-only
            return self._first.copy(order="K")
        self.array[...] = self._first
        return self.array


def _form_of(array: NDArray[Any]) -> tuple[Any, ...]:
    """Return all of an array but its content."""
    return array.shape, array.strides, array.dtype, array.flags.writeable, array.ctypes.data


class Tables:
    """Gives names to large arrays, as long as they hold what they held at the start."""

    def __init__(self) -> None:
        self._by_id: dict[int, _Table] = {}
        self._by_name: dict[str, _Table] = {}

    def names(self) -> list[str]:
        """Return the names, which depend on the order of the arrays and on their content."""
        return [table.name for table in self._by_id.values()]

    def add(self, value: Any) -> None:
        """Make a value a table if it is a large array whose memory shows every change."""
        if type(value) is not np.ndarray or value.nbytes < _MIN_BYTES or id(value) in self._by_id:
            return
        is_dense = value.flags.c_contiguous or value.flags.f_contiguous
        # A view is none: it would have to share its memory with a copy of the other array, once one is made.
        is_own = value.base is None and value.flags.owndata
        if not (is_own and is_dense and value.flags.writeable) or value.dtype.names is not None:
            return
        if value.dtype.hasobject and not all(type(item) in ATOMS for item in value.flat):
            return
        content = repr(value.tolist()).encode() if value.dtype.hasobject else value.tobytes()
        digest = hashlib.sha256(f"{value.dtype.str} {value.shape}".encode() + content).hexdigest()
        table = _Table(value, f"table {len(self._by_id)} {digest[:16]}")
        self._by_id[id(value)] = self._by_name[table.name] = table

    def name_of(self, array: Any) -> str | None:
        """Return the name of an array; None if it is no table, or has changed."""
        table = self._by_id.get(id(array))
        return None if table is None or not table.is_unchanged() else table.name

    def resolve(self, name: str) -> NDArray[Any]:
        """Return an array by its name, with its content at the start."""
        table = self._by_name.get(name)
        if table is None:
            raise UnsupportedEnvError(
                "states: expected states of this environment, got one that refers to data (a large array) "
                "which this environment does not hold. Make both environments from the same data"
            )
        return table.restore()
