"""Digests of the code of functions and classes.

numba caches a loop under the types of its arguments, and looks at the file of the loop only. The functions of
a kernel, and those that give access to its state, are in other files: their digest is part of a type.

An environment is what it was when it was opened. Whether its methods are those for which planvec's kernels
were written is checked then, and not again: the proof and the audit compare results.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import gymnasium
import numpy as np

from planvec.codecs import names_in_code

_KNOWN_MODULES = {"builtins", "cmath", "math", "numba", "numpy", "operator", "planvec"}


def code_digest(*functions: object) -> str:
    """Return a digest of functions, of all functions that they call, and of the constants that they use."""
    import numba  # here, since it takes long to import

    folder = Path(__file__).parent
    digest = hashlib.sha256(f"{numba.__version__} {np.__version__}".encode())
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.read_bytes())
    for part in _parts(functions, set()):
        digest.update(part or b"")
    return digest.hexdigest()[:32]


def has_full_digest(*functions: object) -> bool:
    """Return whether `code_digest` covers all that functions use."""
    # It does not know what other modules and objects hold, apart from the modules of Python, NumPy, numba and
    # planvec.
    return None not in _parts(functions, set())


def _parts(value: Any, seen: set[int]) -> Iterator[bytes | None]:
    """Yield bytes that differ if a value differs: a function, a constant, a module."""
    # Also None where another value may have the same bytes.
    value = getattr(value, "py_func", value)
    if isinstance(value, types.FunctionType):
        if id(value) in seen:
            return
        seen.add(id(value))
        yield from code_parts(value.__code__)
        names = sorted(names_in_code(value.__code__) & value.__globals__.keys())
        used = [item for name in names for item in (name, value.__globals__[name])]
        used += [cell.cell_contents for cell in value.__closure__ or ()]
        used += [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        is_known = (value.__module__ or "").startswith("planvec.")  # the digest covers the files of kernels
        for part in (part for item in used for part in _parts(item, seen)):
            if part is not None or not is_known:
                yield part
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype}{value.shape}".encode() + value.tobytes()
        if value.dtype.hasobject:
            yield None
    elif type(value) in (tuple, list):
        yield f"{type(value).__name__} of {len(value)}".encode()
        if type(value) is list:  # it may change
            yield None
        for item in value:
            yield from _parts(item, seen)
    elif value is None or isinstance(value, (bool, int, float, str, bytes, np.generic)):
        yield repr(value).encode()
        is_exact = value is None or type(value) in (bool, int, float, str, bytes)
        if not is_exact and not isinstance(value, np.generic):
            yield None
    else:
        yield f"{type(value).__name__} {getattr(value, '__name__', '')}".encode()
        is_module = isinstance(value, types.ModuleType)
        origin = value.__name__ if is_module else getattr(value, "__module__", "numpy") or ""
        is_code = isinstance(value, (types.ModuleType, type, types.BuiltinFunctionType, np.ufunc))
        if not is_code or origin.partition(".")[0] not in _KNOWN_MODULES:
            yield None


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


# -- Environments of Gymnasium -------------------------------------------------------------------------------

_PACKAGE = "gymnasium.envs."
# Decorators of the standard library (functools.singledispatch) return functions of their own.
_ORIGINS = (os.path.dirname(gymnasium.__file__) + os.sep, functools.__file__)
_OWN_STEPS = "planvec.codecs."  # where the faster steps are defined that planvec installs


def class_digest(env_class: type) -> str:
    """Return a digest of what steps of an environment of Gymnasium use: functions and class constants."""
    space = vars(env_class)
    methods = {name: value for name, value in space.items() if isinstance(value, FunctionType)}
    used, todo = dict[str, Any](), ["step"]
    while todo:
        name = todo.pop()
        if name in methods and name not in used:
            used[name] = methods[name]
            todo += methods[name].__code__.co_names
    used |= {name: it for name, it in space.items() if not (name.startswith("__") or callable(it))}
    parts = _parts(tuple(item for name in sorted(used) for item in (name, used[name])), set())
    return hashlib.sha256(b"\n".join(part or b"" for part in parts)).hexdigest()


def check_originals(env: Any) -> None:
    """Check that an environment of Gymnasium steps with the code for which its kernel was written."""
    # Not by vars(env): CPython reads the attributes of an object more slowly once its dict was asked for.
    if not hasattr(env.step, "__self__") and not str(env.step.__module__).startswith(_OWN_STEPS):
        raise ValueError("the method step was replaced")
    classes = [base for base in type(env).__mro__ if base.__module__.startswith(_PACKAGE)]
    for owner in [*classes, *(sys.modules[base.__module__] for base in classes)]:
        for name, value in vars(owner).items():
            function = value.fget if isinstance(value, property) else value
            if not isinstance(function, FunctionType):
                continue
            if not function.__code__.co_filename.startswith(_ORIGINS):
                raise ValueError(f"{name} of {type(env).__name__} was replaced")
            method = getattr(type(env), name, None)
            is_method = name != "step" and isinstance(method, FunctionType)
            if is_method and getattr(getattr(env, name), "__func__", None) is not method:
                raise ValueError(f"the method {name} was replaced")
