"""Tells whether an environment was changed since its kernel was compared with it."""

from __future__ import annotations

import copy
from types import FunctionType
from typing import Any

import gymnasium
import numpy as np

from planvec.codecs import same
from planvec.kernels.own.declared import OwnKernel

__all__ = ["Watch"]

_MISSING = object()
_OWN = {"_np_random", "_np_random_seed", "spec", "metadata", "render_mode"}
"""Attributes of Gymnasium that may change."""
_MAX_BYTES = 1 << 20
"""Largest array whose content is compared before each batch."""


class Watch:
    """Remembers the methods, the constants and the other attributes of an environment.

    Args:
        own: The kernel.
        env: The unwrapped environment.

    Attributes:
        constants: What the functions of the kernel take.

    Raises:
        ValueError: A constant is no number, flag or array.
    """

    def __init__(self, own: OwnKernel, env: Any) -> None:
        self._own, self._env = own, env
        self._methods = {name: _function_of(env, name) for name in _method_names(type(env))}
        self.constants: tuple[Any, ...] = copy.deepcopy(own.read_constants(env))
        for value in self.constants:
            if isinstance(value, np.ndarray):
                value.flags.writeable = False  # a function that changed it would have a memory
        left_out = {*own.state, *own.ignored, *_OWN}
        names = [*vars(env), *_class_attributes(type(env))]
        self._attributes = {name: _kept(getattr(env, name)) for name in names if name not in left_out}

    def settle(self) -> None:
        """Forget the attributes that have changed since: steps change them. Called after the comparison."""
        env = self._env
        self._attributes = {
            name: value
            for name, value in self._attributes.items()
            if _is_same(value, getattr(env, name, _MISSING))
        }

    def has_changed(self) -> bool:
        """Return whether something differs from what it was.

        Objects other than numbers, strings and arrays are the same as long as an attribute holds them: what
        they hold is not compared.
        """
        env = self._env
        if any(_function_of(env, name) is not function for name, function in self._methods.items()):
            return True
        for name, expected in self._attributes.items():
            value = getattr(env, name, _MISSING)
            if value is expected:
                continue
            if not _is_same(expected, value):
                return True
            self._attributes[name] = _kept(value)
        try:
            constants = self._own.read_constants(env)
        except Exception:  # an attribute was deleted, or holds something else
            return True
        return len(constants) != len(self.constants) or not all(map(_is_same, self.constants, constants))


def _is_same(expected: Any, value: Any) -> bool:
    """Return whether a value is what it was, of the same type."""
    return value is expected or (type(value) is type(expected) and same(expected, value))


def _kept(value: Any) -> Any:
    """Return what an attribute is compared with."""
    is_small = isinstance(value, np.ndarray) and not value.dtype.hasobject and value.nbytes <= _MAX_BYTES
    return value.copy() if is_small else value


def _function_of(env: Any, name: str) -> Any:
    """Return the function behind a method of an environment."""
    method = getattr(env, name, None)
    return getattr(method, "__func__", method)


def _method_names(env_class: type) -> list[str]:
    """Return the names of the methods that a class and its bases below `gymnasium.Env` define."""
    names: dict[str, None] = {}
    for base in env_class.__mro__:
        if base is not gymnasium.Env and issubclass(base, gymnasium.Env):
            names |= {name: None for name, value in vars(base).items() if isinstance(value, FunctionType)}
    return list(names)


def _class_attributes(env_class: type) -> list[str]:
    """Return the names of the numbers, strings and arrays that a class and its bases hold."""
    kinds = (bool, int, float, str, np.generic, np.ndarray)
    names = [name for name in dir(env_class) if not name.startswith("__")]
    return [name for name in names if isinstance(getattr(env_class, name, None), kinds)]
