"""Loads what the parent has pickled by cloudpickle, with the classes of the user's script."""

from __future__ import annotations

import sys
from typing import Any

import cloudpickle

from planvec.backends.messages.unpickling import load_pickled

__all__ = ["load_from_parent"]


def load_from_parent(data: bytes) -> Any:
    """Return what the parent has pickled by cloudpickle."""
    value = load_pickled(data)
    _register_main_classes()
    return value


def _register_main_classes() -> None:
    """Register the classes of the user's script in `__main__`, where pickle finds them by name.

    cloudpickle sends these classes by value. States and infos with instances of them are pickled by name, so
    that their bytes are the same in every process.
    """
    tracked = getattr(cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_CLASS", {})
    main_module = sys.modules["__main__"]
    for cls in list(tracked):
        if cls.__module__ == "__main__" and "." not in cls.__qualname__:
            known = vars(main_module).setdefault(cls.__qualname__, cls)
            if isinstance(known, type) and issubclass(cls, known):  # class State(namedtuple("State", ...))
                setattr(main_module, cls.__qualname__, cls)
