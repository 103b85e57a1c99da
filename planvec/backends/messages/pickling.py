"""Pickles functions and classes of the user's script for a worker, which does not run the script.

cloudpickle sends them by value, with the variables that they use. This module adds what it sends by name, or
not at all: cached functions, single-dispatch functions, types for annotations, locks, and specs.
"""

from __future__ import annotations

import contextlib
import copyreg
import dataclasses
import functools
import io
import subprocess
import sys
import threading
import types
import typing
from collections import ChainMap
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, ClassVar

from cloudpickle import cloudpickle
from gymnasium.envs.registration import EnvSpec

_MAIN = "__main__:"
# the code of all single-dispatch functions
_DISPATCHER = functools.singledispatch(lambda _: None).__code__  # type: ignore[attr-defined]
# their attributes can be sent now that locks can, but not what they stand for
_RUNNING = (threading.Thread, subprocess.Popen, Future)


def pickle_for_worker(value: Any) -> bytes:
    """Return a value, pickled for a worker."""
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


def explain(value: Any, error: Exception) -> str:
    """Return the message for a value that cannot be pickled, with the variable that prevents it."""
    tracer = _Tracer(io.BytesIO())
    with contextlib.suppress(Exception):
        tracer.dump(value)
    return f"{_describe(tracer.visited)} cannot be pickled ({type(error).__name__}: {error})"


def _is_importable(value: Any) -> bool:
    """Return whether a worker finds a value by its name in a module."""
    return cloudpickle._lookup_module_and_qualname(value, _by_name(value)) is not None


def _by_name(value: Any) -> str:
    return str(getattr(value, "__qualname__", value.__name__))


def _reduce_cached(function: Any) -> Any:
    """Send a function with a cache, which is empty in the worker."""
    if _is_importable(function):
        return _by_name(function)
    attributes = {name: value for name, value in vars(function).items() if name != "__wrapped__"}
    return _cache, (function.__wrapped__, function.cache_parameters()), attributes


def _cache(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _dispatching(make: Callable[..., Any], function: Any, dispatcher: Any) -> Any:
    """Send a single-dispatch function or method, whose cache refers weakly to classes."""
    return make, (function,), list(dispatcher.registry.items()), None, None, _add_methods


def _add_methods(function: Any, methods: Iterable[tuple[type, Callable[..., Any]]]) -> None:
    """Complete a single-dispatch function."""
    for cls, method in methods:
        function.register(cls, method)


def _reduce_type(make: Callable[..., Any], *names: str) -> Callable[[Any], Any]:
    """Return how to send a type of a script that is only used in annotations."""

    def reduce(value: Any) -> Any:
        if _is_importable(value):
            return _by_name(value)
        return make, tuple(getattr(value, name) for name in names)

    return reduce


def _reduce_spec(spec: EnvSpec) -> Any:
    """Send a spec with what it names in the script. Replace other classes by their names."""
    # A worker imports them when it uses them.
    main, state, of_main = sys.modules["__main__"], dict(vars(spec)), {}
    wrappers = (wrapper.entry_point for wrapper in spec.additional_wrappers)
    for point in (spec.entry_point, spec.vector_entry_point, *wrappers):
        if isinstance(point, str) and point.startswith(_MAIN):
            name = point.removeprefix(_MAIN)
            if hasattr(main, name):
                of_main[name] = getattr(main, name)
    for key in ("entry_point", "vector_entry_point"):
        point = state[key]
        is_named = isinstance(point, (types.FunctionType, type)) and "." not in point.__qualname__
        if is_named and cloudpickle._should_pickle_by_reference(point):
            state[key] = f"{point.__module__}:{point.__qualname__}"
    return copyreg.__newobj__, (type(spec),), (state, of_main), None, None, _fill_spec  # type: ignore[attr-defined]


def _fill_spec(spec: EnvSpec, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
    fields, of_main = state
    vars(spec).update(fields)
    for name, value in of_main.items():
        vars(sys.modules["__main__"]).setdefault(name, value)


_REDUCERS: dict[type, Callable[[Any], Any]] = {
    functools._lru_cache_wrapper: _reduce_cached,
    EnvSpec: _reduce_spec,
    # A process has locks and thread-local values of its own, as after a fork.
    type(threading.Lock()): lambda lock: (threading.Lock, ()),
    type(threading.RLock()): lambda lock: (threading.RLock, ()),
    functools.singledispatchmethod: lambda method: _dispatching(
        functools.singledispatchmethod, method.func, method.dispatcher
    ),
    threading.local: lambda local: (threading.local, (), vars(local)),
    # Compared by `is`.
    type(dataclasses.MISSING): lambda missing: "MISSING",
    typing.NewType: _reduce_type(typing.NewType, "__name__", "__supertype__"),
    typing.ParamSpec: _reduce_type(typing.ParamSpec, "__name__"),
    typing.TypeVarTuple: _reduce_type(typing.TypeVarTuple, "__name__"),
}
if sys.version_info >= (3, 12):
    _REDUCERS[typing.TypeAliasType] = _reduce_type(typing.TypeAliasType, "__name__", "__value__")


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc] # which has no types
    dispatch_table: ClassVar[Any] = ChainMap(_REDUCERS, cloudpickle.Pickler.dispatch_table)

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, _RUNNING):
            raise TypeError(f"cannot pickle {type(value).__name__!r} object")
        if getattr(value, "__code__", None) is _DISPATCHER and not _is_importable(value):
            return _dispatching(functools.singledispatch, value.__wrapped__, value)
        return super().reducer_override(value)


