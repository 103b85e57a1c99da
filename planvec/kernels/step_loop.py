"""The compiled loops over the steps and over the rollouts of a batch. They are compiled once for each kernel.

They do what `planvec.stepping.row_loop` does, on records of bytes, and draw the random actions of
`planvec.rows.random_actions`. Several threads may run them over different rows at the same time.

Letters: B rows, H steps of a rollout, A numbers of an action.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from planvec.kernels.base import Field, Kernel
from planvec.kernels.kernel_type import KernelType, accessor
from planvec.kernels.memory import jit, store
from planvec.kernels.random import NUM_WORDS, draw_uniforms, load_generator, seed_generator, store_generator

# -- Compiled access to the parts of a state, generated for each `KernelType` with constant offsets.
#
# Each function here generates a function for compiled code, as it is for a kernel of numbers. Those of MuJoCo
# register others where a state is a simulation. Letters: S numbers of a state.

_Numbers = KernelType[Kernel]


def _type_name(field: Field) -> str:
    """Return the name of NumPy's scalar type, such as "float64"."""
    return np.dtype(field.dtype).name


def _elements(fields: tuple[Field, ...]) -> Iterator[tuple[Field, int]]:
    """Yield each element of a tuple of numbers and arrays: its field, and its offset in bytes."""
    # A field of several numbers is one element for each, or one array.
    for field in fields:
        size = np.dtype(field.dtype).itemsize
        for number in range(1 if field.is_array else field.size):
            yield field, field.offset + number * size


def _tuple_of(fields: tuple[Field, ...], at: str) -> str:
    """Return an expression for the tuple of the elements of fields in `data`, whose record begins at `at`."""
    values = [
        f"view(data, {at} + {offset}, {field.size}, {_type_name(field)})"
        if field.is_array
        else f"load(data, {at} + {offset}, {_type_name(field)})"
        for field, offset in _elements(fields)
    ]
    return f"({', '.join(values)},)"


def _constants(kernel: _Numbers) -> str:
    """Return an expression for the constants of a kernel, of which the loops pass those that are no flags."""
    values, index = [], 0
    for flag in kernel.flags:
        values.append(f"constants[{index}]" if flag is None else str(flag))
        index += flag is None
    return f"({''.join(f'{value}, ' for value in values)})"


def _inlined(function: Any) -> dict[str, Any]:
    """Return a function of a kernel, compiled into its callers, as the name `function` in generated lines."""
    return {"function": njit(error_model="numpy", forceinline=True)(function)}


@accessor("kernel, data, at")
def load_state(kernel: _Numbers) -> Any:
    """Return the state of the record at an offset: a tuple of S numbers."""
    return [f"return {_tuple_of(kernel.layout.fields, 'at')}"], {}


@accessor("kernel, data, at, state, constants")
def store_state(kernel: _Numbers) -> Any:
    """Write a state into the record at an offset. Arrays were changed in place."""
    lines = [
        f"store(data, at + {offset}, {_type_name(field)}, state[{index}])"
        for index, (field, offset) in enumerate(_elements(kernel.layout.fields))
        if not field.is_array
    ]
    return lines or ["pass"], {}


@accessor("kernel, source, source_at, target, target_at")
def copy_record(kernel: KernelType[Any]) -> Any:
    """Copy a record, in words: byte by byte, it would take longer than most steps."""
    size = kernel.layout.itemsize
    lines = [
        f"for at in range(0, {size - size % 8}, 8):",
        "    store(target, target_at + at, uint64, load(source, source_at + at, uint64))",
        f"for at in range({size - size % 8}, {size}):",
        "    store(target, target_at + at, uint8, load(source, source_at + at, uint8))",
    ]
    return lines, {}


@accessor("kernel, source, source_at, target, target_at, constants")
def begin_state(kernel: _Numbers) -> Any:
    """Return the state of a record, for a step whose result is written to another one."""
    # Other fields are copied there. Arrays are those of the copy, which the kernel may change.
    lines = ["return load_state(kernel, source, source_at)"]
    if kernel.layout.has_rest:
        lines = [
            "copy_record(kernel, source, source_at, target, target_at)",
            "return load_state(kernel, target, target_at)",
        ]
    return lines, {"load_state": load_state, "copy_record": copy_record}


@accessor("kernel, data, row")
def load_action(kernel: _Numbers) -> Any:
    """Return an action of a batch: a number, or a tuple of numbers."""
    action = kernel.layout.action
    size = action.size * np.dtype(action.dtype).itemsize
    return [f"return {_tuple_of((action,), f'row * {size}')}" + "[0]" * kernel.layout.has_scalar_action], {}


