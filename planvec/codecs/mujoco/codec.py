"""The codecs of MuJoCo environments: of Gymnasium's own, and of classes that hold simulations (`MjData`).

MuJoCo's `mjSTATE_INTEGRATION` holds everything that the next simulation step depends on. Environments also
read arrays that MuJoCo derives from it, before they simulate. `mj_step` computes new joint positions at its
end, but leaves the positions of bodies as they were in the last substep, and some environments measure how
far a body moves from there. Computing these positions again would give other numbers, so such arrays are
saved too. After `mj_step1`, as dm_control steps, they must be computed again, since contacts and constraints
are read by `mj_step2`. A `Way` says what is done.

Letters: B rows.
"""

from __future__ import annotations

import ctypes
import inspect
import pickle
import sys
import types
import zlib
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from planvec.codecs.base import Codec, layer_name, layers_by_name
from planvec.codecs.differences import Differences, is_equal_memory
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
from planvec.codecs.selection import GYMNASIUM, FamilyCodec, WrapperSupport
from planvec.codecs.unpickling import unpickle
from planvec.errors import UnsupportedEnvError

# -- Saves the contacts of a simulation, for environments that read them before they simulate ----------------

# scratch memory of the solver, and where the forces are, which are not saved
_NOT_SAVED = ("H", "efc_address")


class Contacts:
    """Saves and restores the contacts of one simulation."""

    # MuJoCo has no function to set them, so they are written into its memory. Of each contact, only the
    # fields are saved: the bytes between them are whatever the memory held before.

    def __init__(self, data: Any) -> None:
        self._data = data
        num_contacts, data.ncon = data.ncon, 1
        contact = data.contact
        arrays = {name: getattr(contact, name) for name in dir(contact) if not name.startswith("_")}
        fields = {name: array for name, array in arrays.items() if isinstance(array, np.ndarray)}
        data.ncon = num_contacts
        first = fields["dist"]
        self._size = first.strides[0]
        start = first.ctypes.data
        is_field = np.zeros(self._size, bool)
        for name, field in fields.items():
            if name not in _NOT_SAVED:
                offset = field.ctypes.data - start
                is_field[offset : offset + field[0].nbytes] = True
        self._places = np.flatnonzero(is_field)

    def get(self) -> bytes:
        """Return the fields of all contacts."""
        return self._memory()[:, self._places].tobytes() if self._data.ncon else b""

    def set(self, contacts: bytes) -> None:
        """Restore what `get` returned."""
        self._data.ncon = len(contacts) // len(self._places)
        if contacts:
            rows = np.frombuffer(contacts, np.uint8).reshape(-1, len(self._places))
            self._memory()[:, self._places] = rows
            # The forces that it refers to are not there: mj_contactForce would read outside of the memory.
            self._data.contact.efc_address[:] = -1

    def _memory(self) -> NDArray[np.uint8]:
        """Return the memory of the contacts, one per row."""
        number = self._data.ncon
        address = self._data.contact.dist.ctypes.data  # the first field of the first contact
        memory = (ctypes.c_uint8 * (self._size * number)).from_address(address)
        return np.ctypeslib.as_array(memory).reshape(number, self._size)


# -- Saves what an environment changes in its `MjModel`: the gravity, a friction, a height field.
#
# Nearly all environments leave their model alone. So only the bytes that differ from the model at the start
# are saved. Comparing them costs about 10 us for a model of 100 KB.

# prefixes of arrays that must not change: shapes, which may take many megabytes
_SHAPES = ("mesh_", "bvh_", "oct_")
# prefixes of arrays that have no influence on the physics: pictures and names
_IGNORED = ("tex_", "skin_", "name", "paths", "text_", "plugin_")
# Number of bytes between two arrays that are compared as one block. MuJoCo aligns arrays to 64 bytes.
_LARGEST_GAP = 64


