"""Reads what another process has pickled by cloudpickle, without changing classes of this process."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable
from functools import partial
from typing import Any

from cloudpickle import cloudpickle

# the functions of cloudpickle that make a class, and which of their arguments is its tracker id
_MAKERS = {"_make_skeleton_class": 4, "_make_skeleton_enum": 5}
_SETTER = "_class_setstate"
_CURE = "and workers do not run the script; make it in the factory, or in a module that the script imports"


def load_pickled(data: Any, buffers: Iterable[Any] = ()) -> Any:
    """Return what was pickled by pickle or cloudpickle."""
    # cloudpickle sends the classes of a script by value. Where this process has sent the class itself, or has
    # received it before, `pickle.loads` would make another class, which `__init_subclass__` of its base may
    # enter in a list, find the one that is known, and replace all of its methods by the copies that come
    # back, whose global variables are those of another process.
    # `data`: The bytes.
    return _Unpickler(io.BytesIO(data), buffers).load()


class _Unpickler(pickle.Unpickler):
    """Leaves the classes as they are that this process knows."""

    # `file`: The bytes.

    def __init__(self, file: io.BytesIO, buffers: Iterable[Any]) -> None:
        super().__init__(file, buffers=buffers)
        self._new: list[type] = []

    def find_class(self, module: str, name: str) -> Any:
        """Return a global of a module. Those that make and fill classes leave those out that are known."""
        try:
            found = super().find_class(module, name)
        except AttributeError as error:
            if module == "__main__":
                error.args = (f"{error}: {name} is pickled by its name, {_CURE}",)
            raise
        if module == cloudpickle.__name__:
            if name in _MAKERS:
                return partial(_make, found, _MAKERS[name], self._new)
            if name == _SETTER:
                return partial(_fill, found, self._new)
        return found


def _make(make: Any, index: int, new: list[type], *arguments: Any) -> type:
    """Return the class of a tracker id, made by cloudpickle's `make` if this process does not know it."""
    cls: type | None = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(arguments[index])
    if cls is None:
        cls = make(*arguments)
        new.append(cls)
    return cls


def _fill(fill: Any, new: list[type], cls: type, state: Any) -> type:
    """Give a new class its contents by cloudpickle's `fill`; return the class."""
    if any(cls is made for made in new):
        fill(cls, state)
    return cls
