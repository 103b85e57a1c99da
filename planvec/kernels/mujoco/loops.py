"""The compiled loops over steps and rollouts of a batch. They are compiled once for each task.

They do what `planvec.stepping.row_loop` does. Threads run a loop at the same time, each with a simulation of
its own, and take the next row from a common counter. A loop returns after a number of steps, so that Ctrl-C
is seen, and is called again.

Letters: B rows, H steps of a rollout, A numbers of an action.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.datamodel.registry import register_default
from numba.core.pythonapi import NativeValue
from numba.extending import unbox
from numpy.typing import NDArray

from planvec.kernels.digests import code_digest
from planvec.kernels.kernel_type import accessor, generated
from planvec.kernels.memory import intrinsic_function, jit, load, store
from planvec.kernels.mujoco.simulation import QUIET
from planvec.kernels.mujoco.task import Task, inner
from planvec.kernels.random import draw_uniforms

# -- Calls functions of MuJoCo's C library from compiled code, and accesses memory by its address.
#
# Addresses are arguments, never constants: numba keeps compiled code on disk, and a library lies elsewhere in
# every process.

_BYTE_POINTER = ir.IntType(8).as_pointer()


def _pointers(builder: Any, addresses: Any) -> list[Any]:
    return [builder.inttoptr(address, _BYTE_POINTER) for address in addresses]


@intrinsic_function
def call(typing_context: Any, function: Any, model: Any, data: Any) -> Any:
    """Call `void function(mjModel*, mjData*)`; the arguments are addresses."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [_BYTE_POINTER] * 2)
        pointer = builder.inttoptr(arguments[0], kind.as_pointer())
        builder.call(pointer, _pointers(builder, arguments[1:]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic_function
def call_with_state(
    typing_context: Any, function: Any, model: Any, data: Any, state: Any, signature_bits: Any
) -> Any:
    """Call `void function(mjModel*, mjData*, double* state, int signature)`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [*[_BYTE_POINTER] * 3, ir.IntType(32)])
        pointer = builder.inttoptr(arguments[0], kind.as_pointer())
        bits = builder.trunc(arguments[4], ir.IntType(32))
        builder.call(pointer, [*_pointers(builder, arguments[1:4]), bits])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), generate


@intrinsic_function
def copy_bytes(typing_context: Any, target: Any, source: Any, num_bytes: Any) -> Any:
    """Copy bytes from one address to another one."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, source = _pointers(builder, arguments[:2])
        cgutils.raw_memcpy(builder, target, source, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), generate


@intrinsic_function
def load_int(typing_context: Any, address: Any) -> Any:
    """Return the integer of 32 bits at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(32).as_pointer())
        return builder.load(pointer, align=4)

    return types.int32(types.int64), generate


@intrinsic_function
def store_int(typing_context: Any, address: Any, value: Any) -> Any:
    """Write an integer of 32 bits to an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(32).as_pointer())
        builder.store(arguments[1], pointer, align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.int32), generate


@intrinsic_function
def next_number(typing_context: Any, counter: Any) -> Any:
    """Return the present number of a counter and increase it by one, atomically: threads share it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        one = ir.Constant(ir.IntType(64), 1)
        return builder.atomic_rmw("add", array.data, one, "monotonic")

    return types.int64(counter), generate


# -- Where the parts of a state are in its record, and compiled access to them -------------------------------

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


# -- Defines `TaskType`, for which the loops over rows are compiled. See `planvec.kernels.kernel_type` -------

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


# -- The rows of a batch in compiled loops: what all threads share, and the parts that both loops have.
#
# Letters: B rows, K numbers for the infos of a row.

REFUSED = 2  # result of a loop: the environment itself has to step the batch


class SharedBatch(NamedTuple):
    """Holds what all threads of a batch read."""

    frame_skip: int  # simulation steps of one step
    reads_forces: bool  # whether the forces on bodies are computed
    time_limit: int  # steps after which an episode is truncated
    num_rows: int  # B
    counter: NDArray[np.int64]  # `[1]`, the next row; written
    states: Bytes  # the bytes of B records


class Results(NamedTuple):
    """Holds the arrays to write."""

    new_states: Bytes  # the bytes of B records; empty: none
    observations: NDArray[np.float64]  # `[B, n]`; `[0, n]` for rollouts
    rewards: NDArray[np.float64]  # `[B]`
    terminated: NDArray[np.uint8]  # `[B]`
    truncated: NDArray[np.uint8]  # `[B]`
    num_steps: NDArray[np.int64]  # `[B]`
    extras: NDArray[np.float64]  # `[B, K]`; `[0, K]`: none are wanted


@inner
def simulate(physics: Any, shared: Any, action: Any) -> bool:
    """Simulate one step. Returns whether the simulation is stable."""
    control = physics.arrays.ctrl
    for index in range(len(control)):
        control[index] = action[index]
    for _ in range(shared.frame_skip):
        call(physics.step, physics.model, physics.data)
    if shared.reads_forces:
        call(physics.compute_forces, physics.model, physics.data)
    is_stable = True
    for number in physics.warnings:
        is_stable = is_stable and number == QUIET
    return is_stable


@inner
def refuse(shared: Any) -> int:
    """Leave no rows to other threads."""
    shared.counter[0] = shared.num_rows
    return REFUSED


@inner
def write_row(
    records: Any,
    shared: Any,
    results: Any,
    row: int,
    reward: float,
    terminated: bool,
    truncated: bool,
    count: int,
) -> None:
    """Write the numbers of a row, and its flags into its new record."""
    results.rewards[row], results.num_steps[row] = reward, count
    results.terminated[row], results.truncated[row] = terminated, truncated
    if len(results.new_states):
        at = row * records.size
        elapsed = elapsed_of(records, shared.states, at) + count
        store_ends(records, results.new_states, at, elapsed, terminated, truncated)


@inner
def keep_row(records: Any, shared: Any, results: Any, row: int) -> None:
    """Write the results of a row whose episode has ended: its state does not change, and its reward is 0."""
    at = row * records.size
    if len(results.new_states):
        source, target = shared.states.ctypes.data + at, results.new_states.ctypes.data + at
        copy_bytes(target, source, records.size)
    terminated, truncated = ends_of(records, shared.states, at)
    write_row(records, shared, results, row, 0.0, terminated, truncated, 0)


@inner
def save_observation(records: Any, results: Any, row: int, observation: NDArray[np.float64]) -> None:
    """Write an observation into the new record of a row, if records hold it."""
    if records.observation >= 0 and len(results.new_states):
        target = results.new_states.ctypes.data + row * records.size + records.observation
        copy_bytes(target, observation.ctypes.data, 8 * len(observation))


@inner
def observe_ended(
    task: Any, physics: Any, records: Any, constants: Any, shared: Any, results: Any, row: int, scratch: Any
) -> None:
    """Write the observation of a row whose episode has ended."""
    at, observation = row * records.size, results.observations[row]
    if records.observation >= 0:
        source = shared.states.ctypes.data + at + records.observation
        copy_bytes(observation.ctypes.data, source, 8 * len(observation))
    else:
        load_physics(physics, records, shared.states, at, scratch)
        observe(task, physics.arrays, constants, observation)


# -- Random actions in compiled loops. Letters: A numbers of an action ---------------------------------------


class ActionDraws(NamedTuple):
    """Describes random actions; see `ActionRange`."""

    seed: np.uint64  # seed of all streams
    first_row: int  # index of the first row in the whole batch
    low: NDArray[np.float64]
    size: NDArray[np.float64]
    lowest: NDArray[np.float64]
    highest: NDArray[np.float64]


@inner
def draw_action(draws: Any, action: Any, uniforms: Any, block: Any, row: int, step: int, held: int) -> int:
    """Draw a random action, as `planvec.kernels.step_loop` does."""
    # `action`: `[A]`, written. `uniforms`: `[A]`, scratch.
    # Returns the new value of `held`.
    size = len(action)
    held = draw_uniforms(size, uniforms, block, draws.seed, draws.first_row + row, step, held)
    for index in range(size):
        drawn = np.float32(draws.low[index] + draws.size[index] * uniforms[index])
        drawn = max(drawn, np.float32(draws.lowest[index]))
        action[index] = min(drawn, np.float32(draws.highest[index]))
    return held


DONE, MORE = 0, 1  # Results of a loop: no rows are left; rows may be left. Another one is `REFUSED`.
MAX_STEPS = 10_000  # largest number of steps of a row, which Ctrl-C cannot interrupt
_QUOTA = 200  # steps after which a loop returns at the end of a row


# -- The loops over steps and over rollouts ------------------------------------------------------------------


@jit(cache=True, allocates=True)
def step_rows(
    task: Any,
    physics: Any,
    records: Any,
    constants: Any,
    shared: Any,
    results: Any,
    actions: NDArray[np.float32],  # `[B, A]`
    dt: NDArray[np.int64],  # `[B]`, how often an action is repeated
) -> int:
    """Step rows."""
    # `task`: a `TaskType`; `physics`: the simulation of this thread; `records`: offsets; `results`: written;
    # `shared.counter`: written by all threads.
    # Returns `DONE`, `MORE` or `REFUSED`.
    scratch, extras = np.empty(records.num_physics), np.zeros(results.extras.shape[1])
    num_steps = 0
    while num_steps < _QUOTA:
        row = next_number(shared.counter)
        if row >= shared.num_rows:
            return DONE
        at, terminated = row * records.size, False
        if True in ends_of(records, shared.states, at):
            keep_row(records, shared, results, row)
            observe_ended(task, physics, records, constants, shared, results, row, scratch)
            continue
        left = shared.time_limit - elapsed_of(records, shared.states, at)
        wanted, count, total = min(dt[row], left), 0, 0.0
        if wanted > MAX_STEPS:
            return refuse(shared)
        load_physics(physics, records, shared.states, at, scratch)
        while count == 0 or (count < wanted and not terminated):
            start = before(task, physics.arrays, constants)
            if not simulate(physics, shared, actions[row]):
                return refuse(shared)
            reward, terminated = outcome(task, physics.arrays, constants, start, actions[row], extras)
            total = reward if count == 0 else total + reward
            count += 1
        observation = results.observations[row]
        observe(task, physics.arrays, constants, observation)
        if len(results.new_states):
            save_physics(physics, records, results.new_states, at, scratch)
        save_observation(records, results, row, observation)
        if len(results.extras):
            results.extras[row] = extras
        write_row(records, shared, results, row, total, terminated, count >= left, count)
        num_steps += count
    return MORE


@jit(cache=True, allocates=True)
def roll_rows(
    task: Any,
    physics: Any,
    records: Any,
    constants: Any,
    shared: Any,
    results: Any,
    actions: NDArray[np.float32],  # `[B * H, A]`; `[0, A]`: random ones
    horizon: int,
    discount: float,
    draws: Any,
) -> int:
    """Roll out rows. Arguments that `step_rows` has, too, are described there."""
    # Returns `DONE`, `MORE` or `REFUSED`.
    scratch, extras = np.empty(records.num_physics), np.zeros(results.extras.shape[1])
    drawn, uniforms, block = np.zeros(actions.shape[1], np.float32), np.zeros(actions.shape[1]), np.zeros(4)
    observation = np.zeros(results.observations.shape[1])
    num_steps = 0
    while num_steps < _QUOTA:
        row = next_number(shared.counter)
        if row >= shared.num_rows:
            return DONE
        at, terminated, held = row * records.size, False, -1
        if True in ends_of(records, shared.states, at):
            keep_row(records, shared, results, row)
            continue
        left = shared.time_limit - elapsed_of(records, shared.states, at)
        wanted, count, total, weight = min(horizon, left), 0, 0.0, 1.0
        if wanted > MAX_STEPS:
            return refuse(shared)
        load_physics(physics, records, shared.states, at, scratch)
        while count == 0 or (count < wanted and not terminated):
            action = drawn
            if len(actions):
                action = actions[row * horizon + count]
            else:
                held = draw_action(draws, drawn, uniforms, block, row, count, held)
            start = before(task, physics.arrays, constants)
            if not simulate(physics, shared, action):
                return refuse(shared)
            reward, terminated = outcome(task, physics.arrays, constants, start, action, extras)
            total += weight * reward
            weight *= discount
            count += 1
        save_physics(physics, records, results.new_states, at, scratch)
        if records.observation >= 0:
            observe(task, physics.arrays, constants, observation)
            save_observation(records, results, row, observation)
        write_row(records, shared, results, row, total, terminated, count >= left, count)
        num_steps += count
    return MORE
