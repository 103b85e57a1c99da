"""Finds what environments share with others in the same process, so that they need a process each.

Environments of one process that are stepped on from where they stand must have the results that they have in
processes of their own. They do not if they share a mutable object, a module variable, a class attribute or a
global generator. So before the first reset

1. the objects that they hold are compared: none that can change may be held by two of them;
2. their code is read (`shared_code`), for what happens rarely;
3. two more are made, and one is stepped alone and beside the other: the outcomes must be the same, and what
   lies beside environments must not change.

Whatever looks suspicious counts: a process more costs time, and a wrong result more. What this misses is
noticed while they run, when it changes (`Watch`).
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import decimal
import enum
import fractions
import functools
import itertools
import logging
import os
import pathlib
import re
import sys
import threading
import time
import types
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from planvec.codecs.base import layers_of
from planvec.codecs.budget import steps_within
from planvec.codecs.compare import same
from planvec.codecs.generic.attributes import (
    ATOMS,
    attributes_of,
    cell_contents,
    is_compiled_function,
)
from planvec.codecs.generic.shared_code import (
    CONTAINERS,
    CodeReader,
    functions_in,
    global_generator,
    is_drawn,
)
from planvec.codecs.generic.structure import digests_apart, digests_of
from planvec.codecs.generic.survey import (
    Entry,
    entries_of,
    first_change,
    globals_of,
    own_classes,
    variables_beside,
)
from planvec.codecs.positions import generator_states, global_generators
from planvec.codecs.reported import LegalActions

# steps of the trial, and the time after which no further one is taken, but for the first ones
_MAX_STEPS, _MIN_STEPS, _MAX_SECONDS = 96, 24, 0.15
_IMMUTABLE = (
    *ATOMS,
    *(np.generic, np.dtype, range, tuple, frozenset, type, types.ModuleType, type(Ellipsis), enum.Enum),
    *(types.BuiltinFunctionType, types.MethodType, property, EnvSpec, re.Pattern, logging.Logger, uuid.UUID),
    *(decimal.Decimal, fractions.Fraction, datetime.date, datetime.time, datetime.timedelta),
    *(datetime.tzinfo, pathlib.PurePath, weakref.ref, type(threading.Lock()), type(threading.RLock())),
    *(gymnasium.Space, types.FunctionType),  # their generators and closures are looked at
)
# packages whose objects speak with other processes
_OUTSIDE = {
    *("_multiprocessing", "_socket", "grpc", "multiprocessing", "ray"),
    *("socket", "sqlite3", "subprocess", "zmq"),
}
# packages of data, whose objects are changed by assignments and by methods that tell it by their names
_DATA = {"networkx", "pandas", "scipy", "torch"}
# MuJoCo's callbacks, of which a process has one each
_CALLBACKS = ("control", "passive", "sensor", "act_bias", "act_dyn", "act_gain", "contactfilter", "time")


class Sharing(NamedTuple):
    """Says why environments need a process each."""

    why: str = ""  # the reason; "" if they do not
    # Whether the trial has shown it. Else what they hold and their code make it possible.
    is_seen: bool = False


def same_layers(envs: Sequence[object]) -> str:
    """Return why environments need a process each if they, or what wrappers hold, are one object; else ""."""
    seen: dict[int, int] = {}
    for row, env in enumerate(envs):
        for layer in layers_of(env):
            first = seen.setdefault(id(layer), row)
            if first != row:
                return f"environments {first} and {row} are one {type(layer).__name__} object"
    for path, value in _held_by_two(_entries(env, layers_of(env)[:-1]) for env in envs):
        return f"two environments hold the same {type(value).__name__}, {path}"
    mujoco = sys.modules.get("mujoco")
    for name in _CALLBACKS if mujoco is not None else ():
        if getattr(mujoco, f"get_mjcb_{name}", lambda: None)() is not None:
            return f"mujoco.set_mjcb_{name} was called, which counts for all environments of a process"
    return ""


class EnvFunctions:
    """Reads functions that make environments, what they hold, and the code of the program that they use."""

    def __init__(self, env_fns: Sequence[Callable[[], Any]]) -> None:
        held = _held_by(env_fns)
        reader = CodeReader([*env_fns, *held], ())
        # whether that code has variables of modules and classes, which environments may change
        self.has_variables = bool(reader.variables)
        # What it changes or draws from that others share; "" if nothing. It may seed the global generators:
        # that has no influence if environments do not draw from them.
        self.uses = next((use for use in reader.uses if " seeds the global generator" not in use), "")
        self._held = held + [space[name] for space, name in reader.variables.values()]

    def digests(self) -> dict[int, bytes]:
        """Return digests of the containers and objects that they hand to environments, by their ids."""
        digests = {}
        for value in self._held:
            is_given = type(value) in (dict, list, set, deque) or hasattr(value, "__dict__")
            is_other = callable(value) or isinstance(value, gymnasium.Env)
            if is_given and not is_other and _is_mutable(value):
                with contextlib.suppress(Exception):  # objects of users may refuse anything
                    digests[id(value)] = digests_of({"": value}, {})[""]
        return digests


def find_shared(
    envs: Sequence[object],
    env_fns: Sequence[Callable[[], Any]],
    caches: Collection[str] = (),
    *,
    tries: bool = True,
) -> tuple[Sharing, Watch | None]:
    """Return why environments need a process each; if they do not, what notices later what they change."""
    if not envs:
        return Sharing(), None
    try:
        watch = Watch(envs, env_fns, caches)
        sharing = Sharing(_shared_object(envs, watch) or next(iter(watch.uses), ""))
        kinds = {tuple(map(type, layers_of(env))): index for index, env in reversed([*enumerate(envs)])}
        for index in kinds.values() if tries else ():
            sharing = _try(envs[index], env_fns[index], watch, sharing.why)
            if sharing.is_seen:
                break
    except Exception as error:  # objects of users may refuse anything
        why = f"looking for what they share raised {type(error).__name__}: {error}"
        return Sharing(why, is_seen=True), None
    return sharing, None if sharing.why or len(envs) == 1 else watch


def outside_object(env: object) -> str:
    """Return which object of an environment may speak with other processes; "" if none does."""
    # No other one must be stepped for a proof then: it would take from a queue, or wait at a barrier.
    for path, value in _entries(env):
        package = str(getattr(type(value), "__module__", "")).partition(".")[0]
        if package in _OUTSIDE and not isinstance(value, type):
            return f"{path} is a {type(value).__name__}, which may speak with other processes"
    return ""


# -- objects --------------------------------------------------------------------------------------------


def _entries(env: object, some: Sequence[object] | None = None) -> Iterator[Entry]:
    """Iterate over the objects that (some) layers of an environment hold, also in closures of functions."""
    layers = layers_of(env)
    roots = [
        Entry(f"{type(layer).__name__}.{name}", value)
        for layer in (layers if some is None else some)
        for name, value in attributes_of(layer).items()
        if name not in ("env", "_ezpickle_args", "_ezpickle_kwargs", "_saved_kwargs")
    ]
    return entries_of(roots, layers, enter_functions=True)


def _is_mutable(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return value.flags.writeable
    is_frozen = getattr(getattr(type(value), "__dataclass_params__", None), "frozen", False)
    return not (isinstance(value, _IMMUTABLE) or is_frozen or is_compiled_function(value))


def _held_by_two(rows: Iterable[Iterable[Entry]]) -> Iterator[Entry]:
    """Iterate over the objects that can change and that two environments hold, whose entries are given."""
    owners: dict[int, tuple[int, Any]] = {}  # keeps the objects alive, with their ids
    for row, entries in enumerate(rows):
        for entry in entries:
            value = entry.value
            if _is_mutable(value) and owners.setdefault(id(value), (row, value))[0] != row:
                yield entry


def _shared_object(envs: Iterable[object], watch: Watch) -> str:
    """Return which object two environments hold; "" if there is none."""
    # What modules, classes and default arguments hold, and what functions hand to environments, does not
    # count if no method changes it in place, as far as the code shows. The trial watches it, too.
    rows = [list(_entries(env)) for env in envs]
    for path, value in itertools.chain.from_iterable(rows):
        generator = global_generator(value)
        if generator:
            return f"{path} is the global generator of {generator}"
    shared = list(_held_by_two(rows))
    constants = watch.constants({id(value) for _, value in shared}) if shared else set()
    for path, value in shared:
        if id(value) not in constants or watch.is_changed(path, value):
            return f"two environments hold the same {type(value).__name__}, {path}"
    return ""


# -- beside environments --------------------------------------------------------------------------------


class Watch:
    """Compares what lies beside environments at two times."""

    def __init__(
        self, envs: Sequence[object], env_fns: Sequence[Callable[[], Any]], caches: Collection[str]
    ) -> None:
        first = {tuple(map(type, layers_of(env))): env for env in reversed(envs)}.values()
        entries = [entry for env in first for entry in _entries(env)]
        layers = [layer for env in envs for layer in layers_of(env)]
        self._classes = own_classes([entry.value for entry in entries] + layers)
        packages = {cls.__module__.partition(".")[0] for cls in own_classes(layers)}
        functions = [entry.value for entry in entries if functions_in(entry.value)]
        reader = CodeReader([*self._classes, *functions], packages)
        held = _held_by(env_fns)
        makers = CodeReader(held, packages)  # `EnvFunctions` tells what they change
        has_own_generators = any(getattr(layer, "has_own_generators", False) for layer in layers)
        own = ("of random", "of numpy.random") if has_own_generators else ()
        self._caches = {*caches}
        # what their code changes or draws from; see `CodeReader`
        self.uses = [
            use
            for use in reader.uses
            if not use.endswith(own) and not any(path in use for path in self._caches)
        ]
        self._variables = {**makers.variables, **reader.variables}
        inner = [found for value in (*functions, *held) for found in functions_in(value)]
        self._functions = {f"{function.__module__}.{function.__qualname__}": function for function in inner}
        self._reader = reader
        self._layers = {id(layer): "env" for layer in layers}
        bases = {base for cls in {*map(type, layers), *self._classes} for base in cls.__mro__}
        self._bases = [base for base in bases if reader.is_own(base)]
        self._given = held + [space[name] for space, name in makers.variables.values()]
        # the spaces that they hold
        self.spaces = [entry.value for entry in entries if isinstance(entry.value, gymnasium.Space)]
        self._latest: dict[str, Any] | None = None
        self._next = 0.0

    def change(self) -> str:
        """Return what has changed between two calls; "" if nothing, or if it is too early to compare."""
        # Comparing takes one part in 50 of the time.
        started = time.monotonic()
        if started < self._next:
            return ""
        found = self.present()  # without the spaces of one environment
        changed = "" if self._latest is None else first_change(self._latest, found)
        self._latest, self._next = found, started + 50 * (time.monotonic() - started)
        return changed

    def constants(self, wanted: Collection[int]) -> set[int]:
        """Return which objects, by their ids, lie beside environments."""
        # Variables of modules and classes, default arguments and functions that make environments hold them.
        left, found = {*wanted}, set()
        given = entries_of([Entry("", value) for value in self._given])
        for entry in itertools.chain(given, _beside(self._bases)):  # many, in a large program
            if id(entry.value) in left:
                found.add(id(entry.value))
                left.discard(id(entry.value))
                if not left:
                    break
        return found

    def is_changed(self, path: str, value: object) -> bool:
        """Return whether a method may change an object in place that an attribute on a path holds."""
        if not self._is_known(value) or type(value) in self._reader.changing or is_drawn(value):
            return True
        return any(name in self._reader.changed_on_self for name in re.findall(r"\.(\w+)", path))

    def _is_known(self, value: object) -> bool:
        """Return whether an object is one that the code changes in ways that can be read."""
        kind = type(value)
        is_data = isinstance(value, CONTAINERS) or kind.__module__.partition(".")[0] in _DATA
        return is_data or self._reader.is_own(kind)

    def present(self, more: Sequence[gymnasium.Space[object]] = ()) -> dict[str, Any]:
        """Return the variables, and the states of global generators and of those of spaces."""
        # These are the spaces beside environments, and some more.
        found = self.variables()
        found |= {f"the global generator of {name}": state for name, state in global_generators().items()}
        for space in (*more, *self._values().values()):
            if isinstance(space, gymnasium.Space):
                name = f"the generator of the space {type(space).__name__} ({id(space):#x}"
                found |= {f"{name}, {n})": state for n, state in enumerate(generator_states(space))}
        return found

    def variables(self) -> dict[str, Any]:
        """Return digests of the variables of modules, classes and functions, and what a process has once."""
        values = {path: value for path, value in self._values().items() if path not in self._caches}
        once = {"os.environ": dict(os.environ), "the working directory": os.getcwd()}
        return {**once, **digests_apart(values, self._layers)}

    def _values(self) -> dict[str, Any]:
        values = variables_beside(self._classes, self._functions)
        for path, (space, name) in self._variables.items():
            if name in space:
                values[path] = space[name]
        known = {id(value) for value in values.values()}
        for number, value in enumerate(self._given):
            if self._is_known(value) and id(value) not in known and not callable(value):
                values[f"object {number} that functions hand over ({type(value).__name__})"] = value
        return values


def _held_by(env_fns: Sequence[Callable[[], Any]]) -> list[Any]:
    """Return functions, and what they hold: partial arguments, objects of methods, variables of closures."""
    held: list[Any] = []
    seen: dict[int, Any] = {}
    todo: list[Any] = [*env_fns]
    while todo:
        inner = todo.pop()
        if id(inner) in seen or isinstance(inner, type):
            continue
        seen[id(inner)] = inner
        held.append(inner)
        if isinstance(inner, functools.partial):
            todo += [inner.func, *inner.args, *inner.keywords.values()]
        elif callable(inner):
            todo += [getattr(inner, "__self__", None), *attributes_of(inner).values()]
            todo += cell_contents(getattr(inner, "__closure__", None) or ())
            todo += getattr(inner, "__defaults__", None) or ()
    return held


def _beside(classes: Iterable[type]) -> Iterator[Entry]:
    """Iterate over the objects that modules and classes hold, and default arguments of methods."""
    known = [cls for cls in classes if hasattr(cls, "__module__")]  # some of SWIG have none
    modules = {cls.__module__: vars(sys.modules.get(cls.__module__, cls)) for cls in known}
    # A class of a script comes to a worker with module variables of its own.
    scripts = [globals_of(cls) for cls in known if cls.__module__ == "__main__"]
    spaces = [*modules.values(), *scripts, *(vars(cls) for cls in classes)]
    values = [value for space in spaces for value in space.values()]
    for function in [found for value in values for found in functions_in(value)]:
        values += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    yield from entries_of([Entry("", value) for value in values], enter_sets=False)


# -- the trial ------------------------------------------------------------------------------------------


def _try(env: object, make_env: Callable[[], Any], watch: Watch, possible: str) -> Sharing:
    """Make two more environments and step them. Returns what they share with each other."""
    made: list[Any] = []
    variables = watch.variables()
    try:
        made += [make_env()]
        made += [make_env()]
        why = same_layers([env, *made])
        if why:
            return Sharing(why, is_seen=True)
        possible = possible or _shared_object([env, *made], watch)
        changed = first_change(variables, watch.variables())
        if changed:
            possible = possible or f"making an environment changes {changed}"
        before = watch.present(watch.spaces)
        alone = _walk(made[:1])
        changed = first_change(before, watch.present(watch.spaces))
        if changed:
            return Sharing(f"its resets or steps change {changed}", is_seen=True)
        if possible:  # another one may differ from the first one
            return Sharing(possible)
        made += [make_env()]  # the first one may remember more than its episode
        beside = _walk(made[:0:-1])
        number = min(len(alone), len(beside))
        if not same(alone[:number], beside[:number]):
            return Sharing(
                "a second one that is stepped in the same process changes its results", is_seen=True
            )
    except Exception as error:
        return Sharing(f"another one beside it raises {type(error).__name__}: {error}", is_seen=True)
    finally:
        layers = {id(layer) for layer in layers_of(env)}
        for other in made:
            if not layers & {id(layer) for layer in layers_of(other)}:
                other.close()
    return Sharing(possible)


def _walk(envs: Sequence[Any]) -> list[Any]:
    """Step environments in turn at random, and return the outcomes of the first one, without infos."""
    samplers = [LegalActions.seeded(env.action_space) for env in envs]
    has_ended, outcomes = [True] * len(envs), []
    for index in steps_within(_MAX_SECONDS, _MIN_STEPS, _MAX_STEPS):
        for number, (env, actions) in enumerate(zip(envs, samplers, strict=True)):
            outcome: Any = None
            if has_ended[number]:
                outcome, info = env.reset(seed=index + number)
                actions.note(outcome, info)
                has_ended[number] = False
            else:
                try:
                    observation, reward, terminated, truncated, info = env.step(actions.sample())
                    actions.note(observation, info)
                except Exception:  # an illegal action, for example: it ends the episode
                    terminated = True
                else:
                    outcome = observation, reward, bool(terminated), bool(truncated)
                has_ended[number] = outcome is None or bool(terminated or truncated)
            if number == 0:
                outcomes.append(copy.deepcopy(outcome))
    return outcomes
