"""Finds the names that occur in the code of an environment, to tell which arrays it may read."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable
from typing import Any

from planvec.codecs.generic import is_simulator_module

__all__ = ["names_in_code"]

_FOREIGN = {"builtins", "cloudpickle", "numpy", "planvec", "scipy", *sys.stdlib_module_names}
"""Packages whose functions are not looked into."""


def names_in_code(values: Iterable[Any]) -> set[str]:
    """Return the names and strings in the functions of some objects, and in those that these may call.

    Functions that are reached through variables of a module are included. The result is the same in every
    process.

    Args:
        values: The objects: an environment and what it holds. For modules, all functions that they define.
    """
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
        elif isinstance(value, type):
            for base in value.__mro__:
                if _is_own(base.__module__) and not is_simulator_module(base.__module__):
                    stack += map(_function_of, vars(base).values())
        elif isinstance(value, types.ModuleType) and _is_own(value.__name__):
            stack += [item for item in vars(value).values() if isinstance(item, types.FunctionType)]
    return names


def _is_own(module: str | None) -> bool:
    return (module or "builtins").partition(".")[0] not in _FOREIGN


def _function_of(member: Any) -> Any:
    """Return the function behind a method, a class method or a property."""
    return getattr(member, "__func__", getattr(member, "fget", member))


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
