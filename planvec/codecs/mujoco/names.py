"""Finds the names that occur in the code of an environment, to tell which arrays it may read."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable
from typing import Any

from planvec.codecs.generic import cell_contents

# packages whose functions are not looked into
_FOREIGN = {"builtins", "cloudpickle", "mujoco", "numpy", "planvec", "scipy", *sys.stdlib_module_names}
# attributes of methods, properties and partial functions that hold the functions
_INSIDE = ("__func__", "fget", "fset", "fdel", "func")
_MAX_ITEMS = 1000


def names_in_code(values: Iterable[Any]) -> set[str]:
    """Return the names and strings in the functions of some objects, and in those that these may call."""
    # Functions that are reached through variables of a module are included. The result is the same in every
    # process.
    names: set[str] = set()
    seen: set[int] = set()
    stack = [*values, *(type(value) for value in values)]
    while stack:
        value = stack.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, types.FunctionType):
            if _is_own(value.__module__):
                new = _names_of(value.__code__)
                names |= new
                stack += [value.__globals__[name] for name in new if name in value.__globals__]
                stack += _held_by(value)
        elif isinstance(value, type):
            for base in value.__mro__:
                if _is_own(base.__module__):
                    stack += vars(base).values()
        elif isinstance(value, types.ModuleType):
            if _is_own(value.__name__):
                functions = (types.FunctionType, type)
                own = [item for item in vars(value).values() if isinstance(item, functions)]
                stack += [item for item in own if item.__module__ == value.__name__]
        else:
            stack += _callables_in(value)
    return names


def _held_by(function: types.FunctionType) -> list[Any]:
    """Return what a function holds: in its closure, its default arguments and its attributes."""
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    return [*defaults, *cell_contents(function.__closure__ or ()), *vars(function).values()]


def _callables_in(value: Any) -> list[Any]:
    """Return what a method, a property, a partial function or a small container is made of."""
    if isinstance(value, (list, tuple)):
        return [*value[:_MAX_ITEMS]]
    if isinstance(value, dict):
        return [*value.values()][:_MAX_ITEMS]
    return [getattr(value, name) for name in _INSIDE if hasattr(type(value), name)]


def _is_own(module: str | None) -> bool:
    name = module or "builtins"
    return name.partition(".")[0] not in _FOREIGN and not f"{name}.".startswith("dm_control.mujoco.")


def _names_of(code: types.CodeType) -> set[str]:
    """Return the names and strings in a function and in the functions inside it."""
    names = {*code.co_names}
    for constant in code.co_consts:
        if isinstance(constant, str):
            names.add(constant)
        elif isinstance(constant, tuple):
            names |= {part for part in constant if isinstance(part, str)}
        elif isinstance(constant, types.CodeType):
            names |= _names_of(constant)
    return names
