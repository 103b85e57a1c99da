"""Compiles the functions of a user, and checks the types of their results.

The messages name the function, what was expected and what came, where numba's would show its own code.
"""

from __future__ import annotations

from typing import Any

from numba import njit, types
from numba.core.errors import NumbaError

from planvec.kernels.own.declared import OwnKernel, arguments_of, python_function


def compile_function(
    own: OwnKernel, function: Any, name: str, allowed: tuple[str, ...], given: dict[str, Any]
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


def check_step(own: OwnKernel, returned: Any, state: Any) -> None:
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


def _is_alike(expected: Any, entry: Any) -> bool:
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


def _is_number(entry: Any) -> bool:
    return isinstance(entry, (types.Float, types.Integer, types.Boolean))


def check_observe(own: OwnKernel, returned: Any, num_numbers: int) -> None:
    """Check the type of the result of `observe`."""
    entries = _entries(returned) or (returned,)
    if len(entries) != num_numbers or not all(map(_is_number, entries)):
        raise ValueError(
            f"observe of {own.owner}: expected a tuple of {num_numbers} numbers as in its observation_space, "
            f"got {returned}"
        )
