"""Defines `OwnCompiledKernel`, a kernel that a user has declared for numbers and numba has compiled."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.core.errors import NumbaError
from numba.extending import intrinsic, make_attribute_wrapper, models, overload_method, register_model

from planvec.kernels.base import Field, Kernel, Layout, OpenedEnv, layout_of
from planvec.kernels.compiled import CompiledKernel
from planvec.kernels.digests import code_digest, has_full_digest
from planvec.kernels.kernel_type import generated
from planvec.kernels.own.declared import (
    OBSERVE_ARGUMENTS,
    STEP_ARGUMENTS,
    KernelConstants,
    OwnKernel,
    arguments_of,
    python_function,
)
from planvec.kernels.random import integer, random, standard_normal, uniform

# -- Compiles the functions of a user, and checks the types of their results.
#
# The messages name the function, what was expected and what came, where numba's would show its own code.


def compile_function(
    own: OwnKernel, function: object, name: str, allowed: tuple[str, ...], given: dict[str, Any]
) -> tuple[Any, Any]:
    """Compile a function. Returns it, and the type of its result."""
    # A division by zero and an index that is out of bounds raise errors, as they do in Python: then the
    # environment steps the batch itself.
    inner = python_function(function)
    compiled = njit(inner, boundscheck=True)
    arguments = tuple(given[argument] for argument in arguments_of(inner, name, allowed))
    try:
        compiled.compile(arguments)
    except NumbaError as error:
        code = inner.__code__
        raise ValueError(
            f"numba cannot compile {name} of {own.owner} ({code.co_filename}, line {code.co_firstlineno}): "
            f"{_reason(str(error))}. Use numbers, tuples, and functions of math and numpy, or declare a "
            "NumPy function of whole batches with planvec.batch_kernel, which is not compiled"
        ) from error
    return compiled, compiled.overloads[arguments].signature.return_type


def _reason(text: str) -> str:
    """Return the lines of numba's message that tell what is wrong, as one line."""
    lines = [line.strip() for line in text.splitlines()]
    said = [
        line
        for line in lines
        if line and not line.startswith(("Failed in", "During:", "File ", "There are", "-", "<source"))
    ]
    shown = [*said[:3], *[line for line in lines if line.startswith("File ")][:1]]
    return " ".join(shown)[:500].rstrip(". ")


def check_step(own: OwnKernel, returned: object, state: Any) -> None:
    """Check the type of the results of a step."""
    form = "(state, reward, terminated)" if own.infos is None else "(state, reward, terminated, extra)"
    size = 3 if own.infos is None else 4
    results = _entries(returned)
    if results is None or len(results) != size:
        count = f"one of type {returned}" if results is None else f"{len(results)} results"
        advice = "; infos= names the fourth" if own.infos is None and count == "4 results" else ""
        raise ValueError(f"step of {own.owner}: expected {form}, got {count}{advice}")
    after, *others = results
    entries = _entries(after)
    if entries is None or len(entries) != len(state):
        got = f"{after}" if entries is None else f"{len(entries)} entries"
        raise ValueError(
            f"step of {own.owner}: expected a state of {len(state)} entries {own.state}, a tuple, got {got}"
        )
    for name, expected, entry in zip(own.state, state, entries, strict=True):
        if not _is_alike(expected, entry):
            raise ValueError(f"step of {own.owner}: expected {name} of type {expected}, got {entry}")
    for name, entry in zip(("reward", "terminated", "extra"), others, strict=False):
        if not isinstance(entry, (types.Number, types.Boolean)):
            raise ValueError(f"step of {own.owner}: expected a number as {name}, got {entry}")


def _is_alike(expected: object, entry: object) -> bool:
    """Return whether an entry of a state has the form of the attribute."""
    if isinstance(expected, types.BaseTuple):
        inner = _entries(entry)
        fits = inner is not None and len(inner) == len(expected)
        return fits and all(map(_is_alike, _entries(expected) or (), inner or ()))
    if isinstance(expected, types.Array):
        return isinstance(entry, types.Array) and _is_alike(expected.dtype, entry.dtype)
    if isinstance(expected, types.Float):
        return _is_number(entry)
    return isinstance(entry, (types.Integer, types.Boolean))  # a float would be rounded


