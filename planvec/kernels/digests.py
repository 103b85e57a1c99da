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

import numpy as np

from planvec.codecs import names_in_code

_KNOWN_MODULES = {"builtins", "cmath", "math", "numba", "numpy", "operator", "planvec"}


def code_digest(*functions: Any) -> str:
    """Return a digest of functions, of all functions that they call, and of the constants that they use."""
    import numba  # here, since it takes long to import

    folder = Path(__file__).parent
    digest = hashlib.sha256(f"{numba.__version__} {np.__version__}".encode())
    for path in sorted(folder.rglob("*.py")):
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
            yield from code_parts(value.__code__)
            for name in sorted(names_in_code(value.__code__)):
                if name in value.__globals__:
                    yield name.encode()
                    yield from _parts(value.__globals__[name], seen)
            for cell in value.__closure__ or ():
                yield from _parts(cell.cell_contents, seen)
            for default in (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()):
                yield from _parts(default, seen)
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype}{value.shape}".encode() + value.tobytes()
    elif type(value) is tuple:
        yield f"tuple of {len(value)}".encode()
        for item in value:
            yield from _parts(item, seen)
    elif isinstance(value, (bool, int, float, str, bytes, tuple, np.generic)):
        yield repr(value).encode()
    else:
        yield f"{type(value).__name__} {getattr(value, '__name__', '')}".encode()


def has_full_digest(*functions: Any) -> bool:
    """Return whether `code_digest` covers all that functions use."""
    # It does not know what other modules and objects hold, apart from the modules of Python, NumPy, numba and
    # planvec.
    seen = set[int]()
    return all(_is_covered(function, seen) for function in functions)


def _is_covered(value: Any, seen: set[int]) -> bool:
    """Return whether the digest of a value covers it; see `has_full_digest`."""
    value = getattr(value, "py_func", value)
    if type(value) is tuple:
        return all(_is_covered(item, seen) for item in value)
    if isinstance(value, types.FunctionType):
        if id(value) in seen or (value.__module__ or "").startswith("planvec."):
            return True
        seen.add(id(value))
        names = names_in_code(value.__code__) & value.__globals__.keys()
        used = [value.__globals__[name] for name in names]
        used += [cell.cell_contents for cell in value.__closure__ or ()]
        used += [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        return all(_is_covered(item, seen) for item in used)
    if isinstance(value, (types.ModuleType, type, types.BuiltinFunctionType, np.ufunc)):
        name = (
            value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", "numpy")
        )
        return (name or "").partition(".")[0] in _KNOWN_MODULES
    if isinstance(value, np.ndarray):
        return not value.dtype.hasobject
    return value is None or type(value) in (bool, int, float, str, bytes) or isinstance(value, np.generic)


def code_parts(code: types.CodeType) -> Iterator[bytes]:
    """Yield the bytecode and the constants of a function and of the functions inside it."""
    yield code.co_code
    yield repr(code.co_names).encode()
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from code_parts(constant)
        elif isinstance(constant, frozenset):  # its order differs from process to process
            yield repr(sorted(map(repr, constant))).encode()
        else:
            yield repr(constant).encode()
