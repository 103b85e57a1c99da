"""The codec of Gymnasium's own MuJoCo environments: one vector of physics.

MuJoCo's `mjSTATE_INTEGRATION` holds everything that the next simulation step depends on. A Gymnasium step
depends on more. `mj_step` computes new joint positions at its end, but leaves the positions of bodies as they
were in the last substep, and some environments measure how far a body moves from there. Computing these
positions again would give other numbers. So the arrays that an environment reads before it simulates are
saved too.

Letters: B rows.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from planvec.codecs.base import Codec, layer_name, layers_by_name
from planvec.codecs.generic.attributes import (
    Attributes,
    LibraryMemory,
    cell_contents,
    is_simulator_module,
    is_simulator_object,
)
from planvec.codecs.generic.copied import GraphCodec, ObjectGraph
from planvec.codecs.generic.survey import Entry, entries_of
from planvec.codecs.mujoco.fast_step import install_fast_step
from planvec.codecs.mujoco.simulation import (
    BEYOND_STATE,
    INTEGRATION,
    POSES,
    ModelFields,
    SavedSimulation,
    Simulation,
    Way,
    check_sleep,
    model_bytes,
)
from planvec.codecs.selection import FamilyCodec, WrapperSupport
from planvec.errors import UnsupportedEnvError


def _fix_camera(env: Any) -> None:
    """Point a free camera at the model in the pose that its file describes."""
    # Gymnasium points it at the state that is rendered first, so pictures would depend on the worker.
    # (`AddRenderObservation` renders in its constructor, after a reset without a seed.)
    described = mujoco.MjData(env.model)
    mujoco.mj_kinematics(env.model, described)
    renderer = env.mujoco_renderer
    config = {"lookat": np.median(described.geom_xpos, axis=0), **(renderer.default_cam_config or {})}
    renderer.default_cam_config = config
    for viewer in getattr(renderer, "_viewers", {}).values():
        viewer.cam.lookat[:] = config["lookat"]


# -- Finds the names that occur in the code of an environment, to tell which arrays it may read --------------

# packages whose functions are not looked into
_FOREIGN = {"builtins", "cloudpickle", "mujoco", "numpy", "planvec", "scipy", *sys.stdlib_module_names}
# attributes of methods, properties and partial functions that hold the functions
_INSIDE = ("__func__", "fget", "fset", "fdel", "func")
_MAX_ITEMS = 1000


def _names_reached(values: Iterable[Any]) -> set[str]:
    """Return the names and strings in the functions of some objects, and in those that these may call."""
    # Functions that are reached through variables of a module are included. The result is the same in every
    # process.
    names: set[str] = set()
    seen: set[int] = set()
    stack = [*values, *(type(value) for value in values)]
    while stack:
        value = stack.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, types.FunctionType):
            if _is_own(value.__module__):
                new = _names_of(value.__code__)
                names |= new
                stack += [value.__globals__[name] for name in new if name in value.__globals__]
                # what it holds: in its closure, its default arguments and its attributes
                stack += [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
                stack += [*cell_contents(value.__closure__ or ()), *vars(value).values()]
        elif isinstance(value, type):
            for base in value.__mro__:
                if _is_own(base.__module__):
                    stack += vars(base).values()
        elif isinstance(value, types.ModuleType):
            if _is_own(value.__name__):
                functions = (types.FunctionType, type)
                own = [item for item in vars(value).values() if isinstance(item, functions)]
                stack += [item for item in own if item.__module__ == value.__name__]
        elif isinstance(value, (list, tuple)):
            stack += value[:_MAX_ITEMS]
        elif isinstance(value, dict):
            stack += [*value.values()][:_MAX_ITEMS]
        else:
            stack += [getattr(value, name) for name in _INSIDE if hasattr(type(value), name)]
    return names


def _is_own(module: str | None) -> bool:
    name = module or "builtins"
    return name.partition(".")[0] not in _FOREIGN and not f"{name}.".startswith("dm_control.mujoco.")


def _names_of(code: types.CodeType) -> set[str]:
    """Return the names and strings in a function and in the functions inside it."""
    names = {*code.co_names}
    for constant in code.co_consts:
        if isinstance(constant, str):
            names.add(constant)
        elif isinstance(constant, tuple):
            names |= {part for part in constant if isinstance(part, str)}
        elif isinstance(constant, types.CodeType):
            names |= _names_of(constant)
    return names


# -- A codec for environments of any class that hold MuJoCo simulations.
#
# The simulations are found among the objects that the environment holds. Everything else is a pickle of the
# attributes, in which the objects of MuJoCo are referred to by name.


def _objects_in(env: Any) -> dict[str, Any]:
    """Return the objects that an unwrapped environment holds, and those of simulators, by path."""
    name = layer_name(env)
    roots = [Entry(f"{name}.{key}", value) for key, value in sorted(vars(env).items())]
    return dict(entries_of(roots, [env], enter_simulators=True))


# the simulations, what changed in models without one, and the attributes
_Value = tuple[list[SavedSimulation], list[bytes], bytes]


class SimulationsCodec(GraphCodec, Codec):
    """Saves the simulations of an environment, what it changed in their models, and its attributes."""

    how = "the physics, and a pickle of the attributes"

    def __init__(self, env: Any, way: Way) -> None:
        vars(env).setdefault("_np_random", None)
        objects = _objects_in(env)
        names = _names_reached([env, *objects.values()])
        is_rendered = getattr(env, "render_mode", None) is not None
        if is_rendered and hasattr(env, "mujoco_renderer"):
            _fix_camera(env)
        _check_forces(env, names)
        data = {path: value for path, value in objects.items() if isinstance(value, mujoco.MjData)}
        for item in data.values():
            check_sleep(env, item.model)
        self._simulations = [Simulation(item, names, way, is_rendered) for item in data.values()]
        # the models of the simulations and those among other objects, each once
        models = [item.model for item in data.values()]
        models += [value for value in objects.values() if isinstance(value, mujoco.MjModel)]
        self._models = list({id(model): model for model in models}.values())
        with_data = {id(item.model) for item in data.values()}
        self._other_fields = [ModelFields(model) for model in self._models if id(model) not in with_data]
        # objects of a simulator with attributes, of classes that are defined elsewhere
        extended = {
            path: value
            for path, value in objects.items()
            if not is_simulator_module(type(value).__module__)
            and is_simulator_object(value)
            and hasattr(value, "__dict__")
        }
        members = [Attributes(env, layer_name(env), ["_np_random"])]
        members += [Attributes(value, path, []) for path, value in extended.items()]
        self.graph = ObjectGraph(members, layers_by_name(env) | extended, env, _memory_of(data))

    def identity(self, env: Any) -> list[Any]:
        """Return the module of the class, the whole models, and how the simulations are saved."""
        layouts = [simulation.layout for simulation in self._simulations]
        return [type(env).__module__, layouts, *map(model_bytes, self._models)]

    def before_reset(self, saved: Any) -> None:
        super().before_reset(saved)
        for simulation in self._simulations:
            simulation.before_reset()
        for fields in self._other_fields:
            fields.set(b"")

    def get(self, saved: Any) -> _Value:
        fields = [fields.get() for fields in self._other_fields]
        return [simulation.get() for simulation in self._simulations], fields, self.graph.save()

    def set(self, saved: Any, value: _Value) -> None:
        simulations, changes, attributes = value
        self.graph.restore(attributes)
        for fields, change in zip(self._other_fields, changes, strict=True):
            fields.set(change)
        for simulation, physics in zip(self._simulations, simulations, strict=True):
            simulation.set(physics)

    def digests(self, saved: Any) -> dict[str, bytes]:
        """Return a digest of each attribute that is saved, and the physics."""
        physics = {
            f"simulation {number}": b"|".join(simulation.get())
            for number, simulation in enumerate(self._simulations)
        }
        return {**self.graph.digests(), **physics}


def _memory_of(data: dict[str, Any]) -> LibraryMemory:
    """Return the memory of simulations and their models."""
    arrays = {}
    for path, item in data.items():
        for owner, kind in ((item, "data"), (item.model, "model"), (item.model.opt, "model.opt")):
            for name in dir(owner):
                array = None if name.startswith("_") else getattr(owner, name, None)
                if isinstance(array, np.ndarray):
                    arrays[f"{path} {kind}.{name}"] = array
    return LibraryMemory(arrays)


def _check_forces(env: Any, names: set[str]) -> None:
    """Check that no code reads the forces of constraints, which are not saved."""
    forces = sorted(name for name in names if name == "mj_contactForce" or name.startswith("efc_"))
    if forces:
        raise UnsupportedEnvError(
            f"{type(env).__name__}: its code reads {', '.join(forces)}, and the forces of constraints are no "
            'part of a state. Use a sensor of the model instead, or pass codec="replay", which is exact if '
            "the environment restarts from its seed"
        )


# Gymnasium's module -> the arrays of `MjData` that it reads before the simulation runs, or to observe
_ARRAYS_READ: dict[str, tuple[str, ...]] = {
    "ant": ("xpos",),
    "half_cheetah": (),
    "hopper": (),
    "humanoid": ("xipos",),
    "humanoidstandup": (),
    "inverted_double_pendulum": (),
    "inverted_pendulum": (),
    "pusher": ("xpos",),
    "reacher": ("xpos",),
    "swimmer": (),
    "walker2d": (),
}
_OBSERVE_FORCES = ("ant", "humanoid", "humanoidstandup", "inverted_double_pendulum")
"""Modules whose observations contain forces or inertias.