@accessor("kernel, uniforms, low, size, lowest, highest, constants")
def random_action(kernel: _Numbers) -> Any:
    """Return the action that random numbers stand for, as `planvec.rows.random_actions.actions_of`."""
    # The arguments are arrays with one number for each number of an action: random numbers in [0, 1), the
    # smallest value, the size of the range, and the limits of values that rounding may exceed.
    action, values = kernel.layout.action, []
    name = _type_name(action)
    for index in range(action.size):
        if np.dtype(action.dtype).kind == "f":
            drawn = f"{name}(low[{index}] + size[{index}] * uniforms[{index}])"
            values.append(f"min(max({drawn}, {name}(lowest[{index}])), {name}(highest[{index}]))")
        else:
            values.append(f"{name}(int64(low[{index}]) + int64(floor(uniforms[{index}] * size[{index}])))")
    result = values[0] if kernel.layout.has_scalar_action else f"({', '.join(values)},)"
    return [f"return {result}"], {"floor": math.floor}


@accessor("kernel, state, action, constants, random")
def take_step(kernel: _Numbers) -> Any:
    """Take a step. Returns the state, the reward, whether it is terminal, and what infos are made of."""
    values = [
        f"after[{index}]" if field.is_array else f"{_type_name(field)}(after[{index}])"
        for index, (field, _) in enumerate(_elements(kernel.layout.fields))
    ]
    lines = [
        f"after, reward, terminated, extra = function(state, action, {_constants(kernel)}, random)",
        f"return ({', '.join(values)},), float(reward), bool(terminated), float(extra)",
    ]
    return lines, _inlined(kernel.kernel.step)


@accessor("kernel, state, ended, constants")
def refuses(kernel: _Numbers) -> Any:
    """Return whether the environment itself has to handle a state, before it is stepped or observed."""
    return [f"return function(state, ended, {_constants(kernel)})"], _inlined(kernel.kernel.refuses)


@accessor("kernel, state")
def is_valid(kernel: _Numbers) -> Any:
    """Return whether a step has reached a state; otherwise the environment itself has to take it."""
    return ["return True"], {}


@accessor("kernel")
def max_repeats(kernel: _Numbers) -> Any:
    """Return the largest number of steps of a row in one loop, which Ctrl-C cannot interrupt."""
    return [f"return {10**6}"], {}


@accessor("kernel, data, row, state, constants")
def store_observation(kernel: _Numbers) -> Any:
    """Write the observation of a state into the arrays `data` of the observations of a batch."""
    lines, index = [f"numbers = function(state, {_constants(kernel)})"], 0
    for part, field in enumerate(kernel.layout.observation):
        size, name = np.dtype(field.dtype).itemsize, _type_name(field)
        for number in range(field.size):
            offset = f"row * {field.size * size} + {number * size}"
            lines.append(f"store(data[{part}], {offset}, {name}, {name}(numbers[{index}]))")
            index += 1
    return lines, _inlined(kernel.kernel.observe)


@accessor("kernel, data, row, states, at, constants")
def observe_ended(kernel: _Numbers) -> Any:
    """Write the observation of a row whose episode has ended: of the record at an offset of `states`."""
    line = "store_observation(kernel, data, row, load_state(kernel, states, at), constants)"
    return [line], {"store_observation": store_observation, "load_state": load_state}


# -- the fields that planvec adds to the state ----------------------------------------------------------


@accessor("kernel")
def record_size(kernel: KernelType[Any]) -> Any:
    """Return the number of bytes of a record."""
    return [f"return {kernel.layout.itemsize}"], {}


@accessor("kernel")
def action_size(kernel: KernelType[Any]) -> Any:
    """Return A."""
    return [f"return {kernel.layout.action.size}"], {}


@accessor("kernel, data, at")
def has_ended(kernel: KernelType[Any]) -> Any:
    """Return whether the episode of the record at an offset has ended."""
    first, second = sorted((kernel.layout.terminated, kernel.layout.truncated))
    result = f"load(data, at + {first}, uint8) | load(data, at + {second}, uint8)"
    if second == first + 1:
        result = f"load(data, at + {first}, uint16)"
    return [f"return {result} != 0"], {}


@accessor("kernel, data, at")
def ends_of(kernel: KernelType[Any]) -> Any:
    """Return the flags `terminated` and `truncated` of the record at an offset."""
    layout = kernel.layout
    flags = [f"load(data, at + {offset}, uint8) != 0" for offset in (layout.terminated, layout.truncated)]
    return [f"return {', '.join(flags)}"], {}


