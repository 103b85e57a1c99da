"""Recognises the objects of simulators, which are referred to by name and never copied.

What they hold lies in the memory of a C library. The codec of the simulator's family saves it.
"""

from __future__ import annotations

import functools
from typing import Any

# modules that define the objects of simulators, their renderers and indices, with their submodules
_MODULES = (
    *("ale_py._ale_py", "mujoco", "dm_control.mujoco", "dm_control.mjcf", "dm_control._render"),
    *(
        "stable_retro._retro",
        "gymnasium.envs.mujoco.mujoco_rendering",
        "gymnasium_robotics.utils.mujoco_utils",
    ),
)
_PREFIXES = tuple(f"{name}." for name in _MODULES)


def is_simulator_object(value: Any) -> bool:
    """Return whether a value belongs to a simulator or a renderer."""
    kind: Any = type(value)
    return is_simulator_type(kind)


@functools.cache
def is_simulator_type(kind: Any) -> bool:
    """Return whether a class, or one of its bases, is defined by a simulator or a renderer."""
    return any(map(is_simulator_module, (getattr(base, "__module__", "") for base in kind.__mro__)))


def is_simulator_module(name: str) -> bool:
    """Return whether a module belongs to a simulator or a renderer."""
    return f"{name}.".startswith(_PREFIXES)
