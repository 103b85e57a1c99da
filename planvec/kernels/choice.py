"""Knows which classes of environments have a kernel, and opens it. It imports numba only then."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from planvec.kernels.base import OpenedEnv
from planvec.kernels.own.declared import own_kernel_of, registered_kernels
from planvec.rows import BatchKernel

_PURE = ("gymnasium.envs.classic_control.", "gymnasium.envs.toy_text.")
_MUJOCO = "gymnasium.envs.mujoco."
# class of Gymnasium -> its kernel, or its task for MuJoCo: a module of `planvec.kernels`, and the name there
_KERNELS = {
    "AcrobotEnv": ("gymnasium.classic_control", "ACROBOT"),
    "BlackjackEnv": ("gymnasium.toy_text", "BLACKJACK"),
    "CartPoleEnv": ("gymnasium.classic_control", "CART_POLE"),
    "CliffWalkingEnv": ("gymnasium.toy_text", "GRID"),
    "Continuous_MountainCarEnv": ("gymnasium.classic_control", "CONTINUOUS_MOUNTAIN_CAR"),
    "FrozenLakeEnv": ("gymnasium.toy_text", "GRID"),
    "MountainCarEnv": ("gymnasium.classic_control", "MOUNTAIN_CAR"),
    "PendulumEnv": ("gymnasium.classic_control", "PENDULUM"),
    "TaxiEnv": ("gymnasium.toy_text", "TAXI"),
    "AntEnv": ("mujoco.tasks", "ANT"),
    "HalfCheetahEnv": ("mujoco.tasks", "HALF_CHEETAH"),
    "HopperEnv": ("mujoco.tasks", "HOPPER"),
    "HumanoidEnv": ("mujoco.tasks", "HUMANOID"),
    "HumanoidStandupEnv": ("mujoco.tasks", "HUMANOID_STANDUP"),
    "InvertedPendulumEnv": ("mujoco.tasks", "INVERTED_PENDULUM"),
    "PusherEnv": ("mujoco.tasks", "PUSHER"),
    "SwimmerEnv": ("mujoco.tasks", "SWIMMER"),
    "Walker2dEnv": ("mujoco.tasks", "WALKER"),
}


class Costs(NamedTuple):
    """Tells when a kernel saves time."""

    load: float  # seconds that loading and proving it takes, without the import of numba
    step: float  # seconds of one step of the environment itself


def costs_of(env_class: type) -> Costs:
    """Return the costs of the kernel of a class that has one."""
    return Costs(1.5, 5e-5) if env_class.__module__.startswith(_MUJOCO) else Costs(0.25, 5e-6)


def has_kernel(env_class: object) -> bool:
    """Return whether there is a kernel for exactly this class. A subclass may step otherwise."""
    module, name = getattr(env_class, "__module__", None) or "", getattr(env_class, "__name__", "")
    return has_own_kernel(env_class) or is_harmless(module, name) or _is_mujoco(module, name)


def is_harmless(module: str, name: str) -> bool:
    """Return whether a class with a kernel is in pure Python and of Gymnasium: it cannot crash or hang."""
    return f"{module}.".startswith(_PURE) and name in _KERNELS


def _is_mujoco(module: str, name: str) -> bool:
    """Return whether there is a kernel for a class of MuJoCo."""
    return module.startswith(_MUJOCO) and module.endswith("_v5") and name in _KERNELS


def may_have_kernel(entry_point: str) -> bool:
    """Return whether the class that an entry point names may have a kernel, without importing it."""
    module, _, name = entry_point.partition(":")
    is_own = any(own.__name__ == name for own in registered_kernels().kernels)
    return is_own or is_harmless(module, name) or _is_mujoco(module, name)


def has_own_kernel(env_class: object) -> bool:
    """Return whether a user has declared a kernel for exactly this class."""
    return own_kernel_of(env_class) is not None


def open_kernel(
    env: gymnasium.Env[Any, Any], dtype: np.dtype, time_limit: int | None, num_threads: int
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
    module, name = _KERNELS[env_class.__name__]
    declared = getattr(import_module(f"planvec.kernels.{module}"), name)
    if _is_mujoco(env_class.__module__, env_class.__name__):
        from planvec.kernels.mujoco.stepper import MujocoKernel

        return MujocoKernel(declared, opened)
    from planvec.kernels.compiled import CompiledKernel

    return CompiledKernel(declared, opened)
