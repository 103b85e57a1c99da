"""Finds the functions and callbacks of the MuJoCo library that this process has loaded."""

from __future__ import annotations

import ctypes
import functools
from types import BuiltinFunctionType
from typing import Any, NamedTuple

import mujoco

_CALLBACKS = ("passive", "control", "contactfilter", "sensor", "act_dyn", "act_gain", "act_bias")
_WRAPPED = ("mj_step", "mj_rnePostConstraint")  # functions through which Gymnasium simulates


class Functions(NamedTuple):
    """Holds the addresses of functions."""

    step: int
    set_state: int
    get_state: int
    compute_forces: int


@functools.cache
def _library() -> ctypes.CDLL:
    """Return the library: its functions are found through the module that is linked with it."""
    return ctypes.CDLL(mujoco._functions.__file__)


@functools.cache
def functions() -> Functions:
    """Return the addresses."""
    names = ("mj_step", "mj_setState", "mj_getState", "mj_rnePostConstraint")
    try:
        pointers = [ctypes.cast(getattr(_library(), name), ctypes.c_void_p).value for name in names]
    except (AttributeError, OSError) as error:
        raise ValueError(f"the functions of MuJoCo cannot be found: {error}") from error
    return Functions(*(int(pointer or 0) for pointer in pointers))


@functools.cache
def _callbacks() -> list[Any]:
    return [ctypes.c_void_p.in_dll(_library(), f"mjcb_{name}") for name in _CALLBACKS]


def has_callbacks() -> bool:
    """Return whether anybody takes part in simulations with a callback, which may be a Python function."""
    # The clock of the Python module is no Python function.
    return any(callback.value for callback in _callbacks()) or mujoco.get_mjcb_time() is not None


def is_original() -> bool:
    """Return whether Gymnasium calls MuJoCo's own functions, and no replacement in Python."""
    return all(type(getattr(mujoco, name)) is BuiltinFunctionType for name in _WRAPPED)


def has_valid_options(model: Any) -> bool:
    """Return whether MuJoCo can simulate with the options of a model: it would end the process, not raise."""
    # Gymnasium simulates through the Python module, which turns MuJoCo's errors into exceptions.
    options = model.opt
    return all(getattr(options, name) in values for name, values in _valid_options().items())


@functools.cache
def _valid_options() -> dict[str, frozenset[int]]:
    kinds = {"integrator": "Integrator", "solver": "Solver", "cone": "Cone", "jacobian": "Jacobian"}
    return {
        name: frozenset(int(value) for value in getattr(mujoco, f"mjt{kind}").__members__.values())
        for name, kind in kinds.items()
    }
