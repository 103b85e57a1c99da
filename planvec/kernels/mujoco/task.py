"""Defines `Task`: what an environment of MuJoCo computes around its simulation, written for compilation.

    state --> MjData    before() --> start     mj_step, frame_skip times     outcome() --> reward, end, extras
                                                                             observe() --> observation

The simulation itself is MuJoCo's. A task reads the arrays of `MjData` in the same order as Gymnasium's code,
and computes the same sums in the same order, so that every bit is the same.

Letters: K numbers for the infos of one row, B rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planvec.kernels.mujoco.sums import MAX_TERMS
from planvec.rows import Column, Columns


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
        # others have no info.
        if not stepped.any():
            return {}
        columns, start = {}, 0
        extras[~stepped] = 0.0
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
