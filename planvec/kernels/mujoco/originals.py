"""Tells whether an environment of MuJoCo still steps with the code for which its task was written."""

from __future__ import annotations

import sys
from types import FunctionType
from typing import Any

import gymnasium

from planvec.kernels.originals import check_origin

_OWN_STEPS = "planvec.codecs."  # where the faster steps are defined that planvec installs


class Originals:
    """Remembers the functions and properties that an environment steps with."""

    def __init__(self, env: Any) -> None:
        self._env, self._class = env, type(env)
        self._step = _own_attribute(env, "step")
        if self._step is not None and not str(self._step.__module__).startswith(_OWN_STEPS):
            raise ValueError("the method step was replaced")
        classes = [base for base in type(env).__mro__ if base.__module__.startswith("gymnasium.envs.mujoco.")]
        owners: list[Any] = [*classes, *(sys.modules[base.__module__] for base in classes)]
        self._parts = [
            (vars(owner), name, value)
            for owner in owners
            for name, value in vars(owner).items()
            if isinstance(value, (FunctionType, property))
        ]
        for _, name, value in self._parts:
            for function in [value.fget] if isinstance(value, property) else [value]:
                check_origin(f"{name} of {self._class.__name__}", function)
        self._methods = {
            name: getattr(type(env), name) for _, name, value in self._parts if _is_method(env, name)
        }
        if not self.are_in_place():
            raise ValueError("a method was replaced")

    def are_in_place(self) -> bool:
        """Return whether nothing was replaced since then, in the object, its classes or their modules."""
        env = self._env
        return (
            type(env) is self._class
            and _own_attribute(env, "step") is self._step
            and all(space.get(name) is value for space, name, value in self._parts)
            and all(
                getattr(getattr(env, name, None), "__func__", None) is function
                for name, function in self._methods.items()
            )
        )


def _is_method(env: Any, name: str) -> bool:
    """Return whether a name is a method, other than `step`, of an environment."""
    return name != "step" and isinstance(getattr(type(env), name, None), FunctionType)


def _own_attribute(env: gymnasium.Env[Any, Any], name: str) -> Any:
    """Return an attribute that is set in an object instead of its class; None if it is a method."""
    value = getattr(env, name)
    return None if hasattr(value, "__self__") else value
