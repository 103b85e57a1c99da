"""Knows which classes of environments have a kernel, and opens it. It imports numba only then."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from planvec.kernels.base import OpenedEnv
from planvec.kernels.own.declared import own_kernel_of, registered_kernels
from planvec.rows import BatchKernel

_GYMNASIUM = ("gymnasium.envs.classic_control.", "gymnasium.envs.toy_text.")
# class of Gymnasium -> its kernel: a module of `planvec.kernels.gymnasium`, and the name there
_NUMERIC = {
    "AcrobotEnv": ("classic_control", "ACROBOT"),
    "BlackjackEnv": ("toy_text", "BLACKJACK"),
    "CartPoleEnv": ("classic_control", "CART_POLE"),
    "CliffWalkingEnv": ("toy_text", "GRID"),
    "Continuous_MountainCarEnv": ("classic_control", "CONTINUOUS_MOUNTAIN_CAR"),
    "FrozenLakeEnv": ("toy_text", "GRID"),
    "MountainCarEnv": ("classic_control", "MOUNTAIN_CAR"),
    "PendulumEnv": ("classic_control", "PENDULUM"),
    "TaxiEnv": ("toy_text", "TAXI"),
}
_MUJOCO = "gymnasium.envs.mujoco."
# the same for MuJoCo: module and class -> its task in `planvec.kernels.mujoco.tasks`
_TASKS = {
    "ant_v5.AntEnv": "ANT",
    "half_cheetah_v5.HalfCheetahEnv": "HALF_CHEETAH",
    "hopper_v5.HopperEnv": "HOPPER",
    "humanoid_v5.HumanoidEnv": "HUMANOID",
    "humanoidstandup_v5.HumanoidStandupEnv": "HUMANOID_STANDUP",
    "inverted_pendulum_v5.InvertedPendulumEnv": "INVERTED_PENDULUM",
    "pusher_v5.PusherEnv": "PUSHER",
    "swimmer_v5.SwimmerEnv": "SWIMMER",
    "walker2d_v5.Walker2dEnv": "WALKER",
}


class Costs(NamedTuple):
    """Tells when a kernel saves time."""

    load: float  # seconds that loading and proving it takes, without the import of numba
    step: float  # seconds of one step of the environment itself


def costs_of(env_class: type) -> Costs:
    """Return the costs of the kernel of a class that has one."""
    return Costs(1.5, 5e-5) if env_class.__module__.startswith(_MUJOCO) else Costs(0.25, 5e-6)


def has_kernel(env_class: Any) -> bool:
    """Return whether there is a kernel for exactly this class. A subclass may step otherwise."""
    module, name = getattr(env_class, "__module__", None) or "", getattr(env_class, "__name__", "")
    return has_own_kernel(env_class) or is_harmless(module, name) or _is_mujoco(module, name)


def is_harmless(module: str, name: str) -> bool:
    """Return whether a class with a kernel is in pure Python and of Gymnasium: it cannot crash or hang."""
    return f"{module}.".startswith(_GYMNASIUM) and name in _NUMERIC


def _is_mujoco(module: str, name: str) -> bool:
    """Return whether there is a kernel for a class of MuJoCo."""
    return module.startswith(_MUJOCO) and f"{module.removeprefix(_MUJOCO)}.{name}" in _TASKS


def may_have_kernel(entry_point: str) -> bool:
    """Return whether the class that an entry point names may have a kernel, without importing it."""
    module, _, name = entry_point.partition(":")
    is_own = any(own.__name__ == name for own in registered_kernels().kernels)
    return is_own or is_harmless(module, name) or _is_mujoco(module, name)


def has_own_kernel(env_class: Any) -> bool:
    """Return whether a user has declared a kernel for exactly this class."""
    return own_kernel_of(env_class) is not None


def open_kernel(
    env: gymnasium.Env[Any, Any], dtype: np.dtype[Any], time_limit: int | None, num_threads: int
) -> BatchKernel:
    """Compile the kernel of an environment whose class has one, or load it from the cache."""
    # `dtype`: The dtype of one state.
    opened, env_class = OpenedEnv(env, dtype, time_limit, num_threads), type(env.unwrapped)
    own = own_kernel_of(env_class)
    if own is not None and own.is_batched:
        from planvec.kernels.own.batch import OwnBatchKernel

        return OwnBatchKernel(own, opened)
    # Here, since numba takes long to import.
    if own is not None:
        from planvec.kernels.own.compiled import OwnCompiledKernel

        return OwnCompiledKernel(own, opened)
    if _is_mujoco(env_class.__module__, env_class.__name__):
        from planvec.kernels.mujoco import stepper, tasks

        name = _TASKS[f"{env_class.__module__.removeprefix(_MUJOCO)}.{env_class.__name__}"]
        return stepper.MujocoKernel(getattr(tasks, name), opened)
    from planvec.kernels.compiled import CompiledKernel

    module, name = _NUMERIC[env_class.__name__]
    kernel = getattr(import_module(f"planvec.kernels.gymnasium.{module}"), name)
    return CompiledKernel(kernel, opened)
