"""Objects that pickles hold in a shorter form than Python's: generators, and arrays that never change."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from planvec.codecs.generic.mersenne import RandomStates
from planvec.codecs.generic.tables import Tables

__all__ = ["Reading", "ShortForms"]


class ShortForms:
    """Holds what the short forms of one environment refer to.

    Attributes:
        random_states: Saves and restores `RandomState`s.
        tables: The arrays that never change.
    """

    def __init__(self) -> None:
        self.random_states = RandomStates()
        self.tables = Tables()

    def reduce(self, obj: Any, num_generators: int) -> Any:
        """Return the short form of an object; None if it has none.

        Args:
            obj: The object.
            num_generators: Number of generators that were pickled so far, `obj` included.

        Returns:
            As `__reduce__`.
        """
        if type(obj) is np.random.RandomState:
            data = self.random_states.save(obj)
            return None if data is None else (Reading.random_state, (num_generators - 1, data))
        if type(obj) is np.ndarray:
            name = self.tables.name_of(obj)
            return None if name is None else (Reading.table, (name,))
        return None


class Reading(threading.local):
    """Looks up what a pickle refers to while it is read. Each thread reads its own."""

    _objects: ClassVar[dict[str, Any]] = {}
    _short_forms: ClassVar[ShortForms] = ShortForms()

    @staticmethod
    def begin(objects: dict[str, Any], short_forms: ShortForms) -> None:
        """Prepare to read a pickle.

        Args:
            objects: Name -> object.
            short_forms: What the short forms in the pickle refer to.
        """
        _reading._objects = objects  # type: ignore[misc]
        _reading._short_forms = short_forms  # type: ignore[misc]

    @staticmethod
    def named(name: str) -> Any:
        """Return a named object."""
        return _reading._objects[name]

    @staticmethod
    def random_state(index: int, data: bytes) -> np.random.RandomState:
        """Return a generator in a saved state."""
        return _reading._short_forms.random_states.restore(index, data)

    @staticmethod
    def table(name: str) -> NDArray[Any]:
        """Return an array that never changes."""
        return _reading._short_forms.tables.resolve(name)


_reading = Reading()
