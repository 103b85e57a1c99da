"""Pickles what crosses between a parent and its worker: functions and classes of a script, values, failures.

cloudpickle sends what a script defines by value, with the variables that it uses. This module adds what it
sends by name, or not at all: cached functions, single-dispatch functions, types for annotations, locks.
"""

from __future__ import annotations

import contextlib
import copyreg
import dataclasses
import functools
import io
import pickle
import subprocess
import sys
import threading
import traceback
import types
import typing
import warnings
from collections import ChainMap
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NoReturn, Protocol, TypeVar, runtime_checkable

from cloudpickle import cloudpickle
from gymnasium.envs.registration import EnvSpec, registry

from planvec import errors
from planvec.errors import EnvError, UnsupportedEnvError, WorkerStartError, text_of
from planvec.rows import Answer, Outputs, unpicklable_rows

T = TypeVar("T")

_MAIN = "__main__:"
# the code of all single-dispatch functions
_DISPATCHER = functools.singledispatch(lambda _: None).__code__  # type: ignore[attr-defined]
# their attributes can be sent now that locks can, but not what they stand for
_RUNNING = (threading.Thread, subprocess.Popen, Future)


def pickle_for_worker(value: object) -> bytes:
    """Return a value, pickled for a worker."""
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


def explain(value: object, error: Exception) -> str:
    """Return the message for a value that cannot be pickled, with the variable that prevents it."""
    tracer = _Tracer(io.BytesIO())
    with contextlib.suppress(Exception):
        tracer.dump(value)
    visited = tracer.visited
    what = f"an object of type {type(visited[-1]).__qualname__}"
    # the last object that has a name in those before it, or one that contains it
    for index in reversed(range(len(visited))):
        one = visited[index]
        if _error_of_pickling(one) is not None and (name := _name_of(one, visited[:index])):
            what = name
            break
    return f"{what} cannot be pickled ({type(error).__name__}: {error})"


def _is_importable(value: object) -> bool:
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


def _dispatching(make: Callable[..., Any], function: object, dispatcher: Any) -> Any:
    """Send a single-dispatch function or method, whose cache refers weakly to classes."""
    return make, (function,), list(dispatcher.registry.items()), None, None, _add_methods


def _add_methods(function: Any, methods: Iterable[tuple[type, Callable[..., Any]]]) -> None:
    """Complete a single-dispatch function."""
    for cls, method in methods:
        function.register(cls, method)


def _reduce_type(make: Callable[..., Any], *names: str) -> Callable[[Any], Any]:
    """Return how to send a type of a script that is only used in annotations."""

    def reduce(value: object) -> Any:
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

    def reducer_override(self, value: object) -> Any:
        self.visited.append(value)
        return super().reducer_override(value)


def _error_of_pickling(value: object) -> Exception | None:
    try:
        pickle_for_worker(value)
    except Exception as error:
        return error
    return None


def _name_of(culprit: object, visited: list[Any]) -> str:
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


def _names_in(holder: object) -> dict[str, Any]:
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


# -- Reads what another process has pickled by cloudpickle, without changing classes of this process ---------

# the functions of cloudpickle that make a class, and which of their arguments is its tracker id
_MAKERS = {"_make_skeleton_class": 4, "_make_skeleton_enum": 5}
_SETTER = "_class_setstate"
_CURE = "and workers do not run the script; make it in the factory, or in a module that the script imports"


def load_pickled(data: Any, buffers: Iterable[object] = ()) -> Any:
    """Return what was pickled by pickle or cloudpickle."""
    # cloudpickle sends the classes of a script by value. Where this process has sent the class itself, or has
    # received it before, `pickle.loads` would make another class, which `__init_subclass__` of its base may
    # enter in a list, find the one that is known, and replace all of its methods by the copies that come
    # back, whose global variables are those of another process.
    # `buffers`: the contents of arrays that were pickled out of band.
    return _Unpickler(io.BytesIO(data), buffers).load()


