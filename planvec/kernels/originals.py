"""Tells whether an environment still steps with the code for which its kernel was written."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping
from types import FunctionType
from typing import Any

import gymnasium

__all__ = ["check_origin", "has_original_methods", "methods_of"]

# Decorators of the standard library (functools.singledispatch) return functions of their own.
_ORIGINS = (os.path.dirname(gymnasium.__file__) + os.sep, functools.__file__)


def methods_of(env_class: type) -> dict[str, FunctionType]:
    """Return the methods of a class of Gymnasium.

    Raises:
        ValueError: One of them, or a function of its module, was replaced by code from elsewhere.
    """
    module = vars(sys.modules[env_class.__module__])
    for name, function in [*_functions(module).items(), *_functions(vars(env_class)).items()]:
        check_origin(f"{name} of {env_class.__name__}", function)
    return _functions(vars(env_class))


def check_origin(name: str, function: Any) -> None:
    """Check that a function is Gymnasium's.

    Args:
        name: Its name, for the message.
        function: The function.

    Raises:
        ValueError: It comes from elsewhere.
    """
    code = getattr(function, "__code__", None)
    if code is None or not code.co_filename.startswith(_ORIGINS):
        raise ValueError(f"{name} was replaced")


def has_original_methods(env: Any, methods: Mapping[str, FunctionType]) -> bool:
    """Return whether no method of an environment was replaced, in the object or in its class.

    Args:
        env: The unwrapped environment.
        methods: What `methods_of` returned when the kernel was loaded.
    """
    # Not by vars(env): CPython reads the attributes of an object more slowly once its dict was asked for.
    return all(
        getattr(getattr(env, name, None), "__func__", None) is function for name, function in methods.items()
    )


def _functions(namespace: Mapping[str, Any]) -> dict[str, FunctionType]:
    """Return the Python functions of a namespace."""
    return {name: value for name, value in namespace.items() if isinstance(value, FunctionType)}
