"""Compiled steps of environments, over whole batches.

A kernel is a step written as functions of numbers (`base.Kernel`). `step_loop` and `rollout_loop` step and
roll out batches with it, `access` knows where the numbers of a state are, `random` draws NumPy's random
numbers, and `gymnasium/` holds the kernels that planvec ships. All of these import numba; this entrance does
not. `own/` holds the kernels that users declare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from planvec.kernels.choice import has_kernel, has_own_kernel, open_kernel
from planvec.kernels.own.decorators import batch_kernel, kernel
from planvec.kernels.own.registered import RegisteredKernels, registered_kernels
from planvec.lazy import lazy_names

if TYPE_CHECKING:
    from planvec.kernels.compiled import CompiledKernel
    from planvec.kernels.own.batch import BatchKernel

__all__ = [
    "BatchKernel",
    "CompiledKernel",
    "RegisteredKernels",
    "batch_kernel",
    "has_kernel",
    "has_own_kernel",
    "kernel",
    "open_kernel",
    "registered_kernels",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {"BatchKernel": "planvec.kernels.own.batch", "CompiledKernel": "planvec.kernels.compiled"},
    )
