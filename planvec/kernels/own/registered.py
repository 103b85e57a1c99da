"""The kernels that users have declared in this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planvec.kernels.own.declared import OwnKernel

_kernels: dict[type, OwnKernel] = {}


@dataclass(frozen=True, slots=True)
class RegisteredKernels:
    """Holds the kernels that users have declared, to pass them on to other processes."""

    kernels: Mapping[type, OwnKernel]  # environment class -> its kernel

    def install(self) -> None:
        """Register all of them in this process."""
        _kernels.update(self.kernels)


def register_kernel(env_class: type, kernel: OwnKernel) -> None:
    """Use a kernel for exactly this class from now on."""
    _kernels[env_class] = kernel


def own_kernel_of(env_class: Any) -> OwnKernel | None:
    """Return the kernel that a user has declared for exactly this class."""
    return _kernels.get(env_class)


def registered_kernels() -> RegisteredKernels:
    """Return a copy of what users have declared so far."""
    return RegisteredKernels(dict(_kernels))
