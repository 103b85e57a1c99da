"""Defines `KernelType`, for which loops are compiled, and generates functions for it.

numba compiles a loop once for every combination of argument types. The first argument of the loops is a
`KernelType`, which stands for a kernel and a layout: so the loops are written once, compiled for each kernel,
and cached on disk.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Self, TypeVar

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.datamodel.registry import register_default
from numba.core.pythonapi import NativeValue
from numba.core.registry import cpu_target
from numba.extending import overload, typeof_impl, unbox
from numpy.typing import NDArray

from planvec.kernels.base import Layout
from planvec.kernels.memory import intrinsic_function, jit, load, store, view

# Name of a `KernelType` -> its kernel. A type that comes from numba's cache holds no functions.
_kernels: dict[str, Any] = {}

G = TypeVar("G", bound=Callable[..., Any])
K = TypeVar("K")  # the kernel: a `Kernel`, or a `Task` of MuJoCo
Flags = tuple[bool | None, ...]  # for each constant of a kernel its value if it is a bool, else None


class KernelType(types.Type, Generic[K]):
    """Stands for a kernel and a layout in the signatures of loops. Its values are empty."""

    max_repeats = 10**6  # largest number of steps of a row in one loop, which Ctrl-C cannot interrupt

    def __init__(
        self, kernel: K, digest: str, layout: Layout, flags: Flags = (), token: str | None = None
    ) -> None:
        # `token`: of a kernel that no other process may get from numba's cache; None for others
        identity = hashlib.sha256(repr((digest, layout, flags, token)).encode()).hexdigest()[:32]
        super().__init__(name=f"planvec.{type(self).__name__}({identity})")
        self.layout = layout
        self.flags = flags
        self.is_cached = token is None
        _kernels[self.name] = kernel

    @property
    def kernel(self) -> K:
        """The kernel."""
        kernel: K = _kernels[self.name]
        return kernel


class CodeType(types.Type):
    """Stands for the code of a loop in its signature, so that numba's cache returns no older version."""

    def __init__(self, digest: str) -> None:
        super().__init__(name=f"planvec.Code({digest})")


register_default(KernelType)(models.OpaqueModel)
register_default(CodeType)(models.OpaqueModel)


@unbox(CodeType)  # type: ignore[untyped-decorator]
@unbox(KernelType)  # type: ignore[untyped-decorator]
def _unbox(kernel: object, value: object, c: object) -> NativeValue:
    """Ignore the Python value."""
    return NativeValue(cgutils.get_null_value(ir.IntType(8).as_pointer()))


# the scalar types of NumPy that fields may have, by their names, which generated lines use
_SCALARS = {np.dtype(code).name: np.dtype(code).type for code in f"?{np.typecodes['AllInteger']}efd"}


def generated(name: str, arguments: str, lines: list[str], names: dict[str, Any]) -> Any:
    """Return a function with a body of generated lines."""
    body = "\n".join(f"    {line}" for line in lines)
    scope = {"load": load, "store": store, "view": view, "value_at": value_at, **_SCALARS, **names}
    exec(f"def {name}({arguments}):\n{body}", scope)
    return scope[name]


def accessor(arguments: str) -> Callable[[Callable[[Any], Any]], Any]:
    """Make a function that compiled code calls, generated for each type of kernels."""
    # The decorated function returns its lines, and what names in them mean.

    def decorate(generate: Callable[[Any], Any]) -> Any:
        name, generate_for = generate.__name__, functools.singledispatch(generate)
        stub = generated(name, arguments, ["raise NotImplementedError('for compiled code')"], {})
        stub.__module__, stub.__doc__ = generate.__module__, generate.__doc__
        stub.register = generate_for.register

        def make(kernel: KernelType[Any]) -> Any:
            return generated(name, arguments, *generate_for(kernel))

        select = generated(name, arguments, ["return make(kernel)"], {"make": make})
        overload(stub, jit_options={"forceinline": True, "error_model": "numpy"})(select)
        return stub

    return decorate


