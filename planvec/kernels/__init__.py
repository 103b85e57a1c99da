"""Compiled steps of environments, over whole batches.

    base        what a kernel is (`Kernel`), and where the numbers of a state lie
    choice      which classes have one: a new kernel is entered there, too
    gymnasium, mujoco    the kernels that planvec ships; `own`: those that users declare
    compiled    a kernel over batches; `step_loop`: the loop over its rows
    random      NumPy's random numbers, compiled
    digests     of code and classes

Most modules import numba; this entrance, `base`, `choice` and `own.declared` do not. Whether a kernel is
exact is proved by `planvec.stepping.kernel_proof`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

# Hands on the names that other folders use.
# ruff: noqa: F401
# mypy: implicit-reexport
from planvec.kernels.choice import (
    costs_of,
    has_kernel,
    has_own_kernel,
    is_harmless,
    may_have_kernel,
    open_kernel,
)
from planvec.kernels.digests import class_digest
from planvec.kernels.own.declared import batch_kernel, kernel, registered_kernels
from planvec.lazy import lazy_names
from planvec.rows import BatchKernel

if TYPE_CHECKING:
    from planvec.kernels.base import bytes_of
    from planvec.kernels.compiled import CompiledKernel
    from planvec.kernels.digests import code_digest
    from planvec.kernels.kernel_type import CodeType, Pointer, compile_loop, value_at
    from planvec.kernels.memory import copy_bytes, jit, load
    from planvec.kernels.random import NUM_WORDS, next_uint64
    from planvec.kernels.step_loop import run_rows
    from planvec.kernels.threads import Stop, run_together

_LAZY = {
    "base": "bytes_of",
    "compiled": "CompiledKernel",
    "digests": "code_digest",
    "kernel_type": "CodeType Pointer compile_loop value_at",
    "memory": "copy_bytes jit load",
    "random": "NUM_WORDS next_uint64",
    "step_loop": "run_rows",
    "threads": "Stop run_together",
}
if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__, {name: f"{__name__}.{module}" for module, names in _LAZY.items() for name in names.split()}
    )
