"""Codecs of MuJoCo environments: one vector of physics, and for users' classes a pickle of attributes.

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
from gymnasium.envs.mujoco import MujocoEnv
from numpy.typing import NDArray

from planvec.codecs.base import Codec
from planvec.codecs.families import FamilyCodec, WrapperSupport
from planvec.codecs.generic import ADVICE, Attributes, GraphCodec, ObjectGraph, layer_name, references_of
from planvec.codecs.mujoco.fast_step import install_fast_step
from planvec.errors import UnsupportedEnvError

__all__ = ["PhysicsAndAttributesCodec", "PhysicsCodec", "codec_for_env"]

_STATE = int(mujoco.mjtState.mjSTATE_INTEGRATION)
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
"""Gymnasium's module -> the arrays of `MjData` that it reads before the simulation runs, or to observe."""
_OBSERVE_FORCES = ("ant", "humanoid", "humanoidstandup", "inverted_double_pendulum")
"""Modules whose observations contain forces or inertias.

The arrays behind them are larger than the observation, which is saved instead.
"""
_VERSIONS = ("v4", "v5")
_POSES = (
    *("xpos", "xquat", "xmat", "xipos", "xiquat", "ximat", "xanchor", "xaxis", "subtree_com"),
    *("geom_xpos", "geom_xquat", "geom_xmat", "site_xpos", "site_xquat", "site_xmat"),
    *("cam_xpos", "cam_xmat", "light_xpos", "light_xdir", "flexvert_xpos"),
    *("ten_length", "ten_wrapadr", "ten_wrapnum", "wrap_obj", "wrap_xpos"),
)
"""The arrays that a picture is drawn from."""
_DERIVED = (
    *_POSES,
    *("qacc", "act_dot", "sensordata", "cinert", "cvel", "cacc", "cfrc_int", "cfrc_ext", "energy"),
    *("actuator_length", "actuator_velocity", "actuator_force", "ten_velocity"),
    *("qfrc_bias", "qfrc_passive", "qfrc_actuator", "qfrc_constraint"),
    *("subtree_linvel", "subtree_angmom"),
)
"""The arrays that a class of a user may read before it simulates."""
_BEYOND_STATE = ("flexvert_lambda", "flexvert_conage")
"""The arrays that MuJoCo reads in the next step but leaves out of its state: contacts of soft bodies."""


def codec_for_env(env: Any, wrappers: WrapperSupport) -> FamilyCodec | None:
    """Return how the states of an environment are saved; see `FamilyModule`.

    A wrapper that planvec does not know may change the weights of the reward. So the fast step, which reads
    them once, is installed only without such wrappers.
    """
    if not isinstance(env, MujocoEnv):
        return None
    has_soft_bodies_or_plugins = env.model.nplugin or _num_flexes(env.model)
    if wrappers is WrapperSupport.MISSING or _module_name(env) is None or has_soft_bodies_or_plugins:
        return FamilyCodec(PhysicsAndAttributesCodec, is_verified=False)
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


def _num_flexes(model: Any) -> int:
    return int(getattr(model, "nflex", 0))


