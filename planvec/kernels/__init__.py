"""Compiled steps of environments, over whole batches.

A kernel is a step written as functions of numbers (`base.Kernel`). `step_loop` and `rollout_loop` step and
roll out batches with it, `access` knows where the numbers of a state are, `random` draws NumPy's random
numbers, and `gymnasium/` holds the kernels that planvec ships. All of these import numba; this entrance does
not. `own/` holds the kernels that users declare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from planvec.kernels.base import BatchKernel
from planvec.kernels.choice import (
    costs_of,
    has_kernel,
    has_own_kernel,
    is_harmless,
    may_have_kernel,
    open_kernel,
)
from planvec.kernels.originals import uses_of_steps
from planvec.kernels.own.decorators import batch_kernel, kernel
from planvec.kernels.own.registered import RegisteredKernels, registered_kernels
from planvec.kernels.uses import Uses
from planvec.lazy import lazy_names

if TYPE_CHECKING:
    from planvec.kernels.bound_loop import BoundLoop, compile_loop
    from planvec.kernels.buffers import bytes_of
    from planvec.kernels.compiled import CompiledKernel
    from planvec.kernels.decorator import jit
    from planvec.kernels.digests import code_digest
    from planvec.kernels.kernel_type import CodeType
    from planvec.kernels.memory import copy_bytes, load
    from planvec.kernels.pointers import Pointer, value_at
    from planvec.kernels.random import next_uint64
    from planvec.kernels.rollout_loop import roll_rows
    from planvec.kernels.step_loop import step_rows
    from planvec.kernels.threads import Stop, run_together

__all__ = [
    "BatchKernel",
    "BoundLoop",
    "CodeType",
    "CompiledKernel",
    "Pointer",
    "RegisteredKernels",
    "Stop",
    "Uses",
    "batch_kernel",
    "bytes_of",
    "code_digest",
    "compile_loop",
    "copy_bytes",
    "costs_of",
    "has_kernel",
    "has_own_kernel",
    "is_harmless",
    "jit",
    "kernel",
    "load",
    "may_have_kernel",
    "next_uint64",
    "open_kernel",
    "registered_kernels",
    "roll_rows",
    "run_together",
    "step_rows",
    "uses_of_steps",
    "value_at",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "BoundLoop": "planvec.kernels.bound_loop",
            "CodeType": "planvec.kernels.kernel_type",
            "CompiledKernel": "planvec.kernels.compiled",
            "Pointer": "planvec.kernels.pointers",
            "Stop": "planvec.kernels.threads",
            "bytes_of": "planvec.kernels.buffers",
            "code_digest": "planvec.kernels.digests",
            "compile_loop": "planvec.kernels.bound_loop",
            "copy_bytes": "planvec.kernels.memory",
            "jit": "planvec.kernels.decorator",
            "load": "planvec.kernels.memory",
            "next_uint64": "planvec.kernels.random",
            "roll_rows": "planvec.kernels.rollout_loop",
            "run_together": "planvec.kernels.threads",
            "step_rows": "planvec.kernels.step_loop",
            "value_at": "planvec.kernels.pointers",
        },
    )
