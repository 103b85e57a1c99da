"""Looks through the objects that an environment holds, and at what its own modules and classes hold.

A pickle is exact only if it keeps the identity of objects that are compared by `is`: of functions, modules
and spaces inside other objects, and of objects at the level of a module or a class. These are referred to by
name.
"""

from __future__ import annotations

import functools
import sys
import threading
import types
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from planvec.codecs.generic.attributes import (
    ATOMS,
    RESEEDABLE,
    attributes_of,
    cell_contents,
    is_compiled_function,
    is_simulator_object,
    names_in_code,
)

_MAX_ENTRIES = 200_000
_ATOMS = (*ATOMS, np.generic, range, type(Ellipsis))
# types into which the survey does not look
_OPAQUE = (types.ModuleType, type, gymnasium.Space, EnvSpec, np.random.BitGenerator, *RESEEDABLE)
_NAMEABLE = (types.ModuleType, gymnasium.Space, EnvSpec, type(threading.Lock()), type(threading.RLock()))
_SMALLEST_ADDRESS = 1 << 20
# types of what a module or a class defines besides variables
_DEFINITIONS = (
    *(type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType),
    *(property, staticmethod, classmethod, functools.cached_property),
    *(types.MemberDescriptorType, types.GetSetDescriptorType, types.MethodDescriptorType),
)
# packages whose modules and classes are not looked at
_FOREIGN = {
    *("builtins", "gymnasium", "numpy", "planvec", *sys.stdlib_module_names),
    *("networkx", "pandas", "PIL", "scipy", "torch"),
}


class Entry(NamedTuple):
    """Holds an object, and the path by which it was found."""

    path: str
    value: Any


def entries_of(
    roots: Iterable[Entry],
    stop_at: Iterable[Any] = (),
    enter_sets: bool = True,
    enter_simulators: bool = False,
    enter_functions: bool = False,
) -> Iterator[Entry]:
    """Iterate over the objects that roots hold, each once, in the same order in every process."""
    # Numbers and text are passed over unless they are in a container. At most 200,000 objects are visited.
    stopped = [*stop_at]  # referred to, so that their ids stay valid
    seen = {id(obj) for obj in stopped}
    queue = deque(roots)
    kept = []
    while queue and len(seen) < _MAX_ENTRIES:
        entry = queue.popleft()
        if isinstance(entry.value, _ATOMS):
            yield entry
        elif id(entry.value) not in seen:
            seen.add(id(entry.value))
            kept.append(entry.value)
            yield entry
            if not enter_sets and isinstance(entry.value, (set, frozenset)):
                continue
            if enter_simulators or not is_simulator_object(entry.value):
                queue.extend(_children(entry))
            function = getattr(entry.value, "__func__", entry.value) if enter_functions else None
            if isinstance(function, types.FunctionType):
                inside = [*cell_contents(function.__closure__ or ()), *(function.__defaults__ or ())]
                queue.extend(Entry(f"a variable of {entry.path}", value) for value in inside)


def _children(entry: Entry) -> Iterator[Entry]:
    path, value = entry
    if isinstance(value, (*_OPAQUE, types.FunctionType)):
        return
    if isinstance(value, types.MethodType):
        yield Entry(f"{path}.__self__", value.__self__)
        return
    if isinstance(value, functools.partial):
        yield Entry(f"{path}.func", value.func)
        yield Entry(f"{path}.args", value.args)
        yield Entry(f"{path}.keywords", value.keywords)
        return
    if isinstance(value, dict):
        for number, (key, item) in enumerate(value.items()):
            label = repr(key) if isinstance(key, (str, int)) else f"#{number}"
            yield Entry(f"key {label} of {path}", key)
            yield Entry(f"{path}[{label}]", item)
    elif isinstance(value, (list, tuple, deque, set, frozenset)):
        yield from (Entry(f"{path}[{number}]", item) for number, item in enumerate(value))
    elif isinstance(value, np.ndarray) and value.dtype.hasobject and value.dtype.names is None:
        yield from (Entry(f"{path}.flat[{number}]", item) for number, item in enumerate(value.flat))
    attributes = attributes_of(value)
    yield from (Entry(f"{path}.{name}", attributes[name]) for name in sorted(attributes, key=str))


