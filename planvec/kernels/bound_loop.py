"""Compiles loops of other packages for a kernel, such as the loop of a search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types

from planvec.kernels.kernel_type import KernelType


def compile_loop(loop: Any, *arguments: types.Type) -> Callable[..., int]:
    """Compile a loop for arguments of these types, or load it from the cache on disk."""
    # The result is called directly: numba need not find out the types of its arguments.
    loop.compile(arguments)
    entry: Callable[..., int] = loop.overloads[arguments].entry_point
    return entry


class BoundLoop:
    """Runs a loop `loop(kernel, constants, code, ...)` with the present constants of the environment."""

    def __init__(
        self,
        entry: Callable[..., int],
        kernel_type: KernelType,
        constants: Callable[[], tuple[Any, ...] | None],
    ) -> None:
        self._entry = entry
        self._kernel_type = kernel_type
        self._constants = constants

    def __call__(self, *arguments: Any) -> int | None:
        """Run the loop. Returns its result; None if the environment has to step itself."""
        constants = self._constants()
        return None if constants is None else self._entry(self._kernel_type, constants, None, *arguments)
