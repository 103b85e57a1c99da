"""Keeps the classes of the user's script the same in all processes, which cloudpickle sends by value."""

from __future__ import annotations

import sys
from typing import Any

import cloudpickle

from planvec.backends.messages.unpickling import load_pickled


def load_from_parent(data: bytes) -> Any:
    """Return what the parent has pickled by cloudpickle."""
    value = load_pickled(data)
    _register_main_classes()
    return value


def track_main_classes() -> None:
    """Give the classes of the script their ids, by which this process knows what a forked child returns."""
    for value in list(vars(sys.modules["__main__"]).values()):
        if isinstance(value, type) and value.__module__ == "__main__":
            cloudpickle.cloudpickle._get_or_create_tracker_id(value)


def _register_main_classes() -> None:
    """Register the classes of the user's script in `__main__`, where pickle finds them by name."""
    # cloudpickle sends these classes by value. States and infos with instances of them are pickled by name,
    # so that their bytes are the same in every process.
    tracked = getattr(cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_CLASS", {})
    main_module = sys.modules["__main__"]
    for cls in list(tracked):
        if cls.__module__ == "__main__" and "." not in cls.__qualname__:
            known = vars(main_module).setdefault(cls.__qualname__, cls)
            if isinstance(known, type) and issubclass(cls, known):  # class State(namedtuple("State", ...))
                setattr(main_module, cls.__qualname__, cls)
