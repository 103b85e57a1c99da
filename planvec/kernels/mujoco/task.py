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
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast

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
def clip(number: object, low: Any, high: Any) -> Any:
    """Return `np.clip(number, low, high)`, also of what is not a number, and of zeros."""
    if number != number:
        return number
    if _KEEPS_EQUAL:
        number = low if number < low else number
        return high if number > high else number
    number = number if number > low else low
    return number if number < high else high


@njit(error_model="numpy")
def _square(number: object, low: object, high: object) -> Any:
    clipped = clip(number, low, high)
    return clipped * clipped


@njit(error_model="numpy")
def squares_between(numbers: np.ndarray, low: object, high: object) -> Any:
    """Return `np.sum(np.square(np.clip(numbers, low, high)))`, in the precision of all three."""
    # At most MAX_TERMS numbers; beyond that NumPy adds in other blocks.
    zero = numbers.dtype.type(0.0)
    size, total = len(numbers), zero
    whole = size - size % 8
    if whole:
        a, b, c, d, e, f, g, h = zero, zero, zero, zero, zero, zero, zero, zero
        for at in range(0, whole, 8):
            a += _square(numbers[at], low, high)
            b += _square(numbers[at + 1], low, high)
            c += _square(numbers[at + 2], low, high)
            d += _square(numbers[at + 3], low, high)
            e += _square(numbers[at + 4], low, high)
            f += _square(numbers[at + 5], low, high)
            g += _square(numbers[at + 6], low, high)
            h += _square(numbers[at + 7], low, high)
        total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for at in range(whole, size):
        total += _square(numbers[at], low, high)
    return total


@njit(error_model="numpy")
def single_squares(numbers: NDArray[np.float32]) -> Any:
    """Return `np.sum(np.square(numbers))` in single precision."""
    return squares_between(numbers, np.float32(-np.inf), np.float32(np.inf))


@njit(error_model="numpy")
def squares(numbers: NDArray[np.float64]) -> Any:
    """Return `np.sum(np.square(numbers))`."""
    return squares_between(numbers, -np.inf, np.inf)


# -- The length of a vector, with the bits of `np.linalg.norm`.
#
# NumPy leaves the sum of squares to its BLAS, which may round after the addition only (a fused multiplication
# and addition). Which one it does depends on the processor, and is found out by trying.

_NUM_TRIED = 200


@intrinsic_function
def _fused(typing_context: object, first: object, second: object, third: object) -> Any:
    """Return `first * second + third`, rounded once."""

    def generate(context: object, builder: Any, signature: object, arguments: Any) -> Any:
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


@inner
def copy_from(source: NDArray[np.float64], first: int, target: NDArray[np.float64], at: int) -> int:
    """Copy numbers from an index on. Returns the index after the last one in the target."""
    for index in range(first, len(source)):
        target[at] = source[index]
        at += 1
    return at


@inner
def _copy_clipped(
    source: NDArray[np.float64], first: int, low: float, high: float, target: NDArray[np.float64], at: int
) -> int:
    """Do the same with clipped numbers."""
    for index in range(first, len(source)):
        target[at] = clip(source[index], low, high)
        at += 1
    return at


@inner
def write(target: NDArray[np.float64], at: int, numbers: tuple[float, ...]) -> int:
    """Write numbers from an index on. Returns the index after the last one."""
    for value in numbers:
        target[at] = value
        at += 1
    return at


# -- What a task takes, and what it computes -----------------------------------------------------------------


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