The arrays behind them are larger than the observation, which is saved instead.
"""
_VERSIONS = ("v4", "v5")


def codec_for_env(env: Any, wrappers: WrapperSupport) -> FamilyCodec | None:
    """Return how the states of an environment are saved; see `FamilyModule`."""
    is_known = _module_name(env) is not None and not (env.model.nplugin or getattr(env.model, "nflex", 0))
    if is_known and wrappers is not WrapperSupport.MISSING:
        # A wrapper that planvec does not know may change the weights of the reward. So the fast step, which
        # reads them once, is installed only without such wrappers.
        is_fast = wrappers is WrapperSupport.BUILT_IN
        return FamilyCodec(partial(PhysicsCodec, is_fast=is_fast), is_verified=True)
    objects = _objects_in(env)
    if not any(isinstance(value, mujoco.MjData) for value in objects.values()):
        return None
    # the cheapest states first; which way is exact depends on what the environment reads, and is found out by
    # verification
    ways = [(False, False), (True, False), (False, True), (True, True)]
    if any(type(value).__module__.startswith("dm_control.") for value in objects.values()):
        ways = [(False, True), (True, True), (True, False)]
    first, *others = (partial(SimulationsCodec, way=Way(*way)) for way in ways)
    return FamilyCodec(first, False, tuple(others))


def _module_name(env: Any) -> str | None:
    """Return `ant` for exactly Gymnasium's own Ant; None for a class that may hold more."""
    package, _, module = type(env).__module__.rpartition(".")
    name, _, version = module.rpartition("_")
    is_gymnasium = package == "gymnasium.envs.mujoco" and version in _VERSIONS and name in _ARRAYS_READ
    return name if is_gymnasium else None


