"""Knows which classes of environments have a kernel, without importing numba."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from planvec.kernels.own.registered import own_kernel_of, registered_kernels

if TYPE_CHECKING:
    from planvec.kernels.compiled import CompiledKernel
    from planvec.kernels.own.batch import BatchKernel

__all__ = ["has_kernel", "has_own_kernel", "is_shipped", "may_have_kernel", "open_kernel"]

_GYMNASIUM = ("gymnasium.envs.classic_control.", "gymnasium.envs.toy_text.")
_NAMES = {
    "AcrobotEnv",
    "BlackjackEnv",
    "CartPoleEnv",
    "CliffWalkingEnv",
    "Continuous_MountainCarEnv",
    "FrozenLakeEnv",
    "MountainCarEnv",
    "PendulumEnv",
    "TaxiEnv",
}
"""Names of the classes of Gymnasium for which planvec ships a kernel."""


def has_kernel(env_class: Any) -> bool:
    """Return whether there is a kernel for exactly this class. A subclass may step otherwise."""
    return has_own_kernel(env_class) or is_shipped(env_class)


def is_shipped(env_class: Any) -> bool:
    """Return whether planvec ships a kernel for exactly this class."""
    module = getattr(env_class, "__module__", None) or ""
    return module.startswith(_GYMNASIUM) and getattr(env_class, "__name__", "") in _NAMES


def may_have_kernel(entry_point: str) -> bool:
    """Return whether the class that an entry point names may have a kernel, without importing it."""
    module, _, name = entry_point.partition(":")
    is_of_gymnasium = f"{module}.".startswith(_GYMNASIUM) and name in _NAMES
    return is_of_gymnasium or any(own.__name__ == name for own in registered_kernels().kernels)


def has_own_kernel(env_class: Any) -> bool:
    """Return whether a user has declared a kernel for exactly this class."""
    return own_kernel_of(env_class) is not None


def open_kernel(
    env: gymnasium.Env[Any, Any], dtype: np.dtype[Any], time_limit: int | None, num_threads: int
) -> CompiledKernel | BatchKernel:
    """Compile the kernel of an environment whose class has one, or load it from the cache.

    Args:
        env: The environment, wrappers included.
        dtype: The dtype of one state.
        time_limit: Steps after which an episode is truncated; None: no limit.
        num_threads: Number of threads that step a batch.

    Raises:
        ValueError: The kernel cannot be used for this environment.
    """
    own = own_kernel_of(type(env.unwrapped))
    if own is not None and own.is_batched:
        from planvec.kernels.own.batch import BatchKernel

        return BatchKernel(own, env, dtype, time_limit)
    # Here, since numba takes long to import.
    if own is not None:
        from planvec.kernels.own.compiled import OwnCompiledKernel

        return OwnCompiledKernel(own, env, dtype, time_limit, num_threads)
    from planvec.kernels.compiled import CompiledKernel
    from planvec.kernels.gymnasium import GYMNASIUM_KERNELS

    kernel = GYMNASIUM_KERNELS[type(env.unwrapped)]
    return CompiledKernel(kernel, env, dtype, time_limit, num_threads)
