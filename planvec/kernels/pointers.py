"""Passes tuples of many arrays to compiled functions by address.

numba passes a named tuple by value: each of its arrays takes seven words, which are copied in every call. A
`Pointer` is one word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import numba
import numpy as np
from numba import types
from numba.core.datamodel import models
from numba.core.datamodel.registry import register_default
from numba.core.pythonapi import NativeValue
from numba.extending import typeof_impl, unbox

from planvec.kernels.bound_loop import compile_loop
from planvec.kernels.decorator import jit
from planvec.kernels.memory import intrinsic_function

T = TypeVar("T", bound=tuple[Any, ...])


class PointerType(types.Type):
    """The type of a `Pointer` in compiled code."""

    def __init__(self, target: types.Type) -> None:
        super().__init__(name=f"planvec.Pointer({target})")
        self.target = target


register_default(PointerType)(models.OpaqueModel)


@intrinsic_function
def _size_of(_: Any, value: Any) -> Any:
    """Return the memory that a value takes, in bytes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data_type = context.data_model_manager[value].get_data_type()
        return context.get_constant(types.intp, context.get_abi_sizeof(data_type))

    return types.intp(value), generate


@intrinsic_function
def _write(_: Any, value: Any, address: Any) -> Any:
    """Write a value to an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        model = context.data_model_manager[value]
        target = builder.inttoptr(arguments[1], model.get_data_type().as_pointer())
        builder.store(model.as_data(builder, arguments[0]), target)
        return context.get_dummy_value()

    return types.void(value, address), generate


@intrinsic_function
def value_at(_: Any, pointer: Any) -> Any:
    """Return what a `Pointer` points to, in compiled code, which reads only what it uses of it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        model = context.data_model_manager[pointer.target]
        source = builder.bitcast(arguments[0], model.get_data_type().as_pointer())
        return model.load_from_data_pointer(builder, source)

    return pointer.target(pointer), generate


@jit(cache=True)
def _size(value: Any) -> Any:
    return _size_of(value)


@jit(cache=True)
def _put(value: Any, address: int) -> None:
    _write(value, address)


class _Packer(NamedTuple):
    """How values of a class are written to memory."""

    pointer_type: PointerType
    size: int  # the memory that a value takes, in bytes
    put: Callable[[Any, int], Any]  # `put(value, address)`


_packers: dict[type, _Packer] = {}


def _packer_of(value: Any) -> _Packer:
    """Return the packer of a value, which is made for the first value of its class."""
    if type(value) not in _packers:
        target = numba.typeof(value)
        put = compile_loop(_put, target, types.intp)
        _packers[type(value)] = _Packer(PointerType(target), _size(value), put)
    return _packers[type(value)]


class Pointer(Generic[T]):
    """Points to a named tuple of arrays and numbers in the memory of compiled code. It keeps them alive."""

    def __init__(self, value: T) -> None:
        packer = _packer_of(value)
        self.value = value  # The tuple. It cannot be replaced; its arrays can be written.
        self._memory = np.empty(packer.size // 8 + 1, np.int64)
        self._address = self._memory.__array_interface__["data"][0]
        packer.put(value, self._address)


@typeof_impl.register(Pointer)
def _typeof(pointer: Pointer[Any], _: Any) -> PointerType:
    return _packer_of(pointer.value).pointer_type


@unbox(PointerType)  # type: ignore[untyped-decorator]
def _unbox(_: Any, value: Any, c: Any) -> NativeValue:
    """Read the address."""
    address = c.pyapi.object_getattr_string(value, "_address")
    pointer = c.pyapi.long_as_voidptr(address)
    c.pyapi.decref(address)
    return NativeValue(pointer)
