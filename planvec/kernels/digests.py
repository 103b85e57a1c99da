"""Digests of the code of functions, so that numba's cache on disk never returns code of an older version.

numba caches a loop under the types of its arguments, and looks at the file of the loop only. The functions of
a kernel, and those that give access to its state, are in other files.
"""

from __future__ import annotations

import hashlib
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np

__all__ = ["code_digest"]


def code_digest(*functions: Any) -> str:
    """Return a digest of functions, of all functions that they call, and of the constants that they use.

    Args:
        functions: Python functions, or functions compiled by numba.
    """
    digest = hashlib.sha256(f"{numba.__version__} {np.__version__}".encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    seen = set[int]()
    for function in functions:
        for part in _parts(function, seen):
            digest.update(part)
    return digest.hexdigest()[:32]


def _parts(value: Any, seen: set[int]) -> Iterator[bytes]:
    """Yield bytes that differ if a value differs: a function, a constant, a module."""
    value = getattr(value, "py_func", value)
    if isinstance(value, types.FunctionType):
        if id(value) not in seen:
            seen.add(id(value))
            yield from _code_parts(value.__code__)
            for name in sorted(_global_names(value.__code__)):
                if name in value.__globals__:
                    yield name.encode()
                    yield from _parts(value.__globals__[name], seen)
            for cell in value.__closure__ or ():
                yield from _parts(cell.cell_contents, seen)
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype}{value.shape}".encode() + value.tobytes()
    elif isinstance(value, (bool, int, float, str, bytes, tuple, np.generic)):
        yield repr(value).encode()
    else:
        yield f"{type(value).__name__} {getattr(value, '__name__', '')}".encode()


def _code_parts(code: types.CodeType) -> Iterator[bytes]:
    """Yield the bytecode and the constants of a function and of the functions inside it."""
    yield code.co_code
    yield repr(code.co_names).encode()
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code_parts(constant)
        else:
            yield repr(constant).encode()


def _global_names(code: types.CodeType) -> set[str]:
    """Return the names that a function, or a function inside it, may read from its module."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _global_names(constant)
    return names
