"""The compiled loop over the rows of a batch, for steps and for rollouts. It is compiled for each kernel.

It does what `planvec.stepping.row_loop` does, on records of bytes, and draws the random actions of
`planvec.rows.random_actions`. Several threads may run it over different rows at the same time.

Letters: B rows, H steps of a rollout, A numbers of an action.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from planvec.kernels.base import Field, Kernel
from planvec.kernels.kernel_type import KernelType, accessor, value_at
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


def _numbers_of(field: Field, number: Callable[[int], str]) -> str:
    """Return an expression for a number, or for a tuple of numbers, of one for each of them."""
    numbers = [number(index) for index in range(field.size)]
    return numbers[0] if field.is_number else f"({''.join(f'{number}, ' for number in numbers)})"


def _loads(field: Field, at: str) -> str:
    """Return an expression for a field of the record in `data` that begins at `at`."""
    name, size = _type_name(field), np.dtype(field.dtype).itemsize
    return _numbers_of(field, lambda index: f"load(data, {at} + {field.offset + index * size}, {name})")


def _constants(kernel: _Numbers) -> str:
    """Return an expression for the constants of a kernel, of which the loops pass those that are no flags."""
    values, index = [], 0
    for flag in kernel.flags:
        values.append(f"constants[{index}]" if flag is None else str(flag))
        index += flag is None
    return f"({''.join(f'{value}, ' for value in values)})"


def _inlined(function: object) -> dict[str, Any]:
    """Return a function of a kernel, compiled into its callers, as the name `function` in generated lines."""
    return {"function": njit(error_model="numpy", forceinline=True)(function)}


@accessor("kernel, data, at")
def load_state(kernel: _Numbers) -> Any:
    """Return the state of the record at an offset; see `Kernel`."""
    values = [
        f"view(data, at + {field.offset}, {field.size}, {_type_name(field)})"
        if field.is_array
        else _loads(field, "at")
        for field in kernel.layout.fields
    ]
    return [f"return ({', '.join(values)},)"], {}


@accessor("kernel, data, at, state, constants")
def store_state(kernel: _Numbers) -> Any:
    """Write a state into the record at an offset. Arrays were changed in place."""
    lines = ["pass"]
    for entry, field in enumerate(kernel.layout.fields):
        name, size = _type_name(field), np.dtype(field.dtype).itemsize
        for index in range(0 if field.is_array else field.size):
            number = field.number(f"state[{entry}]", index)
            lines.append(f"store(data, at + {field.offset + index * size}, {name}, {number})")
    return lines, {}


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
    return [f"return {_loads(action, f'row * {action.size * np.dtype(action.dtype).itemsize}')}"], {}


@accessor("kernel, uniforms, low, size, lowest, highest, constants")
def random_action(kernel: _Numbers) -> Any:
    """Return the action that random numbers stand for, as `planvec.rows.random_actions.actions_of`."""
    # `uniforms`: `[A]`, random numbers in [0, 1). What follows is an `ActionRange`.
    action = kernel.layout.action
    name = _type_name(action)

    def number(index: int) -> str:
        if np.dtype(action.dtype).kind != "f":
            return f"{name}(int64(low[{index}]) + int64(floor(uniforms[{index}] * size[{index}])))"
        drawn = f"{name}(low[{index}] + size[{index}] * uniforms[{index}])"
        return f"min(max({drawn}, {name}(lowest[{index}])), {name}(highest[{index}]))"

    return [f"return {_numbers_of(action, number)}"], {"floor": math.floor}


@accessor("kernel, state, action, constants, random")
def take_step(kernel: _Numbers) -> Any:
    """Take a step. Returns the state, the reward, whether it is terminal, and what infos are made of."""
    values = []
    for place, field in enumerate(kernel.layout.fields):
        entry, name = f"after[{place}]", _type_name(field)
        converted = _numbers_of(field, lambda index: f"{name}({field.number(entry, index)})")  # noqa: B023
        values.append(entry if field.is_array else converted)
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
def sizes_of(kernel: KernelType[Any]) -> Any:
    """Return the number of bytes of a record, A, and `max_repeats`."""
    return [f"return {kernel.layout.itemsize}, {kernel.layout.action.size}, {kernel.max_repeats}"], {}


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


def _if_drawing(kernel: KernelType[Any], function: object, arguments: str) -> Any:
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


# -- The loop over rows --------------------------------------------------------------------------------------


@jit(cache=True, allocates=True)
def run_rows(
    kernel: Any,
    constants: object,
    first: int,
    last: int,
    states: Bytes,  # the bytes of B states
    actions: Bytes,  # the bytes of the actions, those of a row one after another; empty: random ones
    dt: Any,  # `[B]` int64, how often an action is repeated; None: once, or in rollouts
    horizon: Any,  # number of actions of a rollout; None: steps
    discount: float,  # of a rollout
    seeds: NDArray[np.uint64],  # `[B]`; empty: none
    time_limit: int,
    action_seed: object,  # of random actions; None: steps
    first_row: Any,  # index of the first row in the whole batch; None: steps
    action_range: object,  # a `Pointer` to an `ActionRange`; None: steps
    new_states: Bytes,  # Written: the bytes of B states, or of one, which is then written again and again
    observations: object,  # Written: the bytes of each array of the observations; None: not wanted
    results: Results,  # Written: rewards or returns, flags and numbers of steps, each `[B]`
    extras: NDArray[np.float64],  # Written: `[B, ...]` or `[0, ...]`: not wanted
) -> int:
    """Step or roll out the rows from `first` up to, but not including, `last`."""
    # Another loop is compiled for each of the arguments that is None; numba leaves out what is not needed.
    # Returns 0 or `REFUSED`.
    rewards, terminated, truncated, num_steps = results
    size, action_size, max_repeats = sizes_of(kernel)
    random, pool = np.zeros(NUM_WORDS, np.uint64), np.zeros(4, np.uint32)
    if horizon is not None:
        uniforms, block = np.zeros(action_size), np.zeros(4)
        low, span, lowest, highest = value_at(action_range)
    has_seeds, has_actions = len(seeds) > 0, len(actions) > 0
    for row in range(first, last):
        source = row * size
        target = min(source, len(new_states) - size)
        was_terminated, was_truncated = ends_of(kernel, states, source)
        if was_terminated | was_truncated:  # the state does not change, and the reward is 0
            if refuses(kernel, load_state(kernel, states, source), observations is not None, constants):
                return REFUSED
            copy_record(kernel, states, source, new_states, target)
            rewards[row], num_steps[row] = 0.0, 0
            terminated[row], truncated[row] = was_terminated, was_truncated
            if observations is not None:
                observe_ended(kernel, observations, row, states, source, constants)
            continue
        state = begin_state(kernel, states, source, new_states, target, constants)
        generator_in(kernel, random, states, source)
        if has_seeds:
            reseed(kernel, random, seeds[row], pool)
        elapsed = elapsed_of(kernel, states, source)
        left = time_limit - elapsed
        if horizon is not None:
            wanted = min(horizon, left)
        else:
            wanted = 1 if dt is None else min(dt[row], left)
            action = load_action(kernel, actions, row)
        if wanted > max_repeats:
            return REFUSED
        count, reward, weight, held = 0, 0.0, 1.0, -1
        while True:
            if refuses(kernel, state, False, constants):
                return REFUSED
            if horizon is not None:
                if has_actions:
                    action = load_action(kernel, actions, row * horizon + count)
                else:
                    held = draw_uniforms(
                        action_size, uniforms, block, action_seed, first_row + row, count, held
                    )
                    action = random_action(kernel, uniforms, low, span, lowest, highest, constants)
            state, more, is_terminated, extra = take_step(kernel, state, action, constants, random)
            if not is_valid(kernel, state):
                return REFUSED
            if horizon is not None:
                reward += weight * more
                weight *= discount
            else:
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
        if row < len(extras):
            extras[row] = extra
    return 0
