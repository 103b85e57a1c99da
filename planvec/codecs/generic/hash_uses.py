"""Tells whether the code of an environment may depend on hashes, which differ from process to process."""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Iterable
from typing import Any

from planvec.codecs.generic.functions import cell_contents, names_in_code
from planvec.codecs.generic.survey import functions_of

__all__ = ["uses_hashes"]

_NAMES = {"frozenset", "hash", "id", "set"}
_OPCODES = {dis.opmap["BUILD_SET"], dis.opmap["SET_ADD"]}
_WITHOUT_HASHES = {
    *("PIL", "cv2", "gymnasium", "jax", "matplotlib", "numba", "numpy", "pandas", "planvec", "pygame"),
    *("scipy", "torch", *sys.stdlib_module_names),
}
"""Packages whose results do not depend on hashes of texts."""


def uses_hashes(classes: Iterable[type]) -> bool:
    """Return whether methods of classes, or what they name, make sets, hash or use unknown packages."""
    own = {_package(cls) for cls in classes}
    nothing: set[str] = set()
    todo: list[tuple[Any, set[str]]] = [(function, nothing) for function in functions_of(classes).values()]
    seen: dict[tuple[int, int], Any] = {}
    while todo:
        value, names = todo.pop()  # and the names that are looked up in it, if it is a module
        if (id(value), id(names)) in seen:
            continue
        seen[id(value), id(names)] = value, names
        value = getattr(value, "__func__", value)
        if isinstance(value, (set, frozenset)):
            return True
        if not isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)):
            continue
        if _package(value) in _WITHOUT_HASHES:
            continue
        if _package(value) not in own:
            return True
        if isinstance(value, types.ModuleType):
            todo += [(vars(value)[name], names) for name in names & vars(value).keys()]
        elif isinstance(value, type):
            todo += [(function, nothing) for function in functions_of([value]).values()]
        elif isinstance(value, types.FunctionType):
            if _makes_sets(value.__code__):
                return True
            names, known = names_in_code(value.__code__), value.__globals__
            todo += [(known[name], names) for name in names & known.keys()]
            todo += [(content, names) for content in cell_contents(value.__closure__ or ())]
    return False


def _package(value: Any) -> str:
    name = value.__name__ if isinstance(value, types.ModuleType) else value.__module__
    return str(name).partition(".")[0]


def _makes_sets(code: types.CodeType) -> bool:
    if _OPCODES & {*code.co_code[::2]} or _NAMES & {*code.co_names}:
        return True
    return any(
        isinstance(part, frozenset) or (isinstance(part, types.CodeType) and _makes_sets(part))
        for part in code.co_consts
    )
