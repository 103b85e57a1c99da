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
from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from planvec.codecs.base import Codec
from planvec.codecs.families import FamilyCodec, WrapperSupport
from planvec.codecs.mujoco.attached import makers_of
from planvec.codecs.mujoco.camera import fix_camera
from planvec.codecs.mujoco.fast_step import install_fast_step
from planvec.codecs.mujoco.simulation import BEYOND_STATE, INTEGRATION, POSES, check_sleep, model_bytes

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
    # A wrapper that planvec does not know may change the weights of the reward. So the fast step, which reads
    # them once, is installed only without such wrappers.
    is_known = _module_name(env) is not None and not (env.model.nplugin or _num_flexes(env.model))
    if not is_known or wrappers is WrapperSupport.MISSING:
        makers = makers_of(env)
        return FamilyCodec(makers[0], False, makers[1:]) if makers else None
    make = _codec_with_fast_step if wrappers is WrapperSupport.BUILT_IN else PhysicsCodec
    return FamilyCodec(make, is_verified=True)


def _codec_with_fast_step(env: Any) -> Codec:
    """Make the codec of an environment and install its faster step, if it has one."""
    codec = PhysicsCodec(env)
    codec.step_without_info = install_fast_step(env)
    return codec


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


def _num_flexes(model: Any) -> int:
    return int(getattr(model, "nflex", 0))


class PhysicsCodec(Codec):
    """Saves Gymnasium's own environments as `physics`, a float64 vector."""

    # The vector is `mjSTATE_INTEGRATION`, followed by the arrays of `MjData` that the environment reads
    # before the simulation runs. With a render mode, the arrays that a picture is drawn from follow.

    draws = False
    how = "one vector of physics"

    def __init__(self, env: Any) -> None:
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
            fix_camera(env)
        parameters = inspect.signature(type(env).__init__).parameters
        self.constants = ("frame_skip", *(f"_{name}" for name in parameters if hasattr(env, f"_{name}")))

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