@accessor("kernel, data, at")
def elapsed_of(kernel: KernelType[Any]) -> Any:
    """Return the steps since the reset; 0 if states do not count them."""
    offset = kernel.layout.elapsed
    return ["return " + ("0" if offset < 0 else f"load(data, at + {offset}, int32)")], {}


@accessor("kernel, data, at, elapsed, terminated, truncated")
def store_ends(kernel: KernelType[Any]) -> Any:
    """Write the flags and the steps since the reset."""
    layout = kernel.layout
    lines = [
        f"store(data, at + {layout.terminated}, uint8, terminated)",
        f"store(data, at + {layout.truncated}, uint8, truncated)",
    ]
    if layout.elapsed >= 0:
        lines.append(f"store(data, at + {layout.elapsed}, int32, min(elapsed, 2147483647))")
    return lines, {}


def _if_drawing(kernel: KernelType[Any], function: Any, arguments: str) -> Any:
    """Return a call for a kernel whose states hold a generator; for others, a line that does nothing."""
    line = f"function({arguments})" if kernel.layout.generator >= 0 else "pass"
    return [line], {"function": function}


@accessor("kernel, random, data, at")
def generator_in(kernel: KernelType[Any]) -> Any:
    """Read the generator of a record."""
    return _if_drawing(kernel, load_generator, f"random, data, at + {kernel.layout.generator}")


@accessor("kernel, random, data, at")
def generator_out(kernel: KernelType[Any]) -> Any:
    """Write the generator of a record."""
    return _if_drawing(kernel, store_generator, f"random, data, at + {kernel.layout.generator}")


@accessor("kernel, random, seed, pool")
def reseed(kernel: KernelType[Any]) -> Any:
    """Seed the generator, if there is one."""
    return _if_drawing(kernel, seed_generator, "random, seed, pool")


# result of a loop that met a state which the environment itself has to handle; 0 if there was none
REFUSED = 1

Bytes = NDArray[np.uint8]
# rewards, `terminated`, `truncated`, numbers of steps: `[B]` each
Results = tuple[NDArray[np.float64], NDArray[np.uint8], NDArray[np.uint8], NDArray[np.int64]]


# -- The loop over steps -------------------------------------------------------------------------------------


@jit(cache=True, allocates=True)
def keep_ended(
    kernel: Any,
    constants: Any,
    row: int,
    states: Bytes,
    source: int,
    new_states: Bytes,
    target: int,
    observations: Any,
    results: Results,
) -> int:
    """Write the results of a row whose episode has ended: its state does not change, and its reward is 0."""
    # `observations`: as in `step_rows`.
    if refuses(kernel, load_state(kernel, states, source), observations is not None, constants):
        return REFUSED
    rewards, terminated, truncated, num_steps = results
    copy_record(kernel, states, source, new_states, target)
    was_terminated, was_truncated = ends_of(kernel, states, source)
    store_ends(kernel, new_states, target, elapsed_of(kernel, states, source), was_terminated, was_truncated)
    rewards[row], num_steps[row] = 0.0, 0
    terminated[row], truncated[row] = was_terminated, was_truncated
    if observations is not None:
        observe_ended(kernel, observations, row, states, source, constants)
    return 0