def _entries(returned: Any) -> tuple[Any, ...] | None:
    """Return the types of the entries of a tuple; None for another type."""
    is_tuple = isinstance(returned, types.BaseTuple)
    return tuple(returned) if is_tuple else None


def _is_number(entry: object) -> bool:
    return isinstance(entry, (types.Float, types.Integer, types.Boolean))


# -- The argument `random` of a user's step in compiled code: it draws what `numpy.random.Generator` draws.
#
# `random` is an object with methods of the same names, so that the same function runs in Python, too.

_WORDS = types.Array(types.uint64, 1, "C")


class GeneratorType(types.Type):
    """The type of `random`: it holds the words of a generator; see `planvec.kernels.random`."""

    def __init__(self) -> None:
        super().__init__(name="planvec.Generator")


GENERATOR_TYPE: Any = GeneratorType()


@register_model(GeneratorType)
class _GeneratorModel(models.StructModel):
    def __init__(self, manager: object, generator: object) -> None:
        super().__init__(manager, generator, [("words", _WORDS)])  # type: ignore[no-untyped-call]


make_attribute_wrapper(GeneratorType, "words", "words")


@intrinsic
def as_generator(typing_context: object, words: object) -> Any:
    """Return the words of a generator as an object with methods."""

    def generate(context: Any, builder: object, signature: object, arguments: Any) -> Any:
        struct = cgutils.create_struct_proxy(GENERATOR_TYPE)(context, builder)
        struct.words = arguments[0]
        context.nrt.incref(builder, words, arguments[0])
        return struct._getvalue()

    return GENERATOR_TYPE(words), generate


def _select_integers(generator, low, high=None):  # type: ignore[no-untyped-def]
    """Return the compiled form of `integers(high)` or of `integers(low, high)`."""
    if high is None or isinstance(high, (types.NoneType, types.Omitted)):
        return lambda generator, low, high=None: integer(generator.words, 0, low)
    return lambda generator, low, high=None: integer(generator.words, low, high)


_METHODS: dict[str, Any] = {
    "random": lambda generator: lambda generator: random(generator.words),
    "integers": _select_integers,
    "standard_normal": lambda generator: lambda generator: standard_normal(generator.words),
    "uniform": lambda generator, low=0.0, high=1.0: (
        lambda generator, low=0.0, high=1.0: uniform(generator.words, low, high)
    ),
    "normal": lambda generator, loc=0.0, scale=1.0: (
        lambda generator, loc=0.0, scale=1.0: loc + scale * standard_normal(generator.words)
    ),
}
for _name, _select in _METHODS.items():
    overload_method(GeneratorType, _name)(_select)


# -- Turns the functions of a user into a `Kernel` -----------------------------------------------------------


def kernel_of(own: OwnKernel, layout: Layout, constants: Any) -> Kernel:
    """Return a kernel that calls the functions of a user."""
    action = layout.action
    numbers = types.UniTuple(_scalar(action), action.size)
    given = {
        "state": types.Tuple(list(map(_type_of, layout.fields))),
        "action": _scalar(action) if action.is_number else numbers,
        "constants": numba.typeof(constants),
        "random": GENERATOR_TYPE,
    }
    refuses = [*_if_not_finite(layout, "state", "return True"), "return False"]
    return Kernel(
        fields=own.state,
        step=_step_of(own, layout, given),
        observe=_observe_of(own, layout, given),
        constants=lambda env: constants,
        # Numbers that are not finite are left to the environment, which may raise.
        refuses=generated("refuses", "state, ended, constants", refuses, {"isfinite": math.isfinite}),
        columns=None if own.infos is None else own.columns,
    )


def _scalar(field: Field) -> Any:
    return numba.from_dtype(np.dtype(field.dtype))


def _type_of(field: Field) -> Any:
    """Return the type of an entry of the state."""
    if field.is_array:
        return types.Array(_scalar(field), 1, "C", aligned=False)
    return _scalar(field) if field.is_number else types.UniTuple(_scalar(field), field.size)


