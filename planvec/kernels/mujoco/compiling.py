"""Compiles functions that only compiled code calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS: dict[str, Any] = {
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}


def inner(function: F) -> F:
    """Compile a function without an entrance for Python, which takes long to compile for many arrays."""
    compiled: F = njit(**_OPTIONS)(function)
    return compiled
