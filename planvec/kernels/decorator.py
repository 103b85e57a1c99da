"""Defines the decorator of compiled functions that work on arrays of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit, types

F = TypeVar("F", bound=Callable[..., Any])


def jit(
    signature: tuple[types.Type, ...] | None = None,
    *,
    cache: bool = False,
    inline: bool = False,
    allocates: bool = False,
) -> Callable[[F], F]:
    """Return a decorator that compiles a function, which releases the GIL and divides as NumPy does."""
    # By default numba counts the references of every array that a function takes, with atomic operations. A
    # search tree has 28 arrays, and one simulation calls many functions: counting would take most of its
    # time.
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": allocates}
    if cache:
        options["cache"] = True
    if inline:
        options["forceinline"] = True

    def decorate(function: F) -> F:
        made: F = njit(**options)(function)
        if cache:
            _ignore_unreadable(made)
        if signature is not None:
            dispatcher: Any = made
            dispatcher.compile(signature)
            dispatcher.disable_compile()
        return made

    return decorate


def _ignore_unreadable(function: Any) -> None:
    """Let a function be compiled again where its file on disk cannot be read."""
    # The files name the classes of arguments by their modules, and numba raises if one has moved since, as in
    # another version of planvec that was installed over the one that wrote them.
    cache = function._cache
    load = cache.load_overload

    def load_or_forget(signature: Any, context: Any) -> Any:
        try:
            return load(signature, context)
        except (AttributeError, ImportError):
            cache.flush()
            return None

    cache.load_overload = load_or_forget