@jit(cache=True, allocates=True)
def step_rows(
    kernel: Any,
    constants: Any,
    first: int,
    last: int,
    states: Bytes,  # the bytes of B states
    actions: Bytes,  # the bytes of the actions
    dt: Any,  # `[B]` int64, how often an action is repeated. None: once, for which another loop is compiled.
    seeds: NDArray[np.uint64],  # `[B]`; empty: none
    time_limit: int,
    new_states: Bytes,  # Written: the bytes of B states, or of one
    has_new_states: bool,
    observations: Any,
    results: Results,  # Written: rewards, flags and numbers of steps, each `[B]`
    extras: NDArray[np.float64],  # `[B, ...]` or `[1, ...]`, written
    has_extras: bool,
) -> int:
    """Step rows."""
    # Rows from `first` up to, but not including, `last`. `has_new_states`, `has_extras`: room for B; else
    # `new_states` and `extras` hold one.
    # `observations`: Written: the bytes of each array of the observations. None: not wanted, for which
    # another loop is compiled.
    # Returns 0 or `REFUSED`.
    rewards, terminated, truncated, num_steps = results
    random, pool = np.zeros(NUM_WORDS, np.uint64), np.zeros(4, np.uint32)
    has_seeds = len(seeds) > 0
    for row in range(first, last):
        source = row * record_size(kernel)
        target = source if has_new_states else 0
        if has_ended(kernel, states, source):
            status = keep_ended(
                kernel, constants, row, states, source, new_states, target, observations, results
            )
            if status != 0:
                return status
            continue
        state = begin_state(kernel, states, source, new_states, target, constants)
        generator_in(kernel, random, states, source)
        if has_seeds:
            reseed(kernel, random, seeds[row], pool)
        action, elapsed = load_action(kernel, actions, row), elapsed_of(kernel, states, source)
        left = time_limit - elapsed
        wanted = 1 if dt is None else min(dt[row], left)
        if wanted > max_repeats(kernel):
            return REFUSED
        count, reward = 0, 0.0
        while True:
            if refuses(kernel, state, False, constants):
                return REFUSED
            state, more, is_terminated, extra = take_step(kernel, state, action, constants, random)
            if not is_valid(kernel, state):
                return REFUSED
            # The first one is not added to 0, which would make -0 of it 0.
            reward = more if count == 0 else reward + more
            count += 1
            if is_terminated or count >= wanted:
                break
        is_truncated = count >= left
        store_state(kernel, new_states, target, state, constants)
        generator_out(kernel, random, new_states, target)
        store_ends(kernel, new_states, target, elapsed + count, is_terminated, is_truncated)
        if observations is not None:
            store_observation(kernel, observations, row, state, constants)
        # `store`, because indexing would test whether each index is negative.
        store(rewards, row * 8, np.float64, reward)
        store(num_steps, row * 8, np.int64, count)
        store(terminated, row, np.uint8, is_terminated)
        store(truncated, row, np.uint8, is_truncated)
        if has_extras:
            extras[row] = extra
    return 0


# -- The loop over rollouts ----------------------------------------------------------------------------------


@jit(cache=True, allocates=True)
def roll_rows(
    kernel: Any,
    constants: Any,
    first: int,
    last: int,
    states: Bytes,  # the bytes of B states
    actions: Bytes,  # the bytes of the actions, those of a row one after another; empty: random ones
    horizon: int,
    discount: float,
    seeds: NDArray[np.uint64],  # `[B]`; empty: none
    time_limit: int,
    action_seed: np.uint64,
    first_row: int,
    low: NDArray[np.float64],  # `[A]`, see `random_action`
    size: NDArray[np.float64],  # `[A]`
    lowest: NDArray[np.float64],  # `[A]`
    highest: NDArray[np.float64],  # `[A]`
    new_states: Bytes,  # Written: the bytes of B states
    results: Results,  # Written: returns, flags and numbers of steps, each `[B]`
) -> int:
    """Roll out rows. Arguments that `step_rows` has, too, are described there."""
    # `first_row`: index in the whole batch.
    # Returns 0 or `REFUSED`.
    returns, terminated, truncated, num_steps = results
    random, pool = np.zeros(NUM_WORDS, np.uint64), np.zeros(4, np.uint32)
    uniforms, block = np.zeros(len(low)), np.zeros(4)
    has_seeds, has_actions = len(seeds) > 0, len(actions) > 0
    for row in range(first, last):
        at = row * record_size(kernel)
        if has_ended(kernel, states, at):
            status = keep_ended(kernel, constants, row, states, at, new_states, at, None, results)
            if status != 0:
                return status
            continue
        state = begin_state(kernel, states, at, new_states, at, constants)
        generator_in(kernel, random, states, at)
        if has_seeds:
            reseed(kernel, random, seeds[row], pool)
        elapsed = elapsed_of(kernel, states, at)
        left = time_limit - elapsed
        wanted = min(horizon, left)
        if wanted > max_repeats(kernel):
            return REFUSED
        total, weight, count, held, is_terminated = 0.0, 1.0, 0, -1, False
        while True:
            if refuses(kernel, state, False, constants):
                return REFUSED
            if has_actions:
                action = load_action(kernel, actions, row * horizon + count)
            else:
                held = draw_uniforms(
                    action_size(kernel), uniforms, block, action_seed, first_row + row, count, held
                )
                action = random_action(kernel, uniforms, low, size, lowest, highest, constants)
            state, reward, is_terminated, _ = take_step(kernel, state, action, constants, random)
            if not is_valid(kernel, state):
                return REFUSED
            total += weight * reward
            weight *= discount
            count += 1
            if is_terminated or count >= wanted:
                break
        is_truncated = count >= left
        store_state(kernel, new_states, at, state, constants)
        generator_out(kernel, random, new_states, at)
        store_ends(kernel, new_states, at, elapsed + count, is_terminated, is_truncated)
        returns[row], num_steps[row] = total, count
        terminated[row], truncated[row] = is_terminated, is_truncated
    return 0
