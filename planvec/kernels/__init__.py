"""Compiled steps of environments, over whole batches.

A kernel is a step written as functions of numbers (`base.Kernel`). `step_loop` and `rollout_loop` step and
roll out batches with it, `access` knows where the numbers of a state are, `random` draws NumPy's random
numbers, and `gymnasium/` holds the kernels that planvec ships. All of these import numba; this entrance does
not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from planvec.kernels.base import BatchKernel
from planvec.kernels.choice import costs_of, has_kernel, open_kernel
from planvec.lazy import lazy_names

if TYPE_CHECKING:
    from planvec.kernels.compiled import CompiledKernel

__all__ = ["BatchKernel", "CompiledKernel", "costs_of", "has_kernel", "open_kernel"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, {"CompiledKernel": "planvec.kernels.compiled"})