def generator_of(function: Any, kind: type[KernelType[Any]]) -> Callable[[G], G]:
    """Make another generator of a function that `accessor` made, for another class of types."""
    decorate: Callable[[G], G] = function.register(kind)
    return decorate


# -- Compiles loops of other packages for a kernel, such as the loop of a search -----------------------------


def compile_loop(loop: Any, *arguments: types.Type) -> Callable[..., int]:
    """Compile a loop for arguments of these types, or load it from the cache on disk."""
    # The result is called directly: numba need not find out the types of its arguments.
    loop.compile(arguments)
    entry: Callable[..., int] = loop.overloads[arguments].entry_point
    return entry


# -- Passes tuples of many arrays to compiled functions by address.
#
# numba passes a named tuple by value: each of its arrays takes seven words, which are copied in every call. A
# `Pointer` is one word.

T = TypeVar("T", bound=tuple[Any, ...])


class PointerType(types.Type):
    """The type of a `Pointer` in compiled code."""

    def __init__(self, target: types.Type) -> None:
        super().__init__(name=f"planvec.Pointer({target})")
        self.target = target


register_default(PointerType)(models.OpaqueModel)


@intrinsic_function
def _write(_: object, value: Any, address: Any) -> Any:
    """Write a value to an address."""

    def generate(context: Any, builder: Any, signature: object, arguments: Any) -> Any:
        model = context.data_model_manager[value]
        target = builder.inttoptr(arguments[1], model.get_data_type().as_pointer())
        builder.store(model.as_data(builder, arguments[0]), target)
        return context.get_dummy_value()

    return types.void(value, address), generate


@intrinsic_function
def value_at(_: object, pointer: Any) -> Any:
    """Return what a `Pointer` points to, in compiled code, which reads only what it uses of it."""

    def generate(context: Any, builder: Any, signature: object, arguments: Any) -> Any:
        model = context.data_model_manager[pointer.target]
        source = builder.bitcast(arguments[0], model.get_data_type().as_pointer())
        value = model.load_from_data_pointer(builder, source)
        if context.enable_nrt:  # the caller counts the references of arrays; see `jit`
            context.nrt.incref(builder, pointer.target, value)
        return value

    return pointer.target(pointer), generate


@jit(cache=True)
def _put(value: object, address: int) -> None:
    _write(value, address)


class _Packer(NamedTuple):
    """How values of a class are written to memory."""

    pointer_type: PointerType
    size: int  # the memory that a value takes, in bytes
    put: Callable[[Any, int], Any]  # `put(value, address)`


_packers: dict[type, _Packer] = {}


def _packer_of(value: object) -> _Packer:
    """Return the packer of a value, which is made for the first value of its class."""
    if type(value) not in _packers:
        target = numba.typeof(value)
        put, context = compile_loop(_put, target, types.intp), cpu_target.target_context
        size = context.get_abi_sizeof(context.data_model_manager[target].get_data_type())
        _packers[type(value)] = _Packer(PointerType(target), size, put)
    return _packers[type(value)]


class Pointer(int, Generic[T]):
    """The address of a named tuple of arrays and numbers in the memory of compiled code, kept alive by it."""

    # All values of a class must have the same types for numba, which are looked at only once. It is an
    # integer, since numba takes longer to read an attribute: a call with two pointers 0.6 us, not 0.5.

    value: T  # The tuple. It cannot be replaced; its arrays can be written.
    _memory: NDArray[np.int64]

    def __new__(cls, value: T) -> Self:
        """Write a tuple to memory."""
        packer = _packer_of(value)
        memory = np.empty(packer.size // 8 + 1, np.int64)
        pointer = super().__new__(cls, memory.__array_interface__["data"][0])
        packer.put(value, pointer)
        pointer.value, pointer._memory = value, memory
        return pointer


@typeof_impl.register(Pointer)
def _typeof(pointer: Pointer[Any], _: object) -> PointerType:
    return _packer_of(pointer.value).pointer_type


@unbox(PointerType)  # type: ignore[untyped-decorator]
def _unbox_pointer(_: object, value: object, c: Any) -> NativeValue:
    """Read the address."""
    return NativeValue(c.pyapi.long_as_voidptr(value))