class _Unpickler(pickle.Unpickler):
    """Leaves the classes as they are that this process knows."""

    def __init__(self, file: io.BytesIO, buffers: Iterable[object]) -> None:
        super().__init__(file, buffers=buffers)
        self._new: list[type] = []

    def find_class(self, module: str, name: str) -> Any:
        """Return a global of a module. Those that make and fill classes leave those out that are known."""
        try:
            found = super().find_class(module, name)
        except AttributeError as error:
            if module == "__main__":
                error.args = (f"{error}: {name} is pickled by its name, {_CURE}",)
            raise
        if module == cloudpickle.__name__:
            if name in _MAKERS:
                return partial(_make_class, found, _MAKERS[name], self._new)
            if name == _SETTER:
                return partial(_fill, found, self._new)
        return found


def _make_class(make: Any, index: int, new: list[type], *arguments: object) -> type:
    """Return the class of a tracker id, made by cloudpickle's `make` if this process does not know it."""
    cls: type | None = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(arguments[index])
    if cls is None:
        cls = make(*arguments)
        new.append(cls)
    return cls


def _fill(fill: Any, new: list[type], cls: type, state: object) -> type:
    """Give a new class its contents by cloudpickle's `fill`; return the class."""
    if any(cls is made for made in new):
        fill(cls, state)
    return cls


# -- Keeps the classes of the user's script the same in all processes, which cloudpickle sends by value ------


