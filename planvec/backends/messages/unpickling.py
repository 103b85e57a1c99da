"""Reads what another process has pickled by cloudpickle, without changing classes of this process."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable
from functools import partial
from typing import Any

from cloudpickle import cloudpickle

__all__ = ["load_pickled"]

_MAKERS = ("_make_skeleton_class", "_make_skeleton_enum")
_SETTER = "_class_setstate"
_CURE = "and workers do not run the script; make it in the factory, or in a module that the script imports"


def load_pickled(data: Any, buffers: Iterable[Any] = ()) -> Any:
    """Return what was pickled by pickle or cloudpickle.

    cloudpickle sends the classes of a script by value. Where this process has sent the class itself, or has
    received it before, `pickle.loads` would find that class and replace all of its methods by the copies
    that come back, whose global variables are those of another process.

    Args:
        data: The bytes.
        buffers: The contents of arrays that were pickled out of band.
    """
    return _Unpickler(io.BytesIO(data), buffers).load()


class _Unpickler(pickle.Unpickler):
    """Leaves the classes as they are that this process knows.

    Args:
        file: The bytes.
        buffers: The contents of arrays.
    """

    def __init__(self, file: io.BytesIO, buffers: Iterable[Any]) -> None:
        super().__init__(file, buffers=buffers)
        self._known: set[type] | None = None  # before this message; None: it brings no class so far

    def find_class(self, module: str, name: str) -> Any:
        """Return a global of a module. The one that fills a class leaves out those that are known."""
        try:
            found = super().find_class(module, name)
        except AttributeError as error:
            if module == "__main__":
                error.args = (f"{error}: {name} is pickled by its name, {_CURE}",)
            raise
        if module == cloudpickle.__name__:
            if name in _MAKERS and self._known is None:
                # Not the keys themselves: another thread may add one while they are read.
                refs = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS.keyrefs()
                self._known = {ref() for ref in refs}
            elif name == _SETTER:
                assert self._known is not None  # a class is made before it is filled
                return partial(_fill, found, self._known)
        return found


def _fill(fill: Any, known: set[type], cls: type, state: Any) -> type:
    """Give a new class its contents by cloudpickle's `fill`; return the class."""
    if cls not in known:
        fill(cls, state)
    return cls