class ModelFields:
    """Saves and restores the fields of one model, in so far as they have changed."""

    def __init__(self, model: Any) -> None:
        self._model = model  # kept alive, since `_blocks` are its memory
        self._options = model.opt
        self._names = [
            name for name in dir(model.opt) if isinstance(getattr(model.opt, name), (bool, int, float))
        ]
        self._read_options = attrgetter(*self._names)
        self._first_options = self._read_options(model.opt)
        self._shapes = [_memory(*place) for place in sorted(set(_arrays_of(model, _SHAPES)))]
        self._first_checksum = self._checksum()
        self._blocks = [_memory(start, size) for start, size in _blocks_of(model)]
        self._first = [block.copy() for block in self._blocks]
        self._places = [
            (int(block.ctypes.data), int(first.ctypes.data), block.size)
            for block, first in zip(self._blocks, self._first, strict=True)
        ]
        self._differences = [Differences(first.tobytes()) for first in self._first]

    def check_shapes(self) -> None:
        """Check that no mesh has changed. It takes about 1 ms for each MB."""
        if self._checksum() != self._first_checksum:
            raise UnsupportedEnvError(
                "it changes the meshes of its MjModel, which planvec does not save. Make the model anew in a "
                'factory, or pass codec="replay", which is exact if the environment restarts from its seed'
            )

    def _checksum(self) -> int:
        checksum = 0
        for shape in self._shapes:
            checksum = zlib.crc32(shape.data, checksum)
        return checksum

    def get(self) -> bytes:
        """Return what differs from the model at the start; b"" if nothing does."""
        options = self._read_options(self._options)
        changes = [
            (number, self._differences[number].get(self._blocks[number].tobytes()))
            for number, place in enumerate(self._places)
            if not is_equal_memory(*place)
        ]
        if not changes and options == self._first_options:
            return b""
        return pickle.dumps((options, changes), protocol=5)

    def set(self, changes: bytes) -> None:
        """Change the model at the start by what `get` returned."""
        for block, first in zip(self._blocks, self._first, strict=True):
            block[:] = first
        options = self._first_options
        if changes:
            options, blocks = unpickle(changes)
            for number, change in blocks:
                content = self._differences[number].restore(change)
                self._blocks[number][:] = np.frombuffer(content, np.uint8)
        if options != self._read_options(self._options):
            for name, value in zip(self._names, options, strict=True):
                setattr(self._options, name, value)


def _blocks_of(model: Any) -> list[tuple[int, int]]:
    """Return the address and the size of each block of memory that is watched."""
    blocks: list[tuple[int, int]] = []
    # One after the other: which of the two lies first in memory differs between processes.
    for owner in (model.opt, model):
        last_start, last_end = 0, 0
        for start, size in sorted(set(_arrays_of(owner))):
            if last_end and 0 <= start - last_end <= _LARGEST_GAP:
                blocks.pop()
            else:
                last_start = start
            last_end = start + size
            blocks.append((last_start, last_end - last_start))
    return blocks


def _arrays_of(owner: object, prefixes: tuple[str, ...] = ()) -> list[tuple[int, int]]:
    """Return the address and the size of each array of a model, or of its options."""
    arrays = []
    for name in dir(owner):
        if name.startswith(prefixes) if prefixes else not name.startswith(("_", *_SHAPES, *_IGNORED)):
            array = getattr(owner, name, None)
            if isinstance(array, np.ndarray) and array.size:
                arrays.append((int(array.ctypes.data), int(array.nbytes)))
    return arrays


def _memory(start: int, size: int) -> NDArray[np.uint8]:
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(start))


INTEGRATION = int(mujoco.mjtState.mjSTATE_INTEGRATION)
# the arrays that a picture is drawn from
POSES = (
    *("xpos", "xquat", "xmat", "xipos", "xiquat", "ximat", "xanchor", "xaxis", "subtree_com"),
    *("geom_xpos", "geom_xquat", "geom_xmat", "site_xpos", "site_xquat", "site_xmat"),
    *("cam_xpos", "cam_xmat", "light_xpos", "light_xdir", "flexvert_xpos"),
    *("ten_length", "ten_wrapadr", "ten_wrapnum", "wrap_obj", "wrap_xpos"),
)
# arrays that `mj_step1` does not compute, or only in part
_ACCELERATIONS = (
    *("qacc", "act_dot", "sensordata", "cacc", "cfrc_int", "cfrc_ext", "energy"),
    *("actuator_force", "qfrc_actuator", "qfrc_constraint"),
)
# all arrays that an environment may read before it simulates
_DERIVED = (
    *POSES,
    *_ACCELERATIONS,
    *("cinert", "cvel", "actuator_length", "actuator_velocity", "ten_velocity"),
    *("qfrc_bias", "qfrc_passive", "subtree_linvel", "subtree_angmom"),
)
# the arrays that MuJoCo reads in the next step but leaves out of its state: contacts of soft bodies
BEYOND_STATE = ("flexvert_lambda", "flexvert_conage")
# beginning of an array's name -> the methods of `MjData` through which its rest is read: site().xpos
_ACCESSORS = {
    **{"site": ("site",), "geom": ("geom",), "cam": ("cam", "camera"), "light": ("light",)},
    **{"actuator": ("actuator",), "ten": ("tendon",)},
}


