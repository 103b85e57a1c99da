"""Defines the decorator of compiled functions that work on arrays of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

__all__ = ["jit"]

F = TypeVar("F", bound=Callable[..., Any])


def jit(*, cache: bool = False, inline: bool = False, allocates: bool = False) -> Callable[[F], F]:
    """Return a decorator that compiles a function, which releases the GIL and divides as NumPy does.

    By default numba counts the references of every array that a function takes, with atomic operations. A
    search tree has 28 arrays, and one simulation calls many functions: counting would take most of its time.

    Args:
        cache: Whether to keep the compiled function on disk.
        inline: Whether to compile it into its callers.
        allocates: Whether the function, or one that it calls, makes arrays. Only then are references counted.
    """
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": allocates}
    if cache:
        options["cache"] = True
    if inline:
        options["forceinline"] = True

    def decorate(function: F) -> F:
        made: F = njit(**options)(function)
        return made

    return decorate