def _step_of(own: OwnKernel, layout: Layout, given: dict[str, Any]) -> Any:
    """Return the step in the form of `Kernel.step`. Arrays are written into those of the state."""
    # It raises an error if a result is not finite: Python raises errors where compiled code returns infinity.
    # Then the environment steps the batch.
    step, returned = compile_function(own, own.step, "step", STEP_ARGUMENTS, given)
    check_step(own, returned, given["state"])
    arrays = [index for index, field in enumerate(layout.fields) if field.is_array]
    entries = [
        f"{'state' if index in arrays else 'result[0]'}[{index}]" for index in range(len(layout.fields))
    ]
    error = "raise ValueError('a result is not finite')"
    lines = [
        _call(own.step, "step", STEP_ARGUMENTS),
        # All are copied before one is written, since a result may be an array of the state.
        *(f"array_{index} = result[0][{index}].copy()" for index in arrays),
        *(f"state[{index}][:] = array_{index}" for index in arrays),
        f"after = ({', '.join(entries)},)",
        *_if_not_finite(layout, "after", error),
        "if not isfinite(result[1]):",
        f"    {error}",
        f"return after, result[1], result[2], {'0.0' if own.infos is None else 'result[3]'}",
    ]
    names = {"function": step, "as_generator": as_generator, "isfinite": math.isfinite}
    return generated("step", "state, action, constants, random", lines, names)


def _observe_of(own: OwnKernel, layout: Layout, given: dict[str, Any]) -> Any:
    """Return `observe` in the form of `Kernel.observe`."""
    num_numbers = sum(field.size for field in layout.observation)
    if own.observe is None:
        has_arrays = any(field.is_array for field in layout.fields)
        numbers = [
            field.number(f"state[{entry}]", index)
            for entry, field in enumerate(layout.fields)
            for index in range(field.size)
        ]
        if has_arrays or len(numbers) != num_numbers:
            raise ValueError(
                f"observe of {own.owner}: expected a function, since the {num_numbers} numbers of an "
                "observation are not those of the state, got None"
            )
        return generated("observe", "state, constants", [f"return ({', '.join(numbers)},)"], {})
    observe, returned = compile_function(own, own.observe, "observe", OBSERVE_ARGUMENTS, given)
    entries = _entries(returned) or (returned,)
    if len(entries) != num_numbers or not all(map(_is_number, entries)):
        raise ValueError(
            f"observe of {own.owner}: expected a tuple of {num_numbers} numbers as in its observation_space, "
            f"got {returned}"
        )
    result = "result" if isinstance(returned, types.BaseTuple) else "(result,)"
    lines = [_call(own.observe, "observe", OBSERVE_ARGUMENTS), f"return {result}"]
    return generated("observe", "state, constants", lines, {"function": observe})


def _call(function: object, name: str, allowed: tuple[str, ...]) -> str:
    """Return a line that calls a function of a user."""
    given = {"random": "as_generator(random)"}
    arguments = [given.get(argument, argument) for argument in arguments_of(function, name, allowed)]
    return f"result = function({', '.join(arguments)})"


def _if_not_finite(layout: Layout, state: str, then: str) -> list[str]:
    """Return lines that do something if a number of a state is not finite."""
    lines, tests = list[str](), list[str]()
    for index, field in enumerate(layout.fields):
        entry = f"{state}[{index}]"
        if np.dtype(field.dtype).kind != "f":
            continue
        if field.is_array:
            lines += [f"for number in {entry}:", "    if not isfinite(number):", f"        {then}"]
        else:
            tests += [f"not isfinite({field.number(entry, number)})" for number in range(field.size)]
    return [*lines, f"if {' or '.join(tests)}:", f"    {then}"] if tests else lines


class OwnCompiledKernel(CompiledKernel):
    """Steps and rolls out batches with the functions of a user."""

    def __init__(self, own: OwnKernel, opened: OpenedEnv) -> None:
        self._known = KernelConstants(own, opened.env.unwrapped)
        kernel = kernel_of(own, layout_of(opened, own.state), self._known.constants)
        functions = [own.step] if own.observe is None else [own.step, own.observe]
        # numba's cache on disk knows functions by their digest. If that does not cover all that they use,
        # another program must not get them.
        token = None if has_full_digest(*functions) else own.token
        super().__init__(kernel, opened, f"{code_digest(*functions)} {own.infos is None}", token)

    def _constants(self) -> tuple[Any, ...]:
        return self._known.constants

    def has_changed(self) -> bool:
        return self._known.has_changed()
