"""Defines `KernelType`, for which loops are compiled, and generates functions for it.

numba compiles a loop once for every combination of argument types. The first argument of the loops is a
`KernelType`, which stands for a kernel and a layout: so the loops are written once, compiled for each kernel,
and cached on disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.datamodel.registry import register_default
from numba.core.pythonapi import NativeValue
from numba.extending import overload, unbox

from planvec.kernels.base import Kernel
from planvec.kernels.layout import Layout
from planvec.kernels.memory import load, store, view

# Name of a `KernelType` -> its kernel. A type that comes from numba's cache holds no functions.
_kernels: dict[str, Kernel] = {}


Flags = tuple[bool | None, ...]  # for each constant of a kernel its value if it is a bool, else None


class KernelType(types.Type):
    """Stands for a kernel and a layout in the signatures of loops. Its values are empty."""

    def __init__(self, kernel: Kernel, digest: str, layout: Layout, flags: Flags) -> None:
        identity = hashlib.sha256(repr((digest, layout, flags)).encode()).hexdigest()[:32]
        super().__init__(name=f"planvec.Kernel({identity})")
        self.layout = layout
        self.flags = flags
        _kernels[self.name] = kernel

    @property
    def kernel(self) -> Kernel:
        """The kernel."""
        return _kernels[self.name]


class CodeType(types.Type):
    """Stands for the code of a loop in its signature, so that numba's cache returns no older version."""

    def __init__(self, digest: str) -> None:
        super().__init__(name=f"planvec.Code({digest})")


register_default(KernelType)(models.OpaqueModel)
register_default(CodeType)(models.OpaqueModel)


@unbox(CodeType)  # type: ignore[untyped-decorator]
@unbox(KernelType)  # type: ignore[untyped-decorator]
def _unbox(kernel: Any, value: Any, c: Any) -> NativeValue:
    """Ignore the Python value."""
    return NativeValue(cgutils.get_null_value(ir.IntType(8).as_pointer()))


def generated(name: str, arguments: str, lines: list[str], **names: Any) -> Any:
    """Return a function with a body of generated lines."""
    body = "\n".join(f"    {line}" for line in lines)
    scope = {"load": load, "store": store, "view": view, **names}
    exec(f"def {name}({arguments}):\n{body}", scope)
    return scope[name]


def accessor(arguments: str) -> Callable[[Callable[[Any], Any]], Any]:
    """Make a function that compiled code calls, from one that generates it for a type."""

    def decorate(generate: Callable[[Any], Any]) -> Any:
        name = generate.__name__
        stub = generated(name, arguments, ["raise NotImplementedError('for compiled code')"])
        stub.__module__, stub.__doc__ = generate.__module__, generate.__doc__
        select = generated(name, arguments, ["return generate(kernel)"], generate=generate)
        overload(stub, jit_options={"forceinline": True, "error_model": "numpy"})(select)
        return stub

    return decorate