# What tasks take from the attributes of an environment: its value where a task does not name it, and how it
# is read. Reading raises an error where NumPy would compute with other types than the task.
_CONSTANTS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "forward_weight": (0.0, lambda env: _weight(env._forward_reward_weight)),
    "control_weight": (0.0, lambda env: _weight(env._ctrl_cost_weight)),
    # whether NumPy multiplies this weight with a float32 in single precision
    "single": (False, lambda env: control_kind(env) is np.float32),
    "contact_weight": (0.0, lambda env: _weight(env._contact_cost_weight)),
    "impact_weight": (0.0, lambda env: _weight(env._impact_cost_weight)),
    "near_weight": (0.0, lambda env: _weight(env._reward_near_weight)),
    "distance_weight": (0.0, lambda env: _weight(env._reward_dist_weight)),
    "push_weight": (0.0, lambda env: _weight(env._reward_control_weight)),
    "push_single": (False, lambda env: push_kind(env) is np.float32),  # as `single`
    "cost_range": ((0.0, 0.0), lambda env: _limits(env._contact_cost_range)),
    "impact_range": ((0.0, 0.0), lambda env: _limits(env._impact_cost_range)),
    # the range to which forces are clipped
    "force_range": ((-math.inf, math.inf), lambda env: _limits(env._contact_force_range)),
    # the reward where the body is healthy, and where it is not
    "healthy": (0.0, lambda env: _number(True * env._healthy_reward)),
    "unhealthy": (0.0, lambda env: _number(False * env._healthy_reward)),
    "ends": (False, lambda env: _flag(env._terminate_when_unhealthy)),  # whether the episode ends there
    "z_range": ((0.0, 0.0), lambda env: _limits(env._healthy_z_range)),
    "angle_range": ((0.0, 0.0), lambda env: _limits(env._healthy_angle_range)),
    "bounds_state": (False, lambda env: True),  # whether all coordinates must lie in `state_range`
    "state_range": ((0.0, 0.0), lambda env: _limits(env._healthy_state_range)),
    "speed_limit": (math.inf, lambda env: 10.0),  # to which velocities are clipped in observations
    "duration": (0.0, lambda env: _number(env.dt)),
    "timestep": (0.0, lambda env: _number(env.model.opt.timestep)),
    "mass": (0.0, lambda env: _number(env.model.body_mass.sum())),
    "body": (0, lambda env: 3 * env.data.body(env._main_body).id),  # index of its position in `xpos`
    # the same for those of Pusher
    "bodies": (
        (0, 0, 0),
        lambda env: tuple(3 * int(env.data.body(name).id) for name in ("tips_arm", "object", "goal")),
    ),
    "fused": (False, lambda env: dot_is_fused()),  # see `norm`
}
# The height of the body at the start follows, and the indices of the first numbers that are observed of
# `qpos`, `cinert`, `cvel`, `qfrc_actuator`, `cfrc_ext`.
Constants: Any = cast(Any, namedtuple)(
    "Constants",
    [*_CONSTANTS, "first_height", "first"],
    defaults=[*(value for value, _ in _CONSTANTS.values()), 0.0, (0,) * 5],
)


# what bodies show besides: the attribute that tells it, the array, and its first number after the world's
_SHOWN = (
    ("_include_cinert_in_observation", "cinert", 10),
    ("_include_cvel_in_observation", "cvel", 6),
    ("_include_qfrc_actuator_in_observation", "qfrc_actuator", 6),
    ("_include_cfrc_ext_in_observation", "cfrc_ext", 6),
)
_NOTHING = 2**31  # the first number of an array that is not observed


def _position(arrays: Arrays, constants: object) -> Any:
    return arrays.qpos[0], arrays.qpos[1]


def observe_arrays(arrays: Arrays, constants: Any, observation: NDArray[np.float64]) -> None:
    """Write positions, velocities, and what a body shows besides."""
    first, limit, (low, high) = constants.first, constants.speed_limit, constants.force_range
    at = copy_from(arrays.qpos, first[0], observation, 0)
    at = _copy_clipped(arrays.qvel, 0, -limit, limit, observation, at)
    at = copy_from(arrays.cinert, first[1], observation, at)
    at = copy_from(arrays.cvel, first[2], observation, at)
    at = copy_from(arrays.qfrc_actuator, first[3], observation, at)
    _copy_clipped(arrays.cfrc_ext, first[4], low, high, observation, at)


