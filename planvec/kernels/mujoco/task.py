"""Defines `Task`: what an environment of MuJoCo computes around its simulation, written for compilation.

    state --> MjData    before() --> start     mj_step, frame_skip times     outcome() --> reward, end, extras
                                                                             observe() --> observation

The simulation itself is MuJoCo's. A task reads the arrays of `MjData` in the same order as Gymnasium's code,
and computes the same sums in the same order, so that every bit is the same.

Letters: K numbers for the infos of one row, B rows.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from planvec.kernels.memory import intrinsic_function
from planvec.rows import Column, Columns

# -- Sums, norms and limits of numbers with the bits of NumPy.
#
# NumPy adds up eight partial sums of up to 128 numbers (`pairwise_sum` in its C source).

MAX_TERMS = 128  # largest number of terms that NumPy adds in one block
# whether `np.clip` keeps a number that equals a limit, as it does since version 2; zeros differ in sign
_KEEPS_EQUAL = bool(np.signbit(np.clip(np.full(MAX_TERMS, -0.0), 0.0, 1.0)).all())


@njit(error_model="numpy")
def single_squares(numbers: NDArray[np.float32]) -> Any:
    """Return `np.sum(np.square(numbers))` in single precision."""
    # At most MAX_TERMS numbers; beyond that NumPy adds in other blocks.
    zero = np.float32(0.0)
    size, total = len(numbers), zero
    whole = size - size % 8
    if whole:
        a, b, c, d, e, f, g, h = zero, zero, zero, zero, zero, zero, zero, zero
        for at in range(0, whole, 8):
            a += numbers[at] * numbers[at]
            b += numbers[at + 1] * numbers[at + 1]
            c += numbers[at + 2] * numbers[at + 2]
            d += numbers[at + 3] * numbers[at + 3]
            e += numbers[at + 4] * numbers[at + 4]
            f += numbers[at + 5] * numbers[at + 5]
            g += numbers[at + 6] * numbers[at + 6]
            h += numbers[at + 7] * numbers[at + 7]
        total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for at in range(whole, size):
        total += numbers[at] * numbers[at]
    return total


@njit(error_model="numpy")
def squares_between(numbers: NDArray[np.float64], low: float, high: float) -> float:
    """Return `np.sum(np.square(np.clip(numbers, low, high)))`; see `squares`."""
    size, total = len(numbers), 0.0
    whole = size - size % 8
    if whole:
        a, b, c, d, e, f, g, h = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for at in range(0, whole, 8):
            a += clip(numbers[at], low, high) ** 2
            b += clip(numbers[at + 1], low, high) ** 2
            c += clip(numbers[at + 2], low, high) ** 2
            d += clip(numbers[at + 3], low, high) ** 2
            e += clip(numbers[at + 4], low, high) ** 2
            f += clip(numbers[at + 5], low, high) ** 2
            g += clip(numbers[at + 6], low, high) ** 2
            h += clip(numbers[at + 7], low, high) ** 2
        total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for at in range(whole, size):
        total += clip(numbers[at], low, high) ** 2
    return total


@njit(error_model="numpy")
def squares(numbers: NDArray[np.float64]) -> float:
    """Return `np.sum(np.square(numbers))`."""
    return squares_between(numbers, -np.inf, np.inf)


@njit(error_model="numpy")
def clip(number: float, low: float, high: float) -> float:
    """Return `np.clip(number, low, high)`, also of what is not a number, and of zeros."""
    if number != number:
        return number
    if _KEEPS_EQUAL:
        number = low if number < low else number
        return high if number > high else number
    number = number if number > low else low
    return number if number < high else high


class Arrays(NamedTuple):
    """Holds the arrays of one `MjData` that tasks read, each in one dimension, as views of its memory."""

    qpos: NDArray[np.float64]
    qvel: NDArray[np.float64]
    ctrl: NDArray[np.float64]
    xpos: NDArray[np.float64]
    xipos: NDArray[np.float64]
    site_xpos: NDArray[np.float64]
    cinert: NDArray[np.float64]
    cvel: NDArray[np.float64]
    qfrc_actuator: NDArray[np.float64]
    qfrc_constraint: NDArray[np.float64]
    cfrc_ext: NDArray[np.float64]
    ten_length: NDArray[np.float64]
    ten_velocity: NDArray[np.float64]
    body_mass: NDArray[np.float64]


class Info(NamedTuple):
    """Describes one entry of the info."""

    name: str  # its key
    kind: type | int  # the type of its value, such as `np.float32`; or the size of its array of float64


@dataclass(frozen=True)
class Task:
    """Describes one class of environments. The functions without `env` are compiled by numba."""

    # `constants(env) -> NamedTuple` of numbers and flags, read before every batch. It raises an error for an
    # environment that the task does not know.
    constants: Callable[[Any], Any]
    # `before(arrays, constants) -> start`: what is measured before the simulation
    before: Callable[[Arrays, Any], Any]
    # `outcome(arrays, constants, start, action, extras) -> (reward, terminated)`. It writes the numbers of
    # the infos, in their order, into `extras` `[K]`.
    outcome: Callable[..., Any]
    # `observe(arrays, constants, observation)`: writes the observation `[n]`
    observe: Callable[[Arrays, Any, NDArray[np.float64]], None]
    infos: Callable[[Any], Sequence[Info]]  # `infos(env)`: the entries of the info, in order
    reads_forces: bool = False  # whether the forces on bodies must be computed after the simulation
    height: int = -1  # index of the height of the body in `qpos`, for the proof; -1: there is none

    def columns(self, env: Any, extras: NDArray[np.float64], stepped: NDArray[np.bool_]) -> Columns:
        """Return the infos of a batch."""
        # `extras`: `[B, K]`, what `outcome` has written. `stepped`: `[B]`, whether the row took a step. The
        # others have no info, and zeros in `extras`.
        if not stepped.any():
            return {}
        columns, start = {}, 0
        for name, kind in self.infos(env):
            if isinstance(kind, int):
                values = extras[:, start : start + kind].copy()
                columns[name] = Column((values.dtype, (kind,)), values, stepped.copy())
                start += kind
            else:
                columns[name] = Column(kind, extras[:, start].astype(kind), stepped.copy())
                start += 1
        return columns


def number(value: Any) -> float:
    """Return an attribute of an environment as a float."""
    if type(value) is float and value == value:
        return value
    is_number = isinstance(value, (int, float, np.integer, np.floating))
    if not is_number or np.ndim(value) or float(value) != value:
        raise ValueError(f"expected a number, got {value!r}")
    return float(value)


def flag(value: Any) -> bool:
    """Return an attribute that is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"expected True or False, got {value!r}")
    return bool(value)


