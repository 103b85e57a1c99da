"""Where the parts of a state are in its record, and compiled access to them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planvec.kernels.memory import load, store
from planvec.kernels.mujoco.compiling import inner
from planvec.kernels.mujoco.native import call_with_state, copy_bytes, load_int, store_int

Bytes = NDArray[np.uint8]
_LARGEST = 2147483647


class Records(NamedTuple):
    """Holds the offsets in a record, in bytes."""

    size: int  # bytes of one record
    physics: int  # where the numbers of the simulation begin
    num_physics: int  # how many they are
    observation: int  # where the observation begins; -1 if it follows from the simulation
    elapsed: int  # the steps since the reset; -1 if they are not counted
    terminated: int  # A flag
    truncated: int  # A flag


def records_of(dtype: np.dtype[Any], num_physics: int, num_observed: int) -> Records:
    """Return the offsets in the records of an environment."""
    # `dtype`: The dtype of one state.
    sizes = {"physics": ("<f8", (num_physics,)), "observation": ("<f8", (num_observed,))}
    known = {"physics", "observation", "elapsed_steps", "terminated", "truncated"}
    names = set(dtype.names or ())
    is_known = {"physics", "terminated", "truncated"} <= names <= known
    if not is_known or any(dtype[name] != np.dtype(sizes[name]) for name in names & set(sizes)):
        raise ValueError(f"states of another form: {dtype}")
    assert dtype.fields is not None
    offsets = {name: int(field[1]) for name, field in dtype.fields.items()}
    return Records(
        dtype.itemsize,
        offsets["physics"],
        num_physics,
        offsets.get("observation", -1),
        offsets.get("elapsed_steps", -1),
        offsets["terminated"],
        offsets["truncated"],
    )


@inner
def load_physics(physics: Any, records: Any, states: Bytes, at: int, scratch: NDArray[np.float64]) -> None:
    """Put a simulation into the state of the record at an offset."""
    # `states`: The bytes of all records. `scratch`: `[num_physics]`, because records are not aligned.
    numbers = scratch.ctypes.data
    copy_bytes(numbers, states.ctypes.data + at + records.physics, 8 * records.num_physics)
    call_with_state(physics.set_state, physics.model, physics.data, numbers, physics.signature)
    start = physics.num_state
    for index in range(len(physics.saved)):
        address, size = physics.saved[index, 0], physics.saved[index, 1]
        if physics.saved[index, 2]:
            for number in range(size):
                store_int(address + 4 * number, np.int32(scratch[start + number]))
        else:
            copy_bytes(address, numbers + 8 * start, 8 * size)
        start += size


@inner
def save_physics(physics: Any, records: Any, states: Bytes, at: int, scratch: NDArray[np.float64]) -> None:
    """Write the state of a simulation into the record at an offset. Arguments as in `load_physics`."""
    numbers = scratch.ctypes.data
    call_with_state(physics.get_state, physics.model, physics.data, numbers, physics.signature)
    start = physics.num_state
    for index in range(len(physics.saved)):
        address, size = physics.saved[index, 0], physics.saved[index, 1]
        if physics.saved[index, 2]:
            for number in range(size):
                scratch[start + number] = load_int(address + 4 * number)
        else:
            copy_bytes(numbers + 8 * start, address, 8 * size)
        start += size
    copy_bytes(states.ctypes.data + at + records.physics, numbers, 8 * records.num_physics)


@inner
def elapsed_of(records: Any, states: Bytes, at: int) -> int:
    """Return the steps since the reset; 0 if they are not counted."""
    return int(load(states, at + records.elapsed, np.int32)) if records.elapsed >= 0 else 0


@inner
def ends_of(records: Any, states: Bytes, at: int) -> Any:
    """Return the flags `terminated` and `truncated`."""
    terminated = load(states, at + records.terminated, np.uint8) != 0
    return terminated, load(states, at + records.truncated, np.uint8) != 0


@inner
def store_ends(records: Any, states: Bytes, at: int, elapsed: int, terminated: bool, truncated: bool) -> None:
    """Write the flags and the steps since the reset."""
    store(states, at + records.terminated, np.uint8, terminated)
    store(states, at + records.truncated, np.uint8, truncated)
    if records.elapsed >= 0:
        store(states, at + records.elapsed, np.int32, min(elapsed, _LARGEST))