@dataclass(frozen=True)
class Task:
    """Describes one class of environments. `outcome`, `before` and `observe` are compiled by numba."""

    # `outcome(arrays, constants, start, action, extras) -> (reward, terminated)`. It writes the numbers of
    # the infos, in their order, into `extras` `[K]`.
    outcome: Callable[..., Any]
    infos: tuple[str, ...]  # the keys of the info, in order
    # key -> the type of its value, such as `np.float32`, or the size of its array; of others it is float64
    kinds: Mapping[str, Callable[[Any], type | int]]
    reads: tuple[str, ...] = ()  # names of the constants that are read before every batch
    # `before(arrays, constants) -> start`: what is measured before the simulation
    before: Callable[[Arrays, Any], Any] = _position
    # `observe(arrays, constants, observation)`: writes the observation `[n]`
    observe: Callable[[Arrays, Any, NDArray[np.float64]], None] = observe_arrays
    num_hidden: int = 0  # number of positions that are not observed, if the environment excludes positions
    reads_forces: bool = False  # whether the forces on bodies must be computed after the simulation
    height: int = -1  # index of the height of the body in `qpos`, for the proof; -1: there is none

    def constants(self, env: Any) -> Any:
        """Return the present constants. Raises an error for an environment that the task does not know."""
        data = env.data
        if data.ctrl.size > MAX_TERMS or (self.reads_forces and data.cfrc_ext.size > MAX_TERMS):
            raise ValueError(f"more than {MAX_TERMS} terms in a sum")
        values = {name: _CONSTANTS[name][1](env) for name in self.reads}
        if "z_distance_from_origin" in self.infos:
            values["first_height"] = _number(env.init_qpos[self.height])
        size = 23  # of Pusher
        if self.observe is observe_arrays:
            excludes = getattr(env, "_exclude_current_positions_from_observation", False)
            hidden = self.num_hidden if excludes else 0
            size, first = data.qpos.size + data.qvel.size - hidden, [hidden]
            for attribute, name, start in _SHOWN if self.reads_forces else ():
                is_shown = getattr(env, attribute, False) is True
                first.append(start if is_shown else _NOTHING)
                size += getattr(data, name).size - start if is_shown else 0
            values["first"] = tuple(first) if self.reads_forces else (hidden, *[_NOTHING] * len(_SHOWN))
        if env.observation_space.shape != (size,):
            raise ValueError(f"expected observations of size {env.observation_space.shape}, got {size}")
        return Constants(**values)

    def entries(self, env: object) -> list[tuple[str, type | int]]:
        """Return the keys of the info with the types of their values, or the sizes of their arrays."""
        return [(name, self.kinds[name](env) if name in self.kinds else np.float64) for name in self.infos]

    def columns(self, env: object, extras: NDArray[np.float64], stepped: NDArray[np.bool_]) -> Columns:
        """Return the infos of a batch."""
        # `extras`: `[B, K]`, what `outcome` has written. `stepped`: `[B]`, whether the row took a step. The
        # others have no info, and zeros in `extras`.
        if not stepped.any():
            return {}
        columns, start = {}, 0
        for name, kind in self.entries(env):
            if isinstance(kind, int):
                values = extras[:, start : start + kind].copy()
                columns[name] = Column((values.dtype, (kind,)), values, stepped.copy())
                start += kind
            else:
                columns[name] = Column(kind, extras[:, start].astype(kind), stepped.copy())
                start += 1
        return columns


def _number(value: Any) -> float:
    """Return an attribute of an environment as a float."""
    if type(value) is float and value == value:
        return value
    is_number = isinstance(value, (int, float, np.integer, np.floating))
    if not is_number or np.ndim(value) or float(value) != value:
        raise ValueError(f"expected a number, got {value!r}")
    return float(value)


def _limits(values: Any) -> tuple[float, float]:
    low, high = values
    if type(low) is float and type(high) is float and low == low and high == high:  # the usual case
        return low, high
    return _number(low), _number(high)


def _flag(value: object) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"expected True or False, got {value!r}")
    return bool(value)


def _weight(value: object) -> float:
    """Return a weight that NumPy multiplies with a float64 in double precision."""
    if type(value) is float and value == value:  # the usual case
        return value
    _kind_of_product(value, np.float64(1), np.float64)
    return _number(value)


def _kind_of_product(weight: Any, factor: object, *expected: type) -> type:
    """Return the type of a product, which depends on the version of NumPy."""
    kind = type(weight * factor)
    if kind not in expected:
        raise ValueError(f"expected a product of type {expected}, got {kind}")
    return kind


def control_kind(env: Any) -> type:
    """Return the type of the cost of the control, a weight times a sum of float32."""
    return _kind_of_product(env._ctrl_cost_weight, np.float32(1), np.float32, np.float64)


def push_kind(env: Any) -> type:
    """Return the same for Pusher."""
    return _kind_of_product(env._reward_control_weight, np.float32(1), np.float32, np.float64)


def survive_kind(env: Any) -> type:
    """Return the type of the reward for a healthy body, where health is a bool of NumPy."""
    return type(np.bool_(True) * env._healthy_reward)