class Way(NamedTuple):
    """Names a way to save and restore a simulation."""

    # whether to save all derived arrays and the contacts, instead of those that the code of the environment
    # names
    saves_all: bool
    recomputes: bool  # whether `mj_step1` is called after the state was set


# `mjSTATE_INTEGRATION` and the derived arrays without zeros; the contacts; `ModelFields.get`
SavedSimulation = tuple[bytes, bytes, bytes]


class Simulation:
    """Saves and restores one simulation."""

    def __init__(self, data: Any, names: Collection[str], way: Way, is_rendered: bool) -> None:
        self._data, self._model = data, data.model
        self._recomputes = way.recomputes
        self._fields = ModelFields(self._model)
        self._num_state = mujoco.mj_stateSize(self._model, INTEGRATION)
        self._state = np.empty(self._num_state)
        mujoco.mj_getState(self._model, data, self._state, INTEGRATION)
        self._first_state = self._state.copy()
        self._first_arrays = [(array, array.copy()) for array in _arrays(data, _DERIVED)]
        self._views: list[np.ndarray] = []
        # names and sizes of the parts of a value
        self.layout: list[tuple[str, int]] = [("mjSTATE_INTEGRATION", self._num_state)]
        derived = _ACCELERATIONS if way.recomputes and not way.saves_all else _DERIVED
        saved = [array for array in derived if way.saves_all or _is_read(array, names)]
        for name in dict.fromkeys((*BEYOND_STATE, *saved, *(POSES if is_rendered else ()))):
            for array in _arrays(data, [name]):
                self._views.append(array.reshape(-1))
                self.layout.append((name, array.size))
        self._size = sum(size for _, size in self.layout)
        reads_contacts = not (way.recomputes or {"contact", "ncon"}.isdisjoint(names))
        self._contacts = Contacts(data)
        self._first_contacts = self._contacts.get()
        self._saves_contacts = way.saves_all or reads_contacts

    def before_reset(self) -> None:
        """Restore what the simulation held when the environment was opened."""
        self._fields.check_shapes()
        self._fields.set(b"")
        mujoco.mj_resetData(self._model, self._data)
        mujoco.mj_setState(self._model, self._data, self._first_state, INTEGRATION)
        for array, first in self._first_arrays:
            array[:] = first
        self._contacts.set(self._first_contacts)

    def get(self) -> SavedSimulation:
        """Return the present value."""
        mujoco.mj_getState(self._model, self._data, self._state, INTEGRATION)
        numbers = np.concatenate((self._state, *self._views)) if self._views else self._state
        contacts = self._contacts.get() if self._saves_contacts else b""
        # a mask of the numbers that are not zero, and these numbers: forces on bodies mostly are
        mask = numbers.view(np.uint64) != 0  # -0.0 is kept
        return np.packbits(mask).tobytes() + numbers[mask].tobytes(), contacts, self._fields.get()

    def set(self, saved: SavedSimulation) -> None:
        """Restore a value."""
        data, contacts, model = saved
        self._fields.set(model)
        mask_size = (self._size + 7) // 8
        mask = np.unpackbits(np.frombuffer(data, np.uint8, mask_size), count=self._size).view(bool)
        numbers = np.zeros(self._size)
        numbers[mask] = np.frombuffer(data, np.float64, offset=mask_size)
        mujoco.mj_setState(self._model, self._data, numbers[: self._num_state], INTEGRATION)
        if self._recomputes:
            mujoco.mj_step1(self._model, self._data)
        start = self._num_state
        for view in self._views:
            view[:] = numbers[start : start + view.size]
            start += view.size
        if self._saves_contacts:
            self._contacts.set(contacts)


