"""Saves the contacts of a simulation, for environments that read them before they simulate."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

# scratch memory of the solver, and where the forces are, which are not saved
_NOT_SAVED = ("H", "efc_address")


class Contacts:
    """Saves and restores the contacts of one simulation."""

    # MuJoCo has no function to set them, so they are written into its memory. Of each contact, only the
    # fields are saved: the bytes between them are whatever the memory held before.

    def __init__(self, data: Any) -> None:
        self._data = data
        num_contacts, data.ncon = data.ncon, 1
        fields = _fields_of(data.contact)
        data.ncon = num_contacts
        first = fields["dist"]
        self._size = first.strides[0]
        start = first.ctypes.data
        is_field = np.zeros(self._size, bool)
        for name, field in fields.items():
            if name not in _NOT_SAVED:
                offset = field.ctypes.data - start
                is_field[offset : offset + field[0].nbytes] = True
        self._places = np.flatnonzero(is_field)

    def get(self) -> bytes:
        """Return the fields of all contacts."""
        return self._memory()[:, self._places].tobytes() if self._data.ncon else b""

    def set(self, contacts: bytes) -> None:
        """Restore what `get` returned."""
        self._data.ncon = len(contacts) // len(self._places)
        if contacts:
            rows = np.frombuffer(contacts, np.uint8).reshape(-1, len(self._places))
            self._memory()[:, self._places] = rows
            # The forces that it refers to are not there: mj_contactForce would read outside of the memory.
            self._data.contact.efc_address[:] = -1

    def _memory(self) -> NDArray[np.uint8]:
        """Return the memory of the contacts, one per row."""
        number = self._data.ncon
        address = self._data.contact.dist.ctypes.data  # the first field of the first contact
        memory = (ctypes.c_uint8 * (self._size * number)).from_address(address)
        return np.ctypeslib.as_array(memory).reshape(number, self._size)


def _fields_of(contact: Any) -> dict[str, NDArray[Any]]:
    """Return the fields of all contacts, each an array with one row per contact."""
    arrays = {name: getattr(contact, name) for name in dir(contact) if not name.startswith("_")}
    return {name: array for name, array in arrays.items() if isinstance(array, np.ndarray)}