def is_nameable(value: Any) -> bool:
    """Return whether an object inside others is constant, but would lose its identity in a pickle."""
    if isinstance(value, _NAMEABLE) or is_compiled_function(value) or is_simulator_object(value):
        return True
    return isinstance(value, types.FunctionType) and not _is_importable(value)


def _is_importable(obj: types.FunctionType | type) -> bool:
    """Return whether a function or class is found by its name."""
    found: Any = sys.modules.get(obj.__module__ or "")
    for name in obj.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is obj


def find_address(entries: Iterable[Entry]) -> tuple[str, str] | None:
    """Return the paths of a number and of an object whose `id` it is, or None."""
    # Such a number means nothing after the objects are restored at other addresses.
    numbers: dict[int, str] = {}
    objects: dict[int, str] = {}
    for path, value in entries:
        if type(value) is int:
            if value > _SMALLEST_ADDRESS:
                numbers.setdefault(value, path)
        elif not isinstance(value, _ATOMS):
            objects[id(value)] = path
    for number, path in numbers.items():
        if number in objects:
            return path, objects[number]
    return None


def own_classes(values: Iterable[Any]) -> list[type]:
    """Return the classes of objects and their bases, without those of `_FOREIGN` packages."""
    # In the order of their names, which is the same in every process.
    kinds = {id(kind): kind for kind in map(type, values)}
    bases = {id(base): base for kind in kinds.values() for base in kind.__mro__}
    # Some classes of SWIG have no module.
    own = [base for base in bases.values() if _package(getattr(base, "__module__", "numpy")) not in _FOREIGN]
    return sorted(own, key=lambda cls: (cls.__module__, cls.__qualname__))


def variables_beside(classes: Iterable[type]) -> dict[str, Any]:
    """Return the variables at the level of the modules of classes, and of the classes themselves, by path."""
    # Functions, classes and modules are left out.
    classes = list(classes)
    variables = {}
    for cls in classes:
        for key, value in sorted(globals_of(cls).items()):
            if not (key.startswith("__") or isinstance(value, _DEFINITIONS)):
                variables[f"{cls.__module__}.{key}"] = value
    for cls in classes:
        for key, value in sorted(vars(cls).items()):
            if not (key.startswith("__") or isinstance(value, _DEFINITIONS)):
                variables[f"{cls.__module__}.{cls.__qualname__}.{key}"] = value
    return variables


def functions_of(classes: Iterable[type]) -> dict[str, types.FunctionType]:
    """Return the functions that classes define, by path."""
    functions = {}
    for cls in classes:
        for key, value in sorted(vars(cls).items()):
            function = getattr(value, "__func__", getattr(value, "fget", value))
            if isinstance(function, types.FunctionType):
                functions[f"{cls.__module__}.{cls.__qualname__}.{key}"] = function
    return functions


def objects_beside(classes: Iterable[type]) -> Iterator[Entry]:
    """Iterate over the objects that `variables_beside` holds, and that could be compared by `is`."""
    # Numbers, text and tuples are left out. So is what sets hold, which has no order.
    roots = [Entry(path, value) for path, value in variables_beside(classes).items()]
    for entry in entries_of(roots, enter_sets=False):
        if not isinstance(entry.value, (*_ATOMS, tuple, frozenset, *_DEFINITIONS)):
            yield entry


def globals_of(cls: type) -> dict[str, Any]:
    """Return the variables at the level of the module of a class."""
    # A class that is not found by its name, or that belongs to a script, is sent to workers by value, and
    # with it only the variables that its methods use.
    module = sys.modules.get(cls.__module__)
    if module is not None and cls.__module__ != "__main__" and _is_importable(cls):
        return vars(module)
    used: dict[str, Any] = {}
    for value in vars(cls).values():
        function = getattr(value, "__func__", value)
        if isinstance(function, types.FunctionType):
            names = names_in_code(function.__code__)
            used |= {name: function.__globals__[name] for name in names if name in function.__globals__}
    return used


def _package(module: str) -> str:
    return module.partition(".")[0]
