"""Reads what another process has pickled by cloudpickle, without changing classes of this process."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable
from typing import Any

from cloudpickle import cloudpickle

__all__ = ["load_pickled"]

_MAKERS = ("_make_skeleton_class", "_make_skeleton_enum")
_SETTER = "_class_setstate"


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
        self._known: set[int] = set()

    def find_class(self, module: str, name: str) -> Any:
        """Return a global of a module; of cloudpickle's, those that watch over known classes."""
        found = super().find_class(module, name)
        if module == cloudpickle.__name__:
            if name in _MAKERS:
                return _Maker(found, self._known)
            if name == _SETTER:
                return _Setter(found, self._known)
        return found


class _Maker:
    """Makes a class without contents, or returns the one that this process knows, and remembers that.

    Args:
        make: cloudpickle's function.
        known: The ids of the classes that were known before, written.
    """

    def __init__(self, make: Any, known: set[int]) -> None:
        self._make = make
        self._known = known

    def __call__(self, *arguments: Any) -> Any:
        before = {id(cls) for cls in list(cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS)}
        cls = self._make(*arguments)
        if id(cls) in before:
            self._known.add(id(cls))
        return cls


class _Setter:
    """Gives a new class its contents.

    Args:
        fill: cloudpickle's function.
        known: The ids of the classes that were known before.
    """

    def __init__(self, fill: Any, known: set[int]) -> None:
        self._fill = fill
        self._known = known

    def __call__(self, cls: Any, state: Any) -> Any:
        return cls if id(cls) in self._known else self._fill(cls, state)
