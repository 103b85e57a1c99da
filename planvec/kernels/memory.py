"""Compiled access to the bytes of records: loads and stores at any address, and products of 128 bits.

The fields of a record need not be aligned, and NumPy's views of them have strides that are not known when a
kernel is compiled. These functions take the bytes of all records as one array `[num_bytes]` uint8, and an
offset, which is mostly a constant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.numpy_support import as_dtype


def intrinsic_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function for compiled code, which is called without the first argument."""
    made: Callable[..., Any] = intrinsic(function)
    return made


def _pointer(
    context: Any, builder: Any, array_type: object, array: object, offset: object, pointee: Any
) -> Any:
    """Return a pointer to the bytes from an offset on."""
    data = context.make_array(array_type)(context, builder, array).data
    first = builder.bitcast(data, ir.IntType(8).as_pointer())
    return builder.bitcast(builder.gep(first, [offset]), pointee.as_pointer())


@intrinsic_function
def load(typing_context: object, data: object, offset: object, like: Any) -> Any:
    """Return the number at an offset."""
    # `data`: `[num_bytes]` uint8. `offset`: The offset in bytes.

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        model = context.data_model_manager[signature.return_type]
        pointee = model.get_data_type()
        pointer = _pointer(context, builder, signature.args[0], arguments[0], arguments[1], pointee)
        return model.from_data(builder, builder.load(pointer, align=1))

    return like.dtype(data, types.intp, like), generate


@intrinsic_function
def store(typing_context: object, data: Any, offset: object, like: Any, value: Any) -> Any:
    """Write a number at an offset, converted as NumPy converts it. Arguments as in `load`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target = like.dtype
        model = context.data_model_manager[target]
        converted = context.cast(builder, arguments[3], signature.args[3], target)
        pointee = model.get_data_type()
        pointer = _pointer(context, builder, signature.args[0], arguments[0], arguments[1], pointee)
        builder.store(model.as_data(builder, converted), pointer, align=1)
        return context.get_dummy_value()

    return types.void(data, types.intp, like, value), generate


@intrinsic_function
def copy_bytes(
    typing_context: object, source: Any, source_at: object, target: Any, target_at: object, num_bytes: object
) -> Any:
    """Copy bytes from an offset of one array `[num_bytes]` uint8 to an offset of another one."""

    def generate(context: Any, builder: object, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8)
        first = _pointer(context, builder, signature.args[0], arguments[0], arguments[1], byte)
        second = _pointer(context, builder, signature.args[2], arguments[2], arguments[3], byte)
        cgutils.raw_memcpy(builder, second, first, arguments[4], 1)
        return context.get_dummy_value()

    return types.void(source, types.intp, target, types.intp, types.intp), generate


@intrinsic_function
def view(typing_context: object, data: Any, offset: object, size: object, like: Any) -> Any:
    """Return a field of several numbers as an array `[size]`, not a copy. Arguments as in `load`."""
    array_type = types.Array(like.dtype, 1, "C", aligned=False)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        model = context.data_model_manager[like.dtype]
        source = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = _pointer(
            context, builder, signature.args[0], arguments[0], arguments[1], model.get_data_type()
        )
        array = context.make_array(signature.return_type)(context, builder)
        itemsize = context.get_constant(types.intp, as_dtype(like.dtype).itemsize)
        context.populate_array(
            array,
            data=pointer,
            shape=cgutils.pack_array(builder, [arguments[2]]),
            strides=cgutils.pack_array(builder, [itemsize]),
            itemsize=itemsize,
            meminfo=source.meminfo,
            parent=source.parent,
        )
        context.nrt.incref(builder, signature.return_type, array._getvalue())
        return array._getvalue()

    return array_type(data, types.intp, types.intp, like), generate


@intrinsic_function
def multiply_high(typing_context: object, first: object, second: object) -> Any:
    """Return the upper 64 bits of the product of two unsigned integers of 64 bits."""

    def generate(context: object, builder: Any, signature: object, arguments: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(arguments[0], wide), builder.zext(arguments[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


if not np.little_endian:
    raise ImportError("planvec's kernels read little-endian records; this machine is big-endian")


# -- Defines the decorator of compiled functions that work on arrays of others -------------------------------

F = TypeVar("F", bound=Callable[..., Any])


def jit(
    signature: tuple[types.Type, ...] | None = None,
    *,
    cache: bool = False,
    inline: bool = False,
    allocates: bool = False,
) -> Callable[[F], F]:
    """Return a decorator that compiles a function, which releases the GIL and divides as NumPy does."""
    # `allocates`: the function, or one that it calls, makes arrays; only then are references counted.
    # `signature`: compiled for it at once; `inline`: into its callers.
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
            _limit_cache(made)
        if signature is not None:
            dispatcher: Any = made
            dispatcher.compile(signature)
            dispatcher.disable_compile()
        return made

    return decorate


def _limit_cache(function: Any) -> None:
    """Let files on disk that cannot be read be written again, and keep private kernels off the disk."""
    # The files name the classes of arguments by their modules, and numba raises if one has moved since, as in
    # another version of planvec that was installed over the one that wrote them.
    cache = function._cache
    load, save = cache.load_overload, cache.save_overload

    def load_or_forget(signature: object, context: object) -> Any:
        try:
            return load(signature, context)
        except (AttributeError, ImportError):
            cache.flush()
            return None

    def save_unless_private(signature: Any, data: object) -> None:
        # No other process would find a kernel of a user that is known by a token; see `KernelType`.
        if all(getattr(kind, "is_cached", True) for kind in signature):
            save(signature, data)

    cache.load_overload, cache.save_overload = load_or_forget, save_unless_private