def saved_arrays(env: Any) -> tuple[str, ...]:
    """Return the names of the arrays of `MjData` that follow `mjSTATE_INTEGRATION` in a state, in order."""
    # Those without elements are left out of states.
    read = _ARRAYS_READ[str(_module_name(env))]
    return tuple(dict.fromkeys((*BEYOND_STATE, *read, *(() if env.render_mode is None else POSES))))


# -- The codec of Gymnasium's own environments ---------------------------------------------------------------


class PhysicsCodec(Codec):
    """Saves Gymnasium's own environments as `physics`, a float64 vector."""

    # The vector is `mjSTATE_INTEGRATION`, followed by the arrays of `MjData` that the environment reads
    # before the simulation runs. With a render mode, the arrays that a picture is drawn from follow.

    draws = False
    how = "one vector of physics"

    def __init__(self, env: Any, is_fast: bool = False) -> None:
        self._model, self._data = env.model, env.data
        self._observes = _module_name(env) not in _OBSERVE_FORCES
        check_sleep(env, env.model)
        self._num_state = mujoco.mj_stateSize(self._model, INTEGRATION)
        self._size = self._num_state
        self._views: list[tuple[NDArray[Any], int, int]] = []
        for name in saved_arrays(env):
            array = getattr(self._data, name, None)
            if array is not None and array.size:
                start, self._size = self._size, self._size + array.size
                self._views.append((array.reshape(-1), start, self._size))
        self._state = np.empty(self._num_state)
        self._parts = (self._state, *(view for view, _, _ in self._views))
        self.dtype = np.dtype([("physics", "<f8", self._size)])
        if env.render_mode is not None:
            _fix_camera(env)
        parameters = inspect.signature(type(env).__init__).parameters
        self.constants = ("frame_skip", *(f"_{name}" for name in parameters if hasattr(env, f"_{name}")))
        if is_fast:
            install_fast_step(env)

    def identity(self, env: Any) -> list[Any]:
        """Return the constants, the module of the class and the whole model."""
        return [*super().identity(env), type(env).__module__, model_bytes(env.model)]

    def get(self, env: Any) -> Any:
        if self._views:
            mujoco.mj_getState(self._model, self._data, self._state, INTEGRATION)
            return np.concatenate(self._parts)
        value = np.empty(self._size)
        mujoco.mj_getState(self._model, self._data, value, INTEGRATION)
        return value

    def set(self, env: Any, value: Any) -> None:
        if self._views:
            mujoco.mj_setState(self._model, self._data, value[: self._num_state], INTEGRATION)
            for view, start, stop in self._views:
                view[:] = value[start:stop]
        else:
            mujoco.mj_setState(self._model, self._data, value, INTEGRATION)

    def pack(self, values: Sequence[Any], records: NDArray[Any]) -> None:
        records["physics"] = np.concatenate(values).reshape(len(values), self._size)

    def unpack(self, records: NDArray[Any]) -> list[Any]:
        return list(records["physics"].copy())

    def observe(self, env: Any) -> Any:
        return env._get_obs() if self._observes else None