def load_from_parent(data: bytes) -> Any:
    """Return what the parent has pickled by cloudpickle."""
    value = load_pickled(data)
    # cloudpickle sends the classes of the script by value. States and infos with instances of them are
    # pickled by name, so that their bytes are the same in every process: pickle finds them in `__main__`.
    tracked = getattr(cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_CLASS", {})
    main_module = sys.modules["__main__"]
    for cls in list(tracked):
        if cls.__module__ == "__main__" and "." not in cls.__qualname__:
            known = vars(main_module).setdefault(cls.__qualname__, cls)
            if isinstance(known, type) and issubclass(cls, known):  # class State(namedtuple("State", ...))
                setattr(main_module, cls.__qualname__, cls)
    return value


def track_main_classes() -> None:
    """Give the classes of the script their ids, by which this process knows what a forked child returns."""
    for value in list(vars(sys.modules["__main__"]).values()):
        if isinstance(value, type) and value.__module__ == "__main__":
            cloudpickle._get_or_create_tracker_id(value)


# -- Sends the factory of a worker, with the ids of environments that this process has registered ------------

_CURES = (
    "make it where it is used, in __init__ of the environment or in the factory, or move what uses it to a "
    "module that the script imports"
)


def pickle_factory(factory: Callable[[], Any], other_cure: str = "") -> bytes:
    """Pickle a factory for workers."""
    specs = dict(registry)
    with contextlib.suppress(Exception):
        # In one pickle, since the functions of a script share its variables.
        return pickle_for_worker((factory, specs))
    error = _error_of_pickling(factory)
    if error is not None:
        raise WorkerStartError(
            f"factory: {explain(factory, error)}: {_CURES}{other_cure}; nothing was started"
        ) from error
    return pickle_for_worker((factory, {env_id: _sendable(spec) for env_id, spec in specs.items()}))


def _sendable(spec: EnvSpec) -> EnvSpec:
    """Return a spec, or if it cannot be pickled one that raises the reason when it is made."""
    error = _error_of_pickling(spec)
    if error is None:
        return spec
    refuse = partial(_refuse, f"{spec.id}: {explain(spec, error)}: {_CURES}")
    return dataclasses.replace(spec, entry_point=refuse, vector_entry_point=refuse, kwargs={})


def _refuse(text: str, **_: object) -> NoReturn:
    raise UnsupportedEnvError(text)


def load_factory(data: bytes) -> Callable[[], Any]:
    """Return a function that makes the object of a factory that `pickle_factory` pickled."""
    factory, specs = load_from_parent(data)
    return partial(_make_registered, factory, specs)


def _make_registered(factory: Callable[[], Any], specs: dict[str, EnvSpec]) -> Any:
    """Call a factory, with all ids as in the parent."""
    registry.update(specs)
    # A package registers its ids once more when the factory imports it.
    warnings.filterwarnings("ignore", r".*Overriding environment .* already in registry", UserWarning)
    made = error = None
    try:
        made = factory()
    except Exception as raised:
        error = raised
    registered = ((registry.get(env_id), spec) for env_id, spec in specs.items())
    if any(present is not spec and repr(present) != repr(spec) for present, spec in registered):
        # The script had registered an id of this package again, and the package has now replaced it here.
        close = getattr(made, "close", None)
        if callable(close):
            close()
        registry.update(specs)
        return factory()
    if error is not None:
        raise error
    return made


# -- Sends exceptions from a worker to its parent as text.
#
# A pickled exception may fail to pickle, fail to unpickle, or run code when it is unpickled.


@dataclass(slots=True)
class Failure:
    """Describes an exception."""

    type_name: str  # name of its class
    detail: str  # its message
    text: str  # its formatted traceback
    row: int | None = None  # row of the chunk that raised it, or None
    action: Any = None  # action of that row, or its repr if it cannot be pickled; None without a row

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Return the description of a caught exception."""
        if not isinstance(error, errors.EnvError):
            text = "".join(traceback.format_exception(error))
            return cls(type(error).__name__, text_of(error), text)
        # The traceback of the cause: that of an `EnvError` would name the row from the start of the chunk.
        text = "".join(traceback.format_exception(error.__cause__ or error))
        action = error.action
        try:
            pickle.dumps(action)
        except Exception:
            action = repr(action)
        return cls("EnvError", error.detail, text, error.row, action)

    def to_error(self) -> errors.PlanvecError:
        """Return the error to raise in the parent. Its `__cause__` is the remote traceback."""
        known = getattr(errors, self.type_name, None)
        error: errors.PlanvecError
        if self.type_name == "EnvError":
            error = errors.EnvError(self.detail, row=self.row, action=self.action)
        elif isinstance(known, type) and issubclass(known, errors.PlanvecError):
            error = known(self.detail)
        else:
            error = errors.EnvError(f"{self.type_name}: {self.detail}")
        error.__cause__ = errors.RemoteTraceback(self.text)
        return error


# -- Writes answers that are values, or lists of values: frames, attributes, what a method returned ----------


def write_value(what: str, answer: Answer) -> bytes:
    """Return the payload of an answer without a slot: a value, or a list of values."""
    value = (answer.value, answer.outputs.values)
    try:
        payload: bytes = cloudpickle.dumps(value, protocol=5)
    except Exception as error:
        kind = type(answer.value if answer.outputs.values is None else answer.outputs.values[0]).__name__
        raise EnvError(f"{what}: its value, a {kind}, cannot be pickled ({error})") from error
    return payload


def read_value(payload: bytes) -> Answer:
    """Return the answer that `write_value` wrote."""
    value, values = load_pickled(payload)
    return Answer(Outputs(values=values), value=value)


# -- Writes answers to requests over rows, or the parts of them that lie in no shared memory -----------------


def dump_answer(answer: Answer, outputs: Outputs, value: bytes, dump: Callable[[Any], T]) -> T:
    """Return what `dump` makes of an answer, with other outputs and with the `value` of `write_value`."""
    errors = {row: Failure.of(error) for row, error in answer.errors.items()}
    try:
        return dump((outputs, answer.columns, errors, value, answer.seconds))
    except Exception:
        for error in unpicklable_rows(answer.columns).values():
            raise error from None
        raise


def load_answer(parts: Any) -> Answer:
    """Return the answer whose parts `dump_answer` gave to `dump`. Its arrays are borrowed."""
    outputs, columns, failures, data, seconds = parts
    value, outputs.values = load_pickled(data) if data else (None, None)
    errors: Any = {row: failure.to_error() for row, failure in failures.items()}
    return Answer(outputs, columns, errors, value=value, seconds=seconds, is_borrowed=True)


@runtime_checkable
class HasStepper(Protocol):
    """Has an `EnvStepper`. A worker that hosts such an object (a `PlanEnv`) can perform requests."""

    stepper: Any
