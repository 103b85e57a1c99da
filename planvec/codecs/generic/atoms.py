"""Values without identity (numbers, text, definitions): bytes that stand for them, their order in sets.

The bytes and the order are the same in every process, however a set was filled.
"""

from __future__ import annotations

import enum
import struct
import types
from collections.abc import Collection
from typing import Any

import numpy as np

from planvec.codecs.compare import dtype_text
from planvec.codecs.generic.attributes import is_compiled_function

ATOMS = (str, bytes, int, float, bool, complex, type(None))  # numbers and text of Python
_PLAIN = (*ATOMS, np.generic, enum.Enum, type)


def token_of_atom(value: Any) -> bytes | None:
    """Return the bytes of a value without identity; None for any other."""
    if isinstance(value, enum.Enum):  # one object for each name
        return f"{type(value).__module__}.{type(value).__qualname__}.{value._name_};".encode()
    if isinstance(value, float):
        return b"float" + struct.pack("<d", value)
    if value is None or isinstance(value, (bool, int, complex, range)) or value is Ellipsis:
        return f"{type(value).__name__} {value!r};".encode()
    if isinstance(value, str):
        return f"{type(value).__name__} {len(value)} {value};".encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return f"bytes {len(value)};".encode() + value
    if isinstance(value, np.generic) and not value.dtype.hasobject:
        return f"scalar {dtype_text(value.dtype)};".encode() + value.tobytes()
    if isinstance(value, np.dtype):
        return f"dtype {dtype_text(value)};".encode()
    if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
        return f"{value.__module__}.{value.__qualname__};".encode()
    if is_compiled_function(value):
        return f"compiled {getattr(value, '__name__', '')};".encode()
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__};".encode()
    return None


def sort_key(element: Any) -> tuple[str, bytes]:
    """Return a key that sorts the elements of a plain set."""
    kind = type(element)
    if isinstance(element, (tuple, frozenset)):
        keys = [sort_key(part) for part in element]
        token = repr(keys if isinstance(element, tuple) else sorted(keys)).encode()
    else:
        token = token_of_atom(element) or b""
    return f"{kind.__module__}.{kind.__qualname__}", token


def is_plain(elements: Collection[Any]) -> bool:
    """Return whether a collection holds only values without identity, and tuples and frozen sets of them."""
    return all(
        isinstance(element, _PLAIN) or (isinstance(element, (tuple, frozenset)) and is_plain(element))
        for element in elements
    )