class _Tracer(_Pickler):
    """Notes all objects that are not of the plain types, in order: the last one cannot be pickled."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.visited: list[Any] = []

    def reducer_override(self, value: Any) -> Any:
        self.visited.append(value)
        return super().reducer_override(value)


def _describe(visited: list[Any]) -> str:
    """Return the name of the last object, found in the objects before it, or of one that contains it."""
    for index in reversed(range(len(visited))):
        if not _can_be_pickled(visited[index]) and (name := _name_of(visited[index], visited[:index])):
            return name
    return f"an object of type {type(visited[-1]).__qualname__}"


def _can_be_pickled(value: Any) -> bool:
    try:
        pickle_for_worker(value)
    except Exception:
        return False
    return True


def _name_of(culprit: Any, visited: list[Any]) -> str:
    path = ""
    for holder in reversed(visited):
        is_function = isinstance(holder, types.FunctionType)
        if is_function and str(holder.__module__).partition(".")[0] in sys.stdlib_module_names:
            continue  # of WeakKeyDictionary, for example
        for name, value in _names_in(holder).items():
            if not _contains(value, culprit):
                continue
            if is_function:
                return f"the variable {name + path!r}, which {holder.__qualname__} uses,"
            if isinstance(holder, type):
                return f"the attribute {holder.__qualname__}.{name}{path}"
            culprit, path = holder, f".{name}{path}"
            break
    return ""


def _names_in(holder: Any) -> dict[str, Any]:
    """Return the variables that a function uses, or the attributes of another object."""
    if not isinstance(holder, types.FunctionType):
        return dict(getattr(holder, "__dict__", {}))
    code = holder.__code__
    defaults = reversed(holder.__defaults__ or ())
    names = dict(zip(reversed(code.co_varnames[: code.co_argcount]), defaults, strict=False))
    cells = zip(code.co_freevars, holder.__closure__ or (), strict=True)
    names |= {name: cell.cell_contents for name, cell in cells if cell != types.CellType()}
    for name in cloudpickle._extract_code_globals(code):
        if name in holder.__globals__:
            names[name] = holder.__globals__[name]
    return names


def _contains(value: Any, culprit: Any, depth: int = 3) -> bool:
    """Return whether a value is an object, or a container of plain types that contains it."""
    if value is culprit:
        return True
    parts = [*value, *value.values()] if isinstance(value, dict) else value
    is_container = isinstance(value, (dict, list, tuple, set, frozenset))
    return depth > 0 and is_container and any(_contains(part, culprit, depth - 1) for part in parts)
