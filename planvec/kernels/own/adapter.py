"""Turns the functions of a user into a `Kernel`: converts their arguments and results.

numbers of all fields in one tuple   <-->   one entry for each attribute: a number, a tuple, an array
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import types

from planvec.kernels.base import Kernel
from planvec.kernels.layout import Field, Layout
from planvec.kernels.own.compiling import check_observe, check_step, compile_function
from planvec.kernels.own.declared import OBSERVE_ARGUMENTS, STEP_ARGUMENTS, OwnKernel, arguments_of
from planvec.kernels.own.generator import GENERATOR_TYPE, as_generator

# for each attribute how many numbers a tuple of them has; None for a number; 0 for an array
_Sizes = tuple[int | None, ...]


def kernel_of(own: OwnKernel, layout: Layout, shapes: list[tuple[int, ...]], constants: Any) -> Kernel:
    """Return a kernel that calls the functions of a user."""
    # `shapes`: The shape of each attribute; () for a number.
    sizes = tuple(
        0 if field.is_array else field.size if shape else None
        for field, shape in zip(layout.fields, shapes, strict=True)
    )
    given = {
        "state": types.Tuple(list(map(_type_of, layout.fields, sizes))),
        "action": _action_type(layout),
        "constants": numba.typeof(constants),
        "random": GENERATOR_TYPE,
    }
    step, returned = compile_function(own, own.step, "step", STEP_ARGUMENTS, given)
    check_step(own, returned, given["state"])
    return Kernel(
        fields=own.state,
        step=_flat_step(own, layout, step, sizes),
        observe=_flat_observe(own, layout, sizes, given),
        constants=lambda env: constants,
        refuses=_flat_refuses(layout, sizes),
        columns=None if own.infos is None else own.columns,
    )


def _scalar(field: Field) -> Any:
    """Return the type of the numbers of a field in compiled code."""
    return numba.from_dtype(np.dtype(field.dtype))


def _type_of(field: Field, size: int | None) -> Any:
    """Return the type of an entry of the state."""
    if size is None:
        return _scalar(field)
    return types.UniTuple(_scalar(field), size) if size else _array(field)


def _array(field: Field) -> Any:
    """Return the type of a field of many numbers."""
    return types.Array(_scalar(field), 1, "C", aligned=False)


def _action_type(layout: Layout) -> Any:
    """Return the type of the action."""
    action = layout.action
    if layout.has_scalar_action:
        return _scalar(action)
    if action.is_array:
        return types.UniTuple(_array(action), 1)
    return types.UniTuple(_scalar(action), action.size)


def _flat_step(own: OwnKernel, layout: Layout, step: Any, sizes: _Sizes) -> Callable[..., Any]:
    """Return the step in the form of `Kernel.step`. Arrays are written into those of the state."""
    # It raises an error if a result is not finite: Python raises errors where compiled code returns infinity.
    # Then the environment steps the batch.
    given = {"state": _nested(sizes), "action": "action", "constants": "constants"}
    given["random"] = "as_generator(random)"
    call = ", ".join(given[name] for name in arguments_of(own.step, "step", STEP_ARGUMENTS))
    lines, writes, entries, at = [f"results = function({call})"], list[str](), list[str](), 0
    for index, size in enumerate(sizes):
        if size == 0:
            # All are copied before one is written, since a result may be an array of the state.
            lines.append(f"array_{index} = results[0][{index}].copy()")
            writes.append(f"state[{at}][:] = array_{index}")
            entries.append(f"state[{at}]")
        elif size is None:
            entries.append(f"results[0][{index}]")
        else:
            entries += [f"results[0][{index}][{number}]" for number in range(size)]
        at += size or 1
    extra = "0.0" if own.infos is None else "results[3]"
    error = "raise ValueError('a result is not finite')"
    lines += writes
    lines += [
        f"after = ({', '.join(entries)},)",
        *_if_not_finite(layout, sizes, "after", error),
        "if not isfinite(results[1]):",
        f"    {error}",
        f"return after, results[1], results[2], {extra}",
    ]
    names = {"function": step, "as_generator": as_generator, "isfinite": math.isfinite}
    return _function("step", "state, action, constants, random", lines, **names)


def _flat_observe(own: OwnKernel, layout: Layout, sizes: _Sizes, given: dict[str, Any]) -> Callable[..., Any]:
    """Return `observe` in the form of `Kernel.observe`."""
    num_numbers = sum(field.size for field in layout.observation)
    if own.observe is None:
        if 0 in sizes or sum(size or 1 for size in sizes) != num_numbers:
            raise ValueError(
                f"observe of {own.owner}: expected a function, since the {num_numbers} numbers of an "
                "observation are not those of the state, got None"
            )
        return _function("observe", "state, constants", ["return state"])
    observe, returned = compile_function(own, own.observe, "observe", OBSERVE_ARGUMENTS, given)
    check_observe(own, returned, num_numbers)
    arguments = {"state": _nested(sizes), "constants": "constants"}
    call = ", ".join(arguments[name] for name in arguments_of(own.observe, "observe", OBSERVE_ARGUMENTS))
    result = "result" if isinstance(returned, types.BaseTuple) else "(result,)"
    lines = [f"result = function({call})", f"return {result}"]
    return _function("observe", "state, constants", lines, function=observe)


def _flat_refuses(layout: Layout, sizes: _Sizes) -> Callable[..., Any]:
    """Return `Kernel.refuses`: numbers that are not finite are left to the environment, which may raise."""
    lines = [*_if_not_finite(layout, sizes, "state", "return True"), "return False"]
    return _function("refuses", "state, ended, constants", lines, isfinite=math.isfinite)


def _if_not_finite(layout: Layout, sizes: _Sizes, state: str, then: str) -> list[str]:
    """Return lines that do something if a number of a state, in the form of kernels, is not finite."""
    lines, tests, at = list[str](), list[str](), 0
    for field, size in zip(layout.fields, sizes, strict=True):
        if np.dtype(field.dtype).kind == "f":
            if size == 0:
                lines += [f"for number in {state}[{at}]:", "    if not isfinite(number):", f"        {then}"]
            else:
                tests += [f"not isfinite({state}[{at + number}])" for number in range(size or 1)]
        at += size or 1
    return [*lines, f"if {' or '.join(tests)}:", f"    {then}"] if tests else lines


def _function(name: str, arguments: str, lines: list[str], **names: Any) -> Callable[..., Any]:
    """Return a function with a body of generated lines."""
    scope: dict[str, Any] = dict(names)
    body = "\n".join(f"    {line}" for line in lines)
    exec(f"def {name}({arguments}):\n{body}", scope)
    made: Callable[..., Any] = scope[name]
    return made


def _nested(sizes: _Sizes) -> str:
    """Return an expression for the state in the form for users, from `state` in the form of kernels."""
    entries, index = [], 0
    for size in sizes:
        if size:
            entries.append(f"({', '.join(f'state[{index + number}]' for number in range(size))},)")
        else:
            entries.append(f"state[{index}]")
        index += size or 1
    return f"({', '.join(entries)},)"
