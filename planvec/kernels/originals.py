"""Tells whether an environment still steps with the code for which its kernel was written."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping
from types import FunctionType
from typing import Any

import gymnasium

from planvec.kernels.uses import Uses

# Decorators of the standard library (functools.singledispatch) return functions of their own.
_ORIGINS = (os.path.dirname(gymnasium.__file__) + os.sep, functools.__file__)


class Originals:
    """Remembers the methods of an environment of Gymnasium, and the functions that its steps use."""

    def __init__(self, env: Any) -> None:
        env_class = type(env)
        module = vars(sys.modules[env_class.__module__])
        self._env = env
        self._methods = _functions(vars(env_class))
        for name, function in [*_functions(module).items(), *self._methods.items()]:
            check_origin(f"{name} of {env_class.__name__}", function)
        self._uses = Uses(*_called_by_step(env_class).values())
        if not self.are_in_place():
            raise ValueError("a method was replaced")

    def are_in_place(self) -> bool:
        """Return whether nothing was replaced since then, in the object, its class or its module."""
        env = self._env
        # Not by vars(env): CPython reads the attributes of an object more slowly once its dict was asked for.
        for name, function in self._methods.items():
            if getattr(getattr(env, name, None), "__func__", None) is not function:
                return False
        return not self._uses.have_changed()


def check_origin(name: str, function: Any) -> None:
    """Check that a function is Gymnasium's."""
    code = getattr(function, "__code__", None)
    if code is None or not code.co_filename.startswith(_ORIGINS):
        raise ValueError(f"{name} was replaced")


def uses_of_steps(env_class: type) -> Uses:
    """Return what the steps of an environment of Gymnasium use: functions, and the constants of its class."""
    called, space = _called_by_step(env_class), vars(env_class)
    uses = Uses(*called.values())
    constants = [name for name, value in space.items() if not name.startswith("__") and not callable(value)]
    uses.add_names(space, {*called, *constants} - {"metadata"})
    return uses


def _called_by_step(env_class: type) -> dict[str, FunctionType]:
    """Return the method `step` of a class, and the methods that it calls, directly or not."""
    methods, called, todo = _functions(vars(env_class)), dict[str, FunctionType](), ["step"]
    while todo:
        name = todo.pop()
        if name in methods and name not in called:
            called[name] = methods[name]
            todo += methods[name].__code__.co_names
    return called


def _functions(namespace: Mapping[str, Any]) -> dict[str, FunctionType]:
    """Return the Python functions of a namespace."""
    return {name: value for name, value in namespace.items() if isinstance(value, FunctionType)}
