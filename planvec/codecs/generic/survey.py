"""Looks through the objects that an environment holds, and at what its own modules and classes hold.

A pickle is exact only if it keeps the identity of objects that are compared by `is`: of functions, modules
and spaces inside other objects, and of objects at the level of a module or a class. These are referred to by
name.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
import sys
import threading
import types
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from planvec.codecs.base import Env, layers_of
from planvec.codecs.generic.attributes import (
    ADVICE,
    ATOMS,
    RESEEDABLE,
    attributes_of,
    cell_contents,
    is_compiled_function,
    is_simulator_object,
    names_in_code,
)
from planvec.codecs.generic.structure import digests_apart
from planvec.codecs.positions import Source, generator_states, global_generators
from planvec.errors import UnsupportedEnvError

_MAX_ENTRIES = 200_000
_MAX_LEVELS, _MAX_ITEMS = 4, 1000  # how far variables of modules are searched for generators
NUMBERS_AND_TEXT = (*ATOMS, np.generic, range, type(Ellipsis))
# types into which the survey does not look
_OPAQUE = (types.ModuleType, type, gymnasium.Space, EnvSpec, np.random.BitGenerator, *RESEEDABLE)
_NAMEABLE = (types.ModuleType, gymnasium.Space, EnvSpec, type(threading.Lock()), type(threading.RLock()))
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
    stop_at: Iterable[object] = (),
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
        if isinstance(entry.value, NUMBERS_AND_TEXT):
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


def is_nameable(value: object) -> bool:
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


def own_classes(values: Iterable[object]) -> list[type]:
    """Return the classes of objects and their bases, without those of `_FOREIGN` packages."""
    # In the order of their names, which is the same in every process.
    kinds = {id(kind): kind for kind in map(type, values)}
    bases = {id(base): base for kind in kinds.values() for base in kind.__mro__}
    own = [base for base in bases.values() if not _is_foreign(_module_of(base))]
    return sorted(own, key=lambda cls: (cls.__module__, cls.__qualname__))


def variables_beside(
    classes: Sequence[type], functions: Mapping[str, types.FunctionType] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the variables of the modules of classes, of the classes, and of functions, by path."""
    # Functions, classes and modules are left out.
    spaces = [(cls.__module__, globals_of(cls)) for cls in classes]
    spaces += [(f"{cls.__module__}.{cls.__qualname__}", dict(vars(cls))) for cls in classes]
    variables = {
        f"{path}.{key}": value
        for path, space in spaces
        for key, value in sorted(space.items())
        if not (key.startswith("__") or isinstance(value, _DEFINITIONS))
    }
    for path, function in functions.items():
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            variables[f"the variable {name} of {path}"] = cell
        defaults = [*enumerate(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()]
        variables |= {f"default argument {name} of {path}": default for name, default in defaults}
        variables |= {f"{path}.{name}": value for name, value in vars(function).items()}
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


def objects_beside(classes: Sequence[type]) -> Iterator[Entry]:
    """Iterate over the objects that `variables_beside` holds, and that could be compared by `is`."""
    # Numbers, text and tuples are left out. So is what sets hold, which has no order.
    roots = [Entry(path, value) for path, value in variables_beside(classes).items()]
    for entry in entries_of(roots, enter_sets=False):
        if not isinstance(entry.value, (*NUMBERS_AND_TEXT, tuple, frozenset, *_DEFINITIONS)):
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


def _is_drawable(value: object) -> bool:
    return issubclass(type(value), RESEEDABLE) and not issubclass(type(value), random.SystemRandom)


def _drawable_in(roots: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the generators that lie in containers and in objects of own classes, a few levels deep."""
    # Not `entries_of`: what lies in a module is anything, such as a proxy of an object that is gone.
    level, seen = [*roots], set()
    for _ in range(_MAX_LEVELS):
        below: list[Entry] = []
        for path, value in level:
            kind = type(value)
            if id(value) in seen or issubclass(kind, _DEFINITIONS):
                continue
            seen.add(id(value))
            if _is_drawable(value):
                yield Entry(path, value)
            elif issubclass(kind, dict):
                for number, (key, item) in enumerate(itertools.islice(value.items(), _MAX_ITEMS)):
                    label = repr(key) if isinstance(key, (str, int)) else f"#{number}"
                    below.append(Entry(f"{path}[{label}]", item))
            elif issubclass(kind, (list, tuple)):
                below += [Entry(f"{path}[{n}]", item) for n, item in enumerate(value[:_MAX_ITEMS])]
            elif not _is_foreign(_module_of(kind)):
                with contextlib.suppress(Exception):  # of a class that hides its attributes
                    below += [Entry(f"{path}.{name}", item) for name, item in vars(value).items()]
        level = below


_Namespace = tuple[str, "set[str] | None", Mapping[str, object]]  # its path, the names that are used, or all


def _namespaces_of(functions: Iterable[types.FunctionType]) -> Iterator[_Namespace]:
    """Yield what functions use at the level of modules, and what the functions use that they call there."""
    queue, seen = deque(functions), set()
    while queue:
        function = queue.popleft()
        code = function.__code__
        if code in seen:
            continue
        seen.add(code)
        names = names_in_code(code)
        queue += [c for c in cell_contents(function.__closure__ or ()) if isinstance(c, types.FunctionType)]
        namespaces = {function.__module__ or "": function.__globals__}
        for path in (paths := [*namespaces]):  # and of the modules in it
            yield path, names, namespaces[path]
            for name in names & namespaces[path].keys():
                value = namespaces[path][name]
                kind = type(value)  # not `isinstance`, which fails for a proxy of an object that is gone
                if issubclass(kind, types.ModuleType):
                    if not _is_foreign(value.__name__) and value.__name__ not in namespaces:
                        namespaces[value.__name__] = vars(value)
                        paths.append(value.__name__)
                elif issubclass(kind, type) and not _is_foreign(_module_of(value)):
                    queue += functions_of([value]).values()
                elif issubclass(kind, types.FunctionType) and not _is_foreign(_module_of(value)):
                    queue.append(value)


def _module_of(value: type | types.FunctionType) -> str:
    return str(getattr(value, "__module__", "numpy"))  # some classes of SWIG have none


def _is_foreign(module: str) -> bool:
    return module.partition(".")[0] in _FOREIGN


# -- Watches what an environment may change besides its attributes: there it cannot be saved -----------------


class Beside:
    """Compares the state beside an environment before and after some steps."""

    # That is the global generators, the variables of the modules, classes and functions that define it, and
    # the number of generators that were spawned from `np_random`. Spaces from which the environment draws are
    # reported, since their generators can be saved.

    def __init__(
        self,
        env: Any,
        classes: Sequence[type],
        functions: dict[str, types.FunctionType],
        spaces: dict[str, gymnasium.Space[Any]],
        caches: Collection[str] = (),
    ) -> None:
        self._env = env.unwrapped
        self._layers = {id(layer): "env" for layer in layers_of(env)}
        self._classes = classes
        self._functions = {**functions_of(classes), **functions}
        self._spaces = spaces
        self._caches = caches

    def begin(self) -> None:
        """Remember the present state. To be called right after a reset."""
        self._generators = global_generators()
        self._num_spawned = self._count_spawned()
        self._digests = self._digests_of_variables()
        self._drawn = {path: generator_states(space) for path, space in self._spaces.items()}

    def generators(self) -> dict[str, Source]:
        """Return by path the spaces, and functions that return the generators that code can reach."""
        # Code may replace a generator at the level of a module or a class: so it is looked up each time.
        namespaces: list[_Namespace] = [*_namespaces_of(self._functions.values())]
        for cls in self._classes:
            namespaces.append((cls.__module__, None, globals_of(cls)))
            namespaces.append((f"{cls.__module__}.{cls.__qualname__}", None, vars(cls)))
        found: dict[str, Callable[[], object]] = {}
        roots = []
        for where, names, namespace in namespaces:
            for name in [*namespace] if names is None else sorted(names & namespace.keys()):
                path, value = f"{where}.{name}", namespace[name]
                if _is_drawable(value):
                    found.setdefault(path, functools.partial(namespace.get, name))
                else:
                    roots.append(Entry(path, value))
        for path, value in variables_beside((), self._functions).items():
            inside = cell_contents([value]) if isinstance(value, types.CellType) else [value]
            roots += [Entry(path, each) for each in inside]
        for path, value in _drawable_in(roots):
            found.setdefault(path, functools.partial(next, itertools.repeat(value)))
        for cache in self._caches:
            parts = tuple(f"{cache}{mark}" for mark in ".[")
            found = {path: get for path, get in found.items() if not f"{path}.".startswith(parts)}
        return {**self._spaces, **found}

    def check_variables(self) -> None:
        """Check that no variable has changed since `begin`."""
        path = first_change(self._digests, self._digests_of_variables())
        if path in self._spaces:
            raise UnsupportedEnvError(
                f"{type(self._env).__name__}: its steps change the space {path}, and spaces count as "
                f"constant. Keep what changes in another attribute of self. {ADVICE}"
            )
        if path:
            raise UnsupportedEnvError(
                f"{type(self._env).__name__}: its steps change {path}, which is no attribute of the "
                "environment. Keep it in an attribute of self. If it is a cache without influence on "
                f'results, pass codec=planvec.Copied(caches=["{path}"]). {ADVICE}'
            )

    def check(self) -> list[str]:
        """Compare the present state with that of `begin`."""
        # Returns paths of the spaces from which the environment has drawn.
        name = type(self._env).__name__
        generator = first_change(self._generators, global_generators())
        if generator:
            raise drawn_elsewhere(self._env, [f"the global generator of `{generator}`"])
        if self._count_spawned() != self._num_spawned:
            raise UnsupportedEnvError(
                f"{name}: its steps spawn generators from np_random, and the number of spawned ones is not "
                f"saved. Spawn them in reset, or seed them with integers that np_random draws. {ADVICE}"
            )
        self.check_variables()
        return [path for path, space in self._spaces.items() if generator_states(space) != self._drawn[path]]

    def _count_spawned(self) -> int:
        """Return how many generators were spawned from `np_random`."""
        sequence = getattr(getattr(self._env._np_random, "bit_generator", None), "seed_seq", None)
        return int(getattr(sequence, "n_children_spawned", 0))

    def _digests_of_variables(self) -> dict[str, bytes]:
        variables = {**variables_beside(self._classes, self._functions), **self._spaces}
        kept = {path: value for path, value in variables.items() if path not in self._caches}
        return digests_apart(kept, self._layers)


def drawn_elsewhere(env: Env, generators: Iterable[str], advice: str = ADVICE) -> UnsupportedEnvError:
    """Return the error for an environment whose steps draw from generators beside it."""
    return UnsupportedEnvError(
        f"{type(env.unwrapped).__name__}: its steps draw from {next(iter(generators))}, which is no part of "
        f"the environment. Draw from self.np_random instead. {advice}".rstrip()
    )


def first_change(before: Mapping[str, object], after: Mapping[str, object]) -> str:
    """Return the name of what has changed; "" if nothing has."""
    return next((name for name in {**before, **after} if before.get(name) != after.get(name)), "")
