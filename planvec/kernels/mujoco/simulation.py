"""A simulation of one thread: an `MjData` of its own, and where its numbers are.

MuJoCo ends the process when the memory of an `MjData` is too small, unless it was called by its Python
module. So these simulations have several times the memory of the environment's. A batch in which one of them
has used more than the environment has is stepped by the environment itself.
"""

from __future__ import annotations

import copy
import ctypes
from typing import Any, NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from planvec.kernels.mujoco.library import functions
from planvec.kernels.mujoco.task import Arrays

# Number of warnings of each kind before a row is stepped. MuJoCo prints a warning if there were none before;
# it sets all numbers to zero when it resets a simulation that is not stable.
QUIET = 1
_SIGNATURE = int(mujoco.mjtState.mjSTATE_INTEGRATION)
_MEMORY_FACTOR = 8
# `MjModel` begins with its sizes: number of words of 64 bits among which the size of the memory is
_WORDS_OF_SIZES = 300


class Physics(NamedTuple):
    """Holds what compiled loops need of a simulation."""

    model: int  # address of the `mjModel`
    data: int  # address of the `mjData`
    step: int  # address of the function
    set_state: int  # address of the function
    get_state: int  # address of the function
    compute_forces: int  # address of the function
    signature: int  # bits that name the parts of a state
    num_state: int
    arrays: Arrays  # the arrays that tasks read
    # `[n, 3]` int64: address, size, and whether it holds integers, of each array that follows the state in a
    # record
    saved: NDArray[np.int64]
    warnings: NDArray[np.int32]  # number of warnings of each kind


class Simulation:
    """Simulates rows in one thread."""

    def __init__(self, model: Any, saved: tuple[str, ...]) -> None:
        self._model = model
        self.data = _data_with_memory(model)
        num_state = mujoco.mj_stateSize(model, _SIGNATURE)
        arrays = [getattr(self.data, name, None) for name in saved]
        places = [_place(array) for array in arrays if array is not None and array.size]
        self.size = num_state + sum(size for _, size, _ in places)  # numbers in a record
        flat = {name: getattr(self.data, name).reshape(-1) for name in Arrays._fields if name != "body_mass"}
        # for compiled loops
        self.physics = Physics(
            model._address,
            self.data._address,
            *functions(),
            _SIGNATURE,
            num_state,
            Arrays(**flat, body_mass=model.body_mass),
            np.array(places, np.int64).reshape(-1, 3),
            self.data.warning.number,
        )

    def prepare(self) -> None:
        """Prepare for a batch."""
        self.data.maxuse_arena = 0
        self.data.warning.number[:] = QUIET

    @property
    def has_exceeded_memory(self) -> bool:
        """Whether the batch has used more memory than a simulation of the environment may have."""
        return bool(self.data.maxuse_arena > self._model.narena * 0.9)


def _place(array: NDArray[Any]) -> tuple[int, int, bool]:
    """Return the address and the size of an array, and whether it holds integers."""
    if array.dtype not in (np.float64, np.int32) or not array.flags.c_contiguous:
        raise ValueError(f"a state with an array of {array.dtype}")
    return int(array.ctypes.data), array.size, array.dtype == np.int32


def _data_with_memory(model: Any) -> Any:
    """Return a new `MjData` of a model, with more memory than the model asks for."""
    # The size of the memory cannot be set from Python. It is found among the sizes at the beginning of a copy
    # of the model, changed there, and read through Python to be sure that it was that size.
    larger = copy.copy(model)
    words = (ctypes.c_int64 * _WORDS_OF_SIZES).from_address(larger._address)
    wanted = int(model.narena) * _MEMORY_FACTOR
    places = [index for index, word in enumerate(words) if word == model.narena]
    if len(places) != 1:
        raise ValueError("the size of the memory of simulations is not found in the model")
    words[places[0]] = wanted
    data = mujoco.MjData(larger)
    if larger.narena != wanted or data.narena != wanted:
        raise ValueError("the size of the memory of simulations cannot be changed")
    return data
