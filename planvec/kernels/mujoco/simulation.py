"""A simulation of one thread: an `MjData` of its own, and where its numbers are.

MuJoCo ends the process when the memory of an `MjData` is too small, unless it was called by its Python
module. So these simulations have several times the memory of the environment's. A batch in which one of them
has used more than the environment has is stepped by the environment itself.
"""

from __future__ import annotations

import copy
import ctypes
import functools
from types import BuiltinFunctionType
from typing import Any, NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from planvec.kernels.mujoco.task import Arrays

# -- Finds the functions and callbacks of the MuJoCo library that this process has loaded --------------------

_CALLBACKS = ("passive", "control", "contactfilter", "sensor", "act_dyn", "act_gain", "act_bias")
_WRAPPED = ("mj_step", "mj_rnePostConstraint")  # functions through which Gymnasium simulates


class Functions(NamedTuple):
    """Holds the addresses of functions."""

    step: int
    set_state: int
    get_state: int
    compute_forces: int


@functools.cache
def _library() -> ctypes.CDLL:
    """Return the library: its functions are found through the module that is linked with it."""
    return ctypes.CDLL(mujoco._functions.__file__)


@functools.cache
def functions() -> Functions:
    """Return the addresses."""
    names = ("mj_step", "mj_setState", "mj_getState", "mj_rnePostConstraint")
    try:
        pointers = [ctypes.cast(getattr(_library(), name), ctypes.c_void_p).value for name in names]
    except (AttributeError, OSError) as error:
        raise ValueError(f"the functions of MuJoCo cannot be found: {error}") from error
    return Functions(*(int(pointer or 0) for pointer in pointers))


@functools.cache
def _callbacks() -> list[Any]:
    return [ctypes.c_void_p.in_dll(_library(), f"mjcb_{name}") for name in _CALLBACKS]


def has_callbacks() -> bool:
    """Return whether anybody takes part in simulations with a callback, which may be a Python function."""
    # The clock of the Python module is no Python function.
    return any(callback.value for callback in _callbacks()) or mujoco.get_mjcb_time() is not None


def is_original() -> bool:
    """Return whether Gymnasium calls MuJoCo's own functions, and no replacement in Python."""
    return all(type(getattr(mujoco, name)) is BuiltinFunctionType for name in _WRAPPED)


def has_valid_options(model: Any) -> bool:
    """Return whether MuJoCo can simulate with the options of a model: it would end the process, not raise."""
    # Gymnasium simulates through the Python module, which turns MuJoCo's errors into exceptions.
    options = model.opt
    return all(getattr(options, name) in values for name, values in _valid_options().items())


@functools.cache
def _valid_options() -> dict[str, frozenset[int]]:
    kinds = {"integrator": "Integrator", "solver": "Solver", "cone": "Cone", "jacobian": "Jacobian"}
    return {
        name: frozenset(int(value) for value in getattr(mujoco, f"mjt{kind}").__members__.values())
        for name, kind in kinds.items()
    }


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
    # memory of the thread, which loops write
    scratch: NDArray[np.float64]  # the numbers of a record, which are not aligned there
    action: NDArray[np.uint8]  # the bytes of a random action
    extras: NDArray[np.float64]  # `[K]`, what the infos of a row are made of


class Simulation:
    """Simulates rows in one thread."""

    def __init__(self, model: Any, saved: tuple[str, ...], num_extras: int) -> None:
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
            np.empty(self.size),
            np.empty(4 * model.nu, np.uint8),
            np.zeros(num_extras),
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
