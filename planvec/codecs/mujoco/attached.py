"""A codec for environments of any class that hold MuJoCo simulations.

The simulations are found among the objects that the environment holds. Everything else is a pickle of the
attributes, in which the objects of MuJoCo are referred to by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import mujoco
import numpy as np

from planvec.codecs.base import Codec
from planvec.codecs.generic import (
    Attributes,
    Entry,
    GraphCodec,
    LibraryMemory,
    ObjectGraph,
    entries_of,
    is_simulator_module,
    is_simulator_object,
)
from planvec.codecs.layers import layer_name, layers_by_name
from planvec.codecs.mujoco.camera import fix_camera
from planvec.codecs.mujoco.model_fields import ModelFields
from planvec.codecs.mujoco.names import names_in_code
from planvec.codecs.mujoco.simulation import SavedSimulation, Simulation, Way, check_sleep, model_bytes
from planvec.errors import UnsupportedEnvError

_READ, _ALL = Way(saves_all=False, recomputes=False), Way(saves_all=True, recomputes=False)
_READ_AGAIN, _ALL_AGAIN = Way(saves_all=False, recomputes=True), Way(saves_all=True, recomputes=True)


def makers_of(env: Any) -> tuple[Callable[[Any], Codec], ...]:
    """Return makers of codecs for an environment, the cheapest states first; () if it holds no simulation."""
    # Which one is exact depends on what the environment reads, and is found out by verification.
    objects = _objects_in(env)
    if not any(isinstance(value, mujoco.MjData) for value in objects.values()):
        return ()
    is_dm_control = any(type(value).__module__.startswith("dm_control.") for value in objects.values())
    ways = (_READ_AGAIN, _ALL_AGAIN, _ALL) if is_dm_control else (_READ, _ALL, _READ_AGAIN, _ALL_AGAIN)
    return tuple(partial(SimulationsCodec, way=way) for way in ways)


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
        names = names_in_code([env, *objects.values()])
        is_rendered = getattr(env, "render_mode", None) is not None
        if is_rendered and hasattr(env, "mujoco_renderer"):
            fix_camera(env)
        _check_forces(env, names)
        data = {path: value for path, value in objects.items() if isinstance(value, mujoco.MjData)}
        for item in data.values():
            check_sleep(env, item.model)
        self._simulations = [Simulation(item, names, way, is_rendered) for item in data.values()]
        self._models = _distinct(objects.values(), [item.model for item in data.values()])
        with_data = {id(item.model) for item in data.values()}
        self._other_fields = [ModelFields(model) for model in self._models if id(model) not in with_data]
        extended = {path: value for path, value in objects.items() if _is_extended(value)}
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


def _is_extended(value: Any) -> bool:
    """Return whether an object of a simulator has attributes of a class that is defined elsewhere."""
    has_own_class = not is_simulator_module(type(value).__module__)
    return has_own_class and is_simulator_object(value) and hasattr(value, "__dict__")


def _distinct(objects: Iterable[Any], models: list[Any]) -> list[Any]:
    """Return the models of simulations and those among other objects, each once."""
    found = [*models, *(value for value in objects if isinstance(value, mujoco.MjModel))]
    return list({id(model): model for model in found}.values())


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
