"""Calls functions of MuJoCo's C library from compiled code, and accesses memory by its address.

Addresses are arguments, never constants: numba keeps compiled code on disk, and a library lies elsewhere in
every process.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from planvec.kernels.memory import intrinsic_function

_BYTE_POINTER = ir.IntType(8).as_pointer()


def _pointers(builder: Any, addresses: Any) -> list[Any]:
    return [builder.inttoptr(address, _BYTE_POINTER) for address in addresses]


@intrinsic_function
def call(typing_context: Any, function: Any, model: Any, data: Any) -> Any:
    """Call `void function(mjModel*, mjData*)`; the arguments are addresses."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [_BYTE_POINTER] * 2)
        pointer = builder.inttoptr(arguments[0], kind.as_pointer())
        builder.call(pointer, _pointers(builder, arguments[1:]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic_function
def call_with_state(
    typing_context: Any, function: Any, model: Any, data: Any, state: Any, signature_bits: Any
) -> Any:
    """Call `void function(mjModel*, mjData*, double* state, int signature)`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [*[_BYTE_POINTER] * 3, ir.IntType(32)])
        pointer = builder.inttoptr(arguments[0], kind.as_pointer())
        bits = builder.trunc(arguments[4], ir.IntType(32))
        builder.call(pointer, [*_pointers(builder, arguments[1:4]), bits])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), generate


@intrinsic_function
def copy_bytes(typing_context: Any, target: Any, source: Any, num_bytes: Any) -> Any:
    """Copy bytes from one address to another one."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, source = _pointers(builder, arguments[:2])
        cgutils.raw_memcpy(builder, target, source, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), generate


@intrinsic_function
def load_int(typing_context: Any, address: Any) -> Any:
    """Return the integer of 32 bits at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(32).as_pointer())
        return builder.load(pointer, align=4)

    return types.int32(types.int64), generate


@intrinsic_function
def store_int(typing_context: Any, address: Any, value: Any) -> Any:
    """Write an integer of 32 bits to an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(32).as_pointer())
        builder.store(arguments[1], pointer, align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.int32), generate


@intrinsic_function
def next_number(typing_context: Any, counter: Any) -> Any:
    """Return the present number of a counter and increase it by one, atomically: threads share it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        one = ir.Constant(ir.IntType(64), 1)
        return builder.atomic_rmw("add", array.data, one, "monotonic")

    return types.int64(counter), generate