class PhysicsCodec(Codec):
    """Saves Gymnasium's own environments as `physics`, a float64 vector.

    The vector is `mjSTATE_INTEGRATION`, followed by the arrays of `MjData` that the environment reads before
    the simulation runs. With a render mode, the arrays that a picture is drawn from follow.

    Raises:
        UnsupportedEnvError: The model lets bodies sleep.
    """

    draws = False
    how = "one vector of physics"

    def __init__(self, env: Any) -> None:
        self._model, self._data = env.model, env.data
        self._observes = _module_name(env) not in _OBSERVE_FORCES
        if env.model.opt.enableflags & int(getattr(mujoco.mjtEnableBit, "mjENBL_SLEEP", 0)):
            raise UnsupportedEnvError(
                f"{type(env).__name__}: the model lets bodies sleep, and MuJoCo does not save which of them "
                'sleep; leave out <flag sleep="enable"/>'
            )
        self._num_state = mujoco.mj_stateSize(self._model, _STATE)
        self._size = self._num_state
        self._views: list[tuple[NDArray[Any], int, int]] = []
        for name in dict.fromkeys((*_BEYOND_STATE, *self._names_of_arrays(env))):
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

    def _names_of_arrays(self, env: Any) -> tuple[str, ...]:
        read = _ARRAYS_READ[str(_module_name(env))]
        return read if env.render_mode is None else (*read, *_POSES)

    def identity(self, env: Any) -> list[Any]:
        """Return the constants, the module of the class and the whole model."""
        model = np.empty(mujoco.mj_sizeModel(env.model), np.uint8)
        mujoco.mj_saveModel(env.model, None, model)
        return [*super().identity(env), type(env).__module__, model]

    def get(self, env: Any) -> Any:
        if self._views:
            mujoco.mj_getState(self._model, self._data, self._state, _STATE)
            return np.concatenate(self._parts)
        value = np.empty(self._size)
        mujoco.mj_getState(self._model, self._data, value, _STATE)
        return value

    def set(self, env: Any, value: Any) -> None:
        if self._views:
            mujoco.mj_setState(self._model, self._data, value[: self._num_state], _STATE)
            for view, start, stop in self._views:
                view[:] = value[start:stop]
        else:
            mujoco.mj_setState(self._model, self._data, value, _STATE)

    def pack(self, values: Sequence[Any], records: NDArray[Any]) -> None:
        records["physics"] = np.concatenate(values).reshape(len(values), self._size)

    def unpack(self, records: NDArray[Any]) -> list[Any]:
        return list(records["physics"].copy())

    def observe(self, env: Any) -> Any:
        return env._get_obs() if self._observes else None


def _fix_camera(env: Any) -> None:
    """Point a free camera at the model in the pose that its file describes.

    Gymnasium points it at the state that is rendered first, so pictures would depend on the worker.
    (`AddRenderObservation` renders in its constructor, after a reset without a seed.)
    """
    described = mujoco.MjData(env.model)
    mujoco.mj_kinematics(env.model, described)
    renderer = env.mujoco_renderer
    config = {"lookat": np.median(described.geom_xpos, axis=0), **(renderer.default_cam_config or {})}
    renderer.default_cam_config = config
    for viewer in getattr(renderer, "_viewers", {}).values():
        viewer.cam.lookat[:] = config["lookat"]


class PhysicsAndAttributesCodec(GraphCodec, PhysicsCodec):
    """Saves classes of users: the physics, and a pickle of the Python attributes.

    The model, the simulation, the renderer and views of their memory are left out of the pickle.

    Raises:
        UnsupportedEnvError: An attribute cannot be pickled.
    """

    draws = True

    def __init__(self, env: Any) -> None:
        PhysicsCodec.__init__(self, env)
        self.dtype = None
        self.constants = ("frame_skip",)
        vars(env).setdefault("_np_random", None)
        left_out = ("model", "data", "mujoco_renderer", "_np_random")
        names = [name for name in left_out if name in vars(env)]
        attributes = Attributes(env, layer_name(env), names, _points_into_mujoco)
        self.graph = ObjectGraph(attributes, references_of(env), env)

    def _names_of_arrays(self, env: Any) -> tuple[str, ...]:
        return _DERIVED

    def get(self, env: Any) -> tuple[NDArray[Any], bytes]:
        if env.model is not self._model or env.data is not self._data:
            raise UnsupportedEnvError(
                f"{type(env).__name__}: it replaces its model or data while it runs. {ADVICE}"
            )
        return PhysicsCodec.get(self, env), self.graph.save()

    def set(self, env: Any, value: tuple[NDArray[Any], bytes]) -> None:
        physics, attributes = value
        self.graph.restore(attributes)
        PhysicsCodec.set(self, env, physics)

    def digests(self, saved: Any) -> dict[str, bytes]:
        """Return a digest of each attribute that is saved, and one of the physics."""
        physics: bytes = PhysicsCodec.get(self, saved).tobytes()
        return {**self.graph.digests(), "the physics": physics}

    def observe(self, env: Any) -> Any:
        return None


def _points_into_mujoco(value: Any) -> bool:
    """Return whether a value is an accessor (`data.body("torso")`) or a view of an array of MuJoCo."""
    if isinstance(value, np.ndarray):
        owner: Any = value
        while isinstance(owner, np.ndarray):
            owner = owner.base
        return type(owner).__name__ == "PyCapsule"
    return type(value).__module__.partition(".")[0] == "mujoco" and not isinstance(value, mujoco.MjData)