def kind_of_product(weight: Any, factor: Any, *expected: type) -> type:
    """Return the type of a product, which depends on the version of NumPy."""
    kind = type(weight * factor)
    if kind not in expected:
        raise ValueError(f"expected a product of type {expected}, got {kind}")
    return kind


def check_observation(env: Any, size: int) -> None:
    """Check the size of the observation."""
    if env.observation_space.shape != (size,):
        raise ValueError(f"expected observations of size {env.observation_space.shape}, got {size}")


def check_terms(*arrays: NDArray[Any]) -> None:
    """Check that NumPy adds up each array in one block."""
    if any(array.size > MAX_TERMS for array in arrays):
        raise ValueError(f"more than {MAX_TERMS} terms in a sum")


# -- The length of a vector, with the bits of `np.linalg.norm`.
#
# NumPy leaves the sum of squares to its BLAS, which may round after the addition only (a fused multiplication
# and addition). Which one it does depends on the processor, and is found out by trying.

_NUM_TRIED = 200


@intrinsic_function
def _fused(typing_context: Any, first: Any, second: Any, third: Any) -> Any:
    """Return `first * second + third`, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float64(*[types.float64] * 3), generate


@njit(cache=True, error_model="numpy")
def norm(x: float, y: float, fused: bool) -> float:
    """Return `np.linalg.norm([x, y])`."""
    return math.sqrt(_fused(y, y, x * x) if fused else x * x + y * y)


@njit(cache=True, error_model="numpy")
def norm3(x: float, y: float, z: float, fused: bool) -> float:
    """Return `np.linalg.norm([x, y, z])`; see `norm`."""
    return math.sqrt(_fused(z, z, _fused(y, y, x * x)) if fused else x * x + y * y + z * z)


@functools.cache
def dot_is_fused() -> bool:
    """Return whether `np.dot` of two or three numbers rounds once per number."""
    vectors = np.random.default_rng(0).standard_normal((_NUM_TRIED, 3))
    for fused in (False, True):
        if all(
            norm(x, y, fused) == np.linalg.norm([x, y]) and norm3(x, y, z, fused) == np.linalg.norm([x, y, z])
            for x, y, z in vectors
        ):
            return fused
    raise ValueError("np.linalg.norm rounds in an unknown way")


# -- Compiles functions that only compiled code calls --------------------------------------------------------

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS: dict[str, Any] = {
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}


def inner(function: F) -> F:
    """Compile a function without an entrance for Python, which takes long to compile for many arrays."""
    compiled: F = njit(**_OPTIONS)(function)
    return compiled


# -- Functions that several tasks share ----------------------------------------------------------------------


def is_single(weight: Any) -> bool:
    """Return whether NumPy multiplies this weight with a float32 in single precision."""
    return kind_of_product(weight, np.float32(1), np.float32, np.float64) is np.float32


@inner
def control_cost(action: NDArray[np.float32], weight: float, single: bool) -> float:
    """Return `weight * np.sum(np.square(action))`."""
    total = single_squares(action)
    if single:
        return float(np.float32(weight) * total)
    return weight * float(total)


def control_kind(weight: Any) -> type:
    """Return the type of the control cost in an info."""
    return kind_of_product(weight, np.float32(1), np.float32, np.float64)


@inner
def copy_from(source: NDArray[np.float64], first: int, target: NDArray[np.float64], at: int) -> int:
    """Copy numbers from an index on. Returns the index after the last one in the target."""
    for index in range(first, len(source)):
        target[at] = source[index]
        at += 1
    return at
