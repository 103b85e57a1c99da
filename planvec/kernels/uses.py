"""Tells whether the code of an environment was changed: its functions, and what these use.

A kernel has the code of an environment, and the constants of its classes and modules, compiled in. Whoever
replaces a function of a module, a constant or a method changes the environment alone.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import gymnasium

from planvec.kernels.contents import Contents, is_scalar
from planvec.kernels.digests import code_parts
from planvec.rows import is_installed

_MISSING = object()
_MAX_ENTRIES = 5_000  # names that are watched
# attributes of classes that no step uses
_BOOKKEEPING = {
    "__abstractmethods__",
    "__annotations__",
    "__dict__",
    "__doc__",
    "__firstlineno__",
    "__module__",
    "__parameters__",
    "__orig_bases__",
    "__qualname__",
    "__slots__",
    "__static_attributes__",
    "__weakref__",
    "_abc_impl",
}
_SHIPPED = "gymnasium.envs."  # the modules of Gymnasium's own environments


class _Entry(NamedTuple):
    """A name of a module, a class or an object, what it stood for, and what that held."""

    get: Callable[[str, Any], Any]  # `get(name, default)` of the namespace
    name: str
    value: Any  # what it stood for
    contents: Contents | None  # what that held, if it can be changed in place


class Uses:
    """Remembers functions and classes, and the functions, classes and constants that they use."""

    # What installed packages hold is not looked into, apart from the environments of Gymnasium.

    def __init__(self, *roots: Any) -> None:
        self._packages = {_module_of(root).partition(".")[0] for root in roots} - {"gymnasium"}
        self._entries: list[_Entry] = []
        self._codes: list[tuple[FunctionType, Any, Any, Any]] = []
        self._sizes: list[tuple[Mapping[str, Any], int]] = []
        self._seen: dict[Any, Any] = {}
        self._todo = list(roots)
        self._look_into()

    def add_names(self, space: Mapping[str, Any], names: Iterable[str]) -> None:
        """Remember what names of an object, a module or a class stand for, and how many names there are."""
        self._sizes.append((space, len(space)))
        for name in names:
            self._add_entry(space, name)
        self._look_into()

    # -- later ------------------------------------------------------------------------------------

    def have_changed(self) -> bool:
        """Return whether anything differs from what it was."""
        # This is called before every batch, and takes about 0.1 us for a name.
        for number, (get, name, value, contents) in enumerate(self._entries):
            present = get(name, _MISSING)
            if contents is not None and contents.have_changed():
                return True
            if present is not value:
                if not Contents(value, self.is_own).is_equal(present):
                    return True
                is_held = contents is not None
                renewed = Contents(present, self.is_own) if is_held else None
                self._entries[number] = _Entry(get, name, present, renewed)
        for function, code, defaults, named in self._codes:
            if function.__code__ is not code or function.__defaults__ is not defaults:
                return True
            if function.__kwdefaults__ is not named:
                return True
        return any(len(space) != size for space, size in self._sizes)

    def settle(self) -> None:
        """Forget what has changed since: steps change it."""
        self._entries = [
            entry
            for entry in self._entries
            if entry.get(entry.name, _MISSING) is entry.value
            and not (entry.contents is not None and entry.contents.have_changed())
        ]
        self._sizes = [(space, len(space)) for space, _ in self._sizes]

    def digest(self) -> str:
        """Return a digest that is the same in every process with the same code and the same constants."""
        texts = [
            f"{function.__module__}.{function.__qualname__} {b''.join(code_parts(code))!r}"
            for function, code, *_ in self._codes
        ]
        texts += [f"{entry.name} {Contents(entry.value, self.is_own).text()}" for entry in self._entries]
        return hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()

    def is_own(self, value: Any) -> bool:
        """Return whether a class, a function or a module belongs to the program, and is looked into."""
        name = _module_of(value)
        if name.startswith(_SHIPPED) or name == "__main__" or name.partition(".")[0] in self._packages:
            return True
        module = value if isinstance(value, ModuleType) else sys.modules.get(name)
        path = getattr(module, "__file__", None)
        return path is not None and not is_installed(path) and name.partition(".")[0] != "planvec"

    # -- now --------------------------------------------------------------------------------------

    def _look_into(self) -> None:
        """Remember what functions and classes use, and what these use in turn."""
        while self._todo:
            value = self._todo.pop()
            for function in _functions_in(value):
                self._add_function(function)
            if isinstance(value, type):
                self._add_class(value)

    def _add_function(self, function: FunctionType) -> None:
        if not self.is_own(function) or not self._is_new(id(function), function):
            return
        self._codes.append((function, function.__code__, function.__defaults__, function.__kwdefaults__))
        for space, name in _names_in(function, function.__code__, self.is_own):
            self._add_entry(space, name)
        for cell in function.__closure__ or ():
            self._add_entry(Attributes(cell), "cell_contents")
        named = {"defaults": function.__defaults__, "kwdefaults": function.__kwdefaults__}
        for name in named:
            self._add_entry(named, name)

    def _add_class(self, added: type) -> None:
        for base in added.__mro__:
            if base is gymnasium.Env or not self.is_own(base) or not self._is_new(id(base), base):
                continue
            space = vars(base)
            self._sizes.append((space, len(space)))
            for name in sorted(space.keys() - _BOOKKEEPING):
                self._add_entry(space, name)

    def _add_entry(self, space: Mapping[str, Any], name: str) -> None:
        if len(self._entries) >= _MAX_ENTRIES or not self._is_new((id(space), name), space):
            return
        value, contents = space.get(name, _MISSING), None
        if isinstance(value, type) or _functions_in(value):
            self._todo.append(value)
        elif not is_scalar(value) and not isinstance(value, ModuleType):
            self._todo.append(type(value))
            contents = Contents(value, self.is_own)
        has_contents = contents is not None and contents.are_known
        self._entries.append(_Entry(space.get, name, value, contents if has_contents else None))

    def _is_new(self, key: Any, value: Any) -> bool:
        """Return whether something is seen for the first time, and keep it alive, with its id."""
        is_new = key not in self._seen
        self._seen[key] = value
        return is_new


class Attributes(Mapping[str, Any]):
    """Reads attributes that are in no dictionary: those in `__slots__`, and the content of a cell."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self._owner, name)
        except (AttributeError, ValueError) as error:  # nothing yet
            raise KeyError(name) from error

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _functions_in(value: Any) -> list[FunctionType]:
    """Return the Python functions behind a function, a method, a property, or what a decorator returned."""
    value = getattr(value, "py_func", value)  # of numba
    if isinstance(value, FunctionType):
        wrapped = getattr(value, "__wrapped__", None)
        return [value] if wrapped is None else [value, *_functions_in(wrapped)]
    if isinstance(value, (staticmethod, classmethod, MethodType)):
        return _functions_in(value.__func__)
    if isinstance(value, property):
        return [function for accessor in (value.fget, value.fset) for function in _functions_in(accessor)]
    if isinstance(value, (functools.partial, functools.cached_property)):
        return _functions_in(value.func)
    return []


@functools.lru_cache(maxsize=4096)
def _loads(code: CodeType) -> tuple[tuple[str, Any], ...]:
    """Return the instructions of a code, each with what it loads."""
    return tuple([(instruction.opname, instruction.argval) for instruction in dis.get_instructions(code)])


def _names_in(
    function: FunctionType, code: CodeType, is_own: Callable[[Any], bool]
) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield the names that a function reads from its module and from others, each with its namespace."""
    module: ModuleType | None = None
    for kind, name in _loads(code):
        space: Mapping[str, Any] | None = None
        if kind in ("LOAD_GLOBAL", "LOAD_NAME"):
            space = function.__globals__
        elif kind in ("LOAD_ATTR", "LOAD_METHOD") and module is not None:
            space = vars(module)
        module = None
        if space is not None:
            yield space, name
            value = space.get(name)
            module = value if isinstance(value, ModuleType) and is_own(value) else None
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(function, constant, is_own)


def _module_of(value: Any) -> str:
    """Return the name of the module of a class, a function or a module."""
    if isinstance(value, ModuleType):
        return value.__name__
    for function in _functions_in(value):
        return function.__module__ or ""
    return getattr(value, "__module__", None) or ""
