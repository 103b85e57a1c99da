"""Steps and rolls out batches of MuJoCo environments with the compiled loops, on the threads of this process.

The state of a row is a simulation: MuJoCo's C library, called by compiled code. Each thread has a simulation
of its own. All use the model of the environment itself, so that what the user changes in it counts.

Letters: B rows, A numbers of an action, K numbers for the infos of a row.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import mujoco
import numpy as np
from gymnasium import spaces
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.datamodel.registry import register_default
from numpy.typing import NDArray

from planvec.codecs import saved_arrays
from planvec.kernels import step_loop
from planvec.kernels.base import Field, layout_of
from planvec.kernels.compiled import LoopKernel
from planvec.kernels.digests import check_originals, code_digest
from planvec.kernels.kernel_type import KernelType, generated, generator_of
from planvec.kernels.memory import intrinsic_function, view
from planvec.kernels.mujoco.simulation import (
    QUIET,
    Physics,
    Simulation,
    has_callbacks,
    has_valid_options,
    is_original,
)
from planvec.kernels.mujoco.task import Task, inner
from planvec.rows import Columns

_log = logging.getLogger("planvec")

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


# -- What the loops of `planvec.kernels.step_loop` call for a task ------------------------------------------


class TaskType(KernelType[Task]):
    """Stands for a task and a layout in the signatures of loops."""


register_default(TaskType)(models.OpaqueModel)


class Machine(NamedTuple):
    """Holds what the loops of a thread take as constants."""

    physics: Physics  # the simulation of the thread
    constants: Any  # those of the task
    frame_skip: int  # simulation steps of one step


@inner
def _load_physics(physics: Any, states: Any, at: int) -> None:
    """Put a simulation into the state that begins at an offset of the bytes of all records."""
    scratch = physics.scratch
    numbers = scratch.ctypes.data
    copy_bytes(numbers, states.ctypes.data + at, 8 * len(scratch))
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
def _save_physics(physics: Any, states: Any, at: int) -> None:
    """Write the state of a simulation. Arguments as in `_load_physics`."""
    scratch = physics.scratch
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
    copy_bytes(states.ctypes.data + at, numbers, 8 * len(scratch))


@inner
def _simulate(physics: Any, frame_skip: int, action: Any) -> None:
    """Simulate one step."""
    control = physics.arrays.ctrl
    for index in range(len(control)):
        control[index] = action[index]
    for _ in range(frame_skip):
        call(physics.step, physics.model, physics.data)


@inner
def _is_quiet(physics: Any) -> bool:
    """Return whether a simulation has given no warning: it is stable."""
    is_quiet = True
    for number in physics.warnings:
        is_quiet = is_quiet and number == QUIET
    return is_quiet


@generator_of(step_loop.begin_state, TaskType)
def _begin_state(kernel: TaskType) -> Any:
    # A state in compiled code is whether the simulation is stable, which holds the rest.
    first = kernel.layout.fields[0].offset

    def begin_state(kernel, source, source_at, target, target_at, constants):  # type: ignore[no-untyped-def]
        _load_physics(constants.physics, source, source_at + first)
        return True

    return begin_state


@generator_of(step_loop.store_state, TaskType)
def _store_state(kernel: TaskType) -> Any:
    first, held, observe = kernel.layout.fields[0].offset, kernel.layout.held, inner(kernel.kernel.observe)
    num_observed = kernel.layout.observation[0].size

    def store_state(kernel, data, at, state, constants):  # type: ignore[no-untyped-def]
        physics = constants.physics
        _save_physics(physics, data, at + first)
        if held >= 0:
            observation = view(data, at + held, num_observed, np.float64)
            observe(physics.arrays, constants.constants, observation)

    return store_state


@generator_of(step_loop.load_action, TaskType)
def _load_action(kernel: TaskType) -> Any:
    size = kernel.layout.action.size

    def load_action(kernel, data, row):  # type: ignore[no-untyped-def]
        return view(data, 4 * row * size, size, np.float32)

    return load_action


@generator_of(step_loop.random_action, TaskType)
def _random_action(kernel: TaskType) -> Any:
    num_controls = kernel.layout.action.size

    def random_action(kernel, uniforms, low, size, lowest, highest, constants):  # type: ignore[no-untyped-def]
        action = view(constants.physics.action, 0, num_controls, np.float32)
        for index in range(num_controls):
            drawn = np.float32(low[index] + size[index] * uniforms[index])
            action[index] = min(max(drawn, np.float32(lowest[index])), np.float32(highest[index]))
        return action

    return random_action


@generator_of(step_loop.take_step, TaskType)
def _take_step(kernel: TaskType) -> Any:
    task = kernel.kernel
    before, outcome, reads_forces = inner(task.before), inner(task.outcome), task.reads_forces

    def step(physics, constants, frame_skip, action):  # type: ignore[no-untyped-def]
        start = before(physics.arrays, constants)
        _simulate(physics, frame_skip, action)
        if reads_forces:
            call(physics.compute_forces, physics.model, physics.data)
        reward, terminated = outcome(physics.arrays, constants, start, action, physics.extras)
        return _is_quiet(physics), float(reward), bool(terminated)

    inner_step: Any = inner(step)

    def take_step(kernel, state, action, constants, random):  # type: ignore[no-untyped-def]
        physics = constants.physics
        is_stable, reward, terminated = inner_step(physics, constants.constants, constants.frame_skip, action)
        return is_stable, reward, terminated, physics.extras

    return take_step


@generator_of(step_loop.refuses, TaskType)
def _refuses(kernel: TaskType) -> Any:
    return generated("refuses", "kernel, state, ended, constants", ["return False"])


@generator_of(step_loop.is_valid, TaskType)
def _is_valid(kernel: TaskType) -> Any:
    return generated("is_valid", "kernel, state", ["return state"])


@generator_of(step_loop.max_repeats, TaskType)
def _max_repeats(kernel: TaskType) -> Any:
    return generated("max_repeats", "kernel", ["return 10_000"])


@generator_of(step_loop.store_observation, TaskType)
def _store_observation(kernel: TaskType) -> Any:
    observe, size = inner(kernel.kernel.observe), kernel.layout.observation[0].size

    def store_observation(kernel, data, row, state, constants):  # type: ignore[no-untyped-def]
        observation = view(data[0], 8 * row * size, size, np.float64)
        observe(constants.physics.arrays, constants.constants, observation)

    return store_observation


@generator_of(step_loop.observe_ended, TaskType)
def _observe_ended(kernel: TaskType) -> Any:
    observe, size = inner(kernel.kernel.observe), kernel.layout.observation[0].size
    first, held = kernel.layout.fields[0].offset, kernel.layout.held

    def observe_ended(kernel, data, row, states, at, constants):  # type: ignore[no-untyped-def]
        observation = view(data[0], 8 * row * size, size, np.float64)
        if held >= 0:
            observation[:] = view(states, at + held, size, np.float64)
        else:
            _load_physics(constants.physics, states, at + first)
            observe(constants.physics.arrays, constants.constants, observation)

    return observe_ended


# -- The kernel ----------------------------------------------------------------------------------------------

_SLEEP = int(getattr(mujoco.mjtEnableBit, "mjENBL_SLEEP", 0))


class MujocoKernel(LoopKernel):
    """Steps and rolls out batches with MuJoCo's C functions; see `planvec.kernels.BatchKernel`."""

    num_proved = 48
    proved_horizon = 40
    # Steps take 50 microseconds and more, and rows differ: threads take few rows at a time.
    _slice_steps = (4, 64)
    _has_single_loop = False  # a simulation takes longer than what that saves

    def __init__(
        self,
        task: Task,
        env: gymnasium.Env[Any, Any],
        dtype: np.dtype[Any],  # the dtype of one state
        time_limit: int | None,
        num_threads: int,
    ) -> None:
        self._task = task
        base: Any = env.unwrapped
        self._model, self._data = base.model, base.data
        space, observed = env.action_space, env.observation_space
        is_known = isinstance(space, spaces.Box) and space.shape == (self._model.nu,)
        if not is_known or space.dtype != np.float32 or observed.dtype != np.float64:
            raise ValueError(f"actions of {space}, observations of {observed}")
        check_originals(base)
        if not is_original():
            raise ValueError("a function of mujoco was replaced")
        num_extras = sum(kind if isinstance(kind, int) else 1 for _, kind in task.infos(base))
        self._simulations = [
            Simulation(self._model, saved_arrays(base), num_extras) for _ in range(num_threads)
        ]
        layout = layout_of(dtype, ("physics",), env, may_hold=True)
        (physics,) = layout.fields
        known = {"physics", "observation", "elapsed_steps", "terminated", "truncated"}
        if physics[:2] != Field("<f8", self._simulations[0].size)[:2] or not set(dtype.names or ()) <= known:
            raise ValueError(f"states of another form: {dtype}")
        digest = code_digest(task.before, task.outcome, task.observe)
        kernel_type = TaskType(task, digest, layout)
        constants = task.constants(base)
        super().__init__(kernel_type, env, dtype, time_limit, num_threads, constants, (num_extras,))

    def _constants(self) -> Any:
        base = self._base
        if base.model is not self._model or base.data is not self._data or has_callbacks():
            return None
        if not has_valid_options(self._model):
            return None
        if type(base.frame_skip) is not int or self._model.opt.enableflags & _SLEEP:
            return None
        try:
            return self._task.constants(base)
        except Exception:  # the user has changed or deleted an attribute; the environment says what is wrong
            _log.debug("%s steps itself", base, exc_info=True)
            return None

    def _passed(self, constants: Any, thread: int) -> Machine:
        return Machine(self._simulations[thread].physics, constants, self._base.frame_skip)

    def _run(self, run: Callable[[int, int, int], int], num_rows: int, num_steps: int, is_even: bool) -> bool:
        for simulation in self._simulations:
            simulation.prepare()
        is_done = super()._run(run, num_rows, num_steps, is_even=False)
        return is_done and not any(one.has_exceeded_memory for one in self._simulations)

    def _columns(
        self, constants: Any, extras: NDArray[np.float64], observations: Any, stepped: NDArray[np.bool_]
    ) -> Columns:
        return self._task.columns(self._base, extras, stepped)

    def spread(self, states: NDArray[Any], random: np.random.Generator) -> None:
        """Spread states for the proof: bodies lifted, pushed and bent, on the ground and falling."""
        # `states`: `[B]`, changed.
        num_positions, num_velocities = self._model.nq, self._model.nv
        positions = slice(1, 1 + num_positions)  # after the time
        velocities = slice(positions.stop, positions.stop + num_velocities)
        physics, num_rows = states["physics"], len(states)
        size = random.choice([0.02, 0.2], (num_rows, 1))
        physics[:, positions] += size * random.standard_normal((num_rows, num_positions))
        physics[:, velocities] += 10 * size * random.standard_normal((num_rows, num_velocities))
        if self._task.height >= 0:
            physics[:, 1 + self._task.height] += random.choice([0.0, 1.0, -0.2], num_rows)
        states["physics"] = physics