def _arrays(data: object, names: Iterable[str]) -> list[np.ndarray]:
    """Return the arrays of a simulation that have elements. Versions of MuJoCo differ in their arrays."""
    arrays = [getattr(data, name, None) for name in names]
    return [array for array in arrays if isinstance(array, np.ndarray) and array.size]


def _is_read(array: str, names: Collection[str]) -> bool:
    """Return whether code that contains some names may read an array."""
    if array in names or (array == "sensordata" and "sensor" in names):
        return True
    kind, _, rest = array.partition("_")
    return rest in names and any(accessor in names for accessor in _ACCESSORS.get(kind, ()))


def model_bytes(model: object) -> NDArray[np.uint8]:
    """Return the content of a whole model."""
    content = np.empty(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, content)
    return content


def check_sleep(env: object, model: Any) -> None:
    """Check that no body can fall asleep."""
    if model.opt.enableflags & int(getattr(mujoco.mjtEnableBit, "mjENBL_SLEEP", 0)):
        raise UnsupportedEnvError(
            f"{type(env).__name__}: the model lets bodies sleep, and MuJoCo does not save which of them "
            'sleep; leave out <flag sleep="enable"/>'
        )


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


def _names_reached(values: Iterable[object]) -> set[str]:
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


def _objects_in(env: object) -> dict[str, Any]:
    """Return the objects that an unwrapped environment holds, and those of simulators, by path."""
    name = layer_name(env)
    roots = [Entry(f"{name}.{key}", value) for key, value in sorted(vars(env).items())]
    return dict(entries_of(roots, [env], enter_simulators=True))


# the simulations, what changed in models without one, and the attributes
_Value = tuple[list[SavedSimulation], list[bytes], bytes]


class SimulationsCodec(GraphCodec, Codec):
    """Saves the simulations of an environment, what it changed in their models, and its attributes."""

    how = "the physics, and a pickle of the attributes"

    def __init__(self, env: object, way: Way) -> None:
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

    def identity(self, env: object) -> list[Any]:
        """Return the module of the class, the whole models, and how the simulations are saved."""
        layouts = [simulation.layout for simulation in self._simulations]
        return [type(env).__module__, layouts, *map(model_bytes, self._models)]

    def before_reset(self, saved: object) -> None:
        super().before_reset(saved)
        for simulation in self._simulations:
            simulation.before_reset()
        for fields in self._other_fields:
            fields.set(b"")

    def get(self, saved: object) -> _Value:
        fields = [fields.get() for fields in self._other_fields]
        return [simulation.get() for simulation in self._simulations], fields, self.graph.save()

    def set(self, saved: object, value: _Value) -> None:
        simulations, changes, attributes = value
        self.graph.restore(attributes)
        for fields, change in zip(self._other_fields, changes, strict=True):
            fields.set(change)
        for simulation, physics in zip(self._simulations, simulations, strict=True):
            simulation.set(physics)

    def digests(self, saved: object) -> dict[str, bytes]:
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


def _check_forces(env: object, names: set[str]) -> None:
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
        # Before Gymnasium 1.4, infos of Humanoids are views of arrays of the simulator: they must be copied.
        has_views = GYMNASIUM < (1, 4) and str(_module_name(env)).startswith("humanoid")
        return FamilyCodec(partial(PhysicsCodec, is_fast=is_fast), is_verified=not has_views)
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


def _module_name(env: object) -> str | None:
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
        self._size = self._num_state = mujoco.mj_stateSize(self._model, INTEGRATION)
        self._views: list[tuple[np.ndarray, int, int]] = []
        for array in _arrays(self._data, saved_arrays(env)):
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

    def get(self, env: object) -> Any:
        mujoco.mj_getState(self._model, self._data, self._state, INTEGRATION)
        return np.concatenate(self._parts)

    def set(self, env: object, value: Any) -> None:
        mujoco.mj_setState(self._model, self._data, value[: self._num_state], INTEGRATION)
        for view, start, stop in self._views:
            view[:] = value[start:stop]

    def pack(self, values: Sequence[Any], records: np.ndarray) -> None:
        records["physics"] = np.concatenate(values).reshape(len(values), self._size)

    def unpack(self, records: np.ndarray) -> list[Any]:
        return list(records["physics"].copy())

    def observe(self, env: Any) -> Any:
        return env._get_obs() if self._observes else None
