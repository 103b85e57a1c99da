"""Defines `TaskType`, for which the loops over rows are compiled. See `planvec.kernels.kernel_type`."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.datamodel.registry import register_default
from numba.core.pythonapi import NativeValue
from numba.extending import unbox

from planvec.kernels.digests import code_digest
from planvec.kernels.kernel_type import accessor, generated
from planvec.kernels.mujoco.compiling import inner
from planvec.kernels.mujoco.task import Task

# Name of a `TaskType` -> its task. A type that comes from numba's cache holds no functions.
_tasks: dict[str, Task] = {}


class TaskType(types.Type):
    """Stands for a task in the signatures of loops. Its values are empty."""

    def __init__(self, task: Task) -> None:
        digest = code_digest(task.before, task.outcome, task.observe)
        super().__init__(name=f"planvec.Task({digest})")
        _tasks[self.name] = task

    @property
    def task(self) -> Task:
        """The task."""
        return _tasks[self.name]


register_default(TaskType)(models.OpaqueModel)


@unbox(TaskType)  # type: ignore[untyped-decorator]
def _unbox(kind: Any, value: Any, c: Any) -> NativeValue:
    """Ignore the Python value."""
    return NativeValue(cgutils.get_null_value(ir.IntType(8).as_pointer()))


def _calling(name: str, arguments: str, function: Any) -> Any:
    """Return a function that calls a function of a task with all arguments but the first."""
    compiled = inner(function)
    rest = arguments.partition(", ")[2]
    return generated(name, arguments, [f"return function({rest})"], function=compiled)


@accessor("kernel, arrays, constants")
def before(kernel: TaskType) -> Any:
    """Return what a task measures before the simulation."""
    return _calling("before", "kernel, arrays, constants", kernel.task.before)


@accessor("kernel, arrays, constants, start, action, extras")
def outcome(kernel: TaskType) -> Any:
    """Return the reward and whether the state is terminal."""
    return _calling("outcome", "kernel, arrays, constants, start, action, extras", kernel.task.outcome)


@accessor("kernel, arrays, constants, observation")
def observe(kernel: TaskType) -> Any:
    """Write the observation."""
    return _calling("observe", "kernel, arrays, constants, observation", kernel.task.observe)
