"""Steps and rolls out batches of MuJoCo environments with the compiled loops, on the threads of this process.

The state of a row is a simulation: MuJoCo's C library, called by compiled code. Each thread has a simulation
of its own. All use the model of the environment itself, so that what the user changes in it counts.

Letters: B rows, A numbers of an action, K numbers for the infos of a row.
"""

from __future__ import annotations

import copy
import ctypes
import functools
import logging
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import Any, NamedTuple

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
from planvec.kernels.base import Field, OpenedEnv, layout_of
from planvec.kernels.compiled import LoopKernel
from planvec.kernels.digests import check_originals, code_digest
from planvec.kernels.kernel_type import KernelType, Pointer, generator_of
from planvec.kernels.memory import copy_bytes, intrinsic_function, load, store
from planvec.kernels.mujoco.task import Arrays, Task, inner
from planvec.rows import Columns

_log = logging.getLogger("planvec")

# -- The functions and callbacks of the MuJoCo library that this process has loaded --------------------------

_CALLBACKS = ("passive", "control", "contactfilter", "sensor", "act_dyn", "act_gain", "act_bias")
_WRAPPED = ("mj_step", "mj_rnePostConstraint")  # functions through which Gymnasium simulates
_SLEEP = int(getattr(mujoco.mjtEnableBit, "mjENBL_SLEEP", 0))


@functools.cache
def _library() -> ctypes.CDLL:
    """Return the library: its functions are found through the module that is linked with it."""
    return ctypes.CDLL(mujoco._functions.__file__)


@functools.cache
def _functions() -> tuple[int, int, int, int]:
    """Return the addresses of the functions that `Physics` holds, in its order."""
    names = ("mj_step", "mj_setState", "mj_getState", "mj_rnePostConstraint")
    try:
        pointers = [ctypes.cast(getattr(_library(), name), ctypes.c_void_p).value for name in names]
    except (AttributeError, OSError) as error:
        raise ValueError(f"the functions of MuJoCo cannot be found: {error}") from error
    step, set_state, get_state, compute_forces = (int(pointer or 0) for pointer in pointers)
    return step, set_state, get_state, compute_forces


@functools.cache
def _callbacks() -> list[Any]:
    return [ctypes.c_void_p.in_dll(_library(), f"mjcb_{name}") for name in _CALLBACKS]


@functools.cache
def _valid_options() -> dict[str, frozenset[int]]:
    """Return the options of a model, and their values with which MuJoCo can simulate."""
    kinds = {"integrator": "Integrator", "solver": "Solver", "cone": "Cone", "jacobian": "Jacobian"}
    return {
        name: frozenset(int(value) for value in getattr(mujoco, f"mjt{kind}").__members__.values())
        for name, kind in kinds.items()
    }


# -- A simulation of one thread: an `MjData` of its own, and where its numbers are.
#
# MuJoCo ends the process when the memory of an `MjData` is too small, unless it was called by its Python
# module. So these simulations have several times the memory of the environment's. A batch in which one of
# them has used more than the environment has is stepped by the environment itself.

# Number of warnings of each kind before a row is stepped. MuJoCo prints a warning if there were none before;
# it sets all numbers to zero when it resets a simulation that is not stable.
QUIET = 1
_SIGNATURE = np.int32(int(mujoco.mjtState.mjSTATE_INTEGRATION))  # a C int
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
    signature: np.int32  # bits that name the parts of a state
    num_state: int
    arrays: Arrays  # the arrays that tasks read
    # `[n, 3]` int64: offset from `memory`, size, and whether it holds integers, of each array that follows
    # the state in a record
    saved: NDArray[np.int64]
    warnings: NDArray[np.int32]  # number of warnings of each kind
    # memory of the thread, which loops write
    numbers: NDArray[np.float64]  # the numbers of a record, which are not aligned there
    memory: NDArray[np.uint8]  # the bytes of `numbers`
    action: NDArray[np.uint8]  # the bytes of a random action
    extras: NDArray[np.float64]  # `[K]`, what the infos of a row are made of


class Simulation:
    """Simulates rows in one thread."""

    def __init__(self, model: Any, saved: tuple[str, ...], num_extras: int) -> None:
        self._model = model
        self.data = _data_with_memory(model)
        num_state = mujoco.mj_stateSize(model, int(_SIGNATURE))
        arrays = [getattr(self.data, name, None) for name in saved]
        places = [_place(array) for array in arrays if array is not None and array.size]
        self.size = num_state + sum(size for _, size, _ in places)  # numbers in a record
        numbers = np.empty(self.size)
        saved_at = np.array(places, np.int64).reshape(-1, 3)
        saved_at[:, 0] -= numbers.ctypes.data
        flat = {name: getattr(self.data, name).reshape(-1) for name in Arrays._fields if name != "body_mass"}
        # for compiled loops
        physics = Physics(
            model._address,
            self.data._address,
            *_functions(),
            _SIGNATURE,
            num_state,
            Arrays(**flat, body_mass=model.body_mass),
            saved_at,
            self.data.warning.number,
            numbers,
            numbers.view(np.uint8),
            np.empty(4 * model.nu, np.uint8),
            np.zeros(num_extras),
        )
        self.physics = Pointer(physics)

    def prepare(self) -> None:
        """Prepare for a batch."""
        self.data.maxuse_arena = 0
        self.data.warning.number[:] = QUIET

    @property
    def has_exceeded_memory(self) -> bool:
        """Whether the batch has used more memory than a simulation of the environment may have."""
        return bool(self.data.maxuse_arena > self._model.narena * 0.9)


def _place(array: np.ndarray) -> tuple[int, int, bool]:
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


# -- Calls functions of MuJoCo's C library from compiled code.
#
# Addresses are arguments, never constants: numba keeps compiled code on disk, and a library lies elsewhere in
# every process.


@intrinsic_function
def call(typing_context: object, function: object, given: Any) -> Any:
    """Call a function without a result. Pointers among its arguments are given as integers."""

    def generate(context: Any, builder: Any, signature: object, arguments: Any) -> Any:
        values = cgutils.unpack_tuple(builder, arguments[1])
        pointers = [
            builder.inttoptr(value, ir.IntType(8).as_pointer()) if kind.bitwidth == 64 else value
            for value, kind in zip(values, given, strict=True)
        ]
        kind = ir.FunctionType(ir.VoidType(), [value.type for value in pointers])
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), pointers)
        return context.get_dummy_value()

    return types.void(types.int64, given), generate


# -- What the loops of `planvec.kernels.step_loop` call for a task ------------------------------------------


class TaskType(KernelType[Task]):
    """Stands for a task and a layout in the signatures of loops."""

    max_repeats = 10_000


register_default(TaskType)(models.OpaqueModel)


class Machine(NamedTuple):
    """Holds what the loops of a thread take as constants."""

    physics: Pointer[Physics]  # the simulation of the thread; its many arrays are not passed one by one
    constants: Any  # those of the task
    frame_skip: int  # simulation steps of one step


@inner
def _load_physics(physics: Any, states: object, at: int) -> None:
    """Put a simulation into the state that begins at an offset of the bytes of all records."""
    numbers, memory, start = physics.numbers, physics.memory, physics.num_state
    copy_bytes(states, at, memory, 0, len(memory))
    call(physics.set_state, (physics.model, physics.data, numbers.ctypes.data, physics.signature))
    for index in range(len(physics.saved)):
        place, size = physics.saved[index, 0], physics.saved[index, 1]
        if physics.saved[index, 2]:
            for number in range(size):
                store(memory, place + 4 * number, np.int32, numbers[start + number])
        else:
            copy_bytes(memory, 8 * start, memory, place, 8 * size)
        start += size


@inner
def _save_physics(physics: Any, states: object, at: int) -> None:
    """Write the state of a simulation. Arguments as in `_load_physics`."""
    numbers, memory, start = physics.numbers, physics.memory, physics.num_state
    call(physics.get_state, (physics.model, physics.data, numbers.ctypes.data, physics.signature))
    for index in range(len(physics.saved)):
        place, size = physics.saved[index, 0], physics.saved[index, 1]
        if physics.saved[index, 2]:
            for number in range(size):
                numbers[start + number] = load(memory, place + 4 * number, np.int32)
        else:
            copy_bytes(memory, place, memory, 8 * start, 8 * size)
        start += size
    copy_bytes(memory, 0, states, at, len(memory))


@inner
def _simulate(physics: Any, frame_skip: int, action: Any) -> None:
    """Simulate one step."""
    control = physics.arrays.ctrl
    for index in range(len(control)):
        control[index] = action[index]
    for _ in range(frame_skip):
        call(physics.step, (physics.model, physics.data))


@inner
def _is_quiet(physics: Any) -> bool:
    """Return whether a simulation has given no warning: it is stable."""
    is_quiet = True
    for number in physics.warnings:
        is_quiet = is_quiet and number == QUIET
    return is_quiet


# A state in compiled code is whether the simulation is stable, which holds the rest.


@generator_of(step_loop.begin_state, TaskType)
def _begin_state(kernel: TaskType) -> Any:
    first = kernel.layout.fields[0].offset
    lines = [f"load_physics(value_at(constants.physics), source, source_at + {first})", "return True"]
    return lines, {"load_physics": _load_physics}


@generator_of(step_loop.store_state, TaskType)
def _store_state(kernel: TaskType) -> Any:
    first, held = kernel.layout.fields[0].offset, kernel.layout.held
    lines = ["physics = value_at(constants.physics)", f"save_physics(physics, data, at + {first})"]
    if held >= 0:
        observation = f"view(data, at + {held}, {kernel.layout.observation[0].size}, float64)"
        lines.append(f"observe(physics.arrays, constants.constants, {observation})")
    return lines, {"save_physics": _save_physics, "observe": inner(kernel.kernel.observe)}


@generator_of(step_loop.load_action, TaskType)
def _load_action(kernel: TaskType) -> Any:
    size = kernel.layout.action.size
    return [f"return view(data, {4 * size} * row, {size}, float32)"], {}


@generator_of(step_loop.random_action, TaskType)
def _random_action(kernel: TaskType) -> Any:
    size = kernel.layout.action.size
    lines = [
        f"action = view(value_at(constants.physics).action, 0, {size}, float32)",
        f"for index in range({size}):",
        "    drawn = float32(low[index] + size[index] * uniforms[index])",
        "    action[index] = min(max(drawn, float32(lowest[index])), float32(highest[index]))",
        "return action",
    ]
    return lines, {}


@generator_of(step_loop.take_step, TaskType)
def _take_step(kernel: TaskType) -> Any:
    task = kernel.kernel
    before, outcome, reads_forces = inner(task.before), inner(task.outcome), task.reads_forces

    def step(physics, constants, frame_skip, action):  # type: ignore[no-untyped-def]
        start = before(physics.arrays, constants)
        _simulate(physics, frame_skip, action)
        if reads_forces:
            call(physics.compute_forces, (physics.model, physics.data))
        reward, terminated = outcome(physics.arrays, constants, start, action, physics.extras)
        return _is_quiet(physics), float(reward), bool(terminated)

    lines = [
        "physics = value_at(constants.physics)",
        "is_stable, reward, terminated = step(physics, constants.constants, constants.frame_skip, action)",
        "return is_stable, reward, terminated, physics.extras",
    ]
    return lines, {"step": inner(step)}


generator_of(step_loop.refuses, TaskType)(lambda kernel: (["return False"], {}))
generator_of(step_loop.is_valid, TaskType)(lambda kernel: (["return state"], {}))


@generator_of(step_loop.store_observation, TaskType)
def _store_observation(kernel: TaskType) -> Any:
    size = kernel.layout.observation[0].size
    lines = [
        f"observation = view(data[0], {8 * size} * row, {size}, float64)",
        "observe(value_at(constants.physics).arrays, constants.constants, observation)",
    ]
    return lines, {"observe": inner(kernel.kernel.observe)}


@generator_of(step_loop.observe_ended, TaskType)
def _observe_ended(kernel: TaskType) -> Any:
    size, first, held = kernel.layout.observation[0].size, kernel.layout.fields[0].offset, kernel.layout.held
    if held >= 0:
        source = f"view(states, at + {held}, {size}, float64)"
        return [f"view(data[0], {8 * size} * row, {size}, float64)[:] = {source}"], {}
    lines = [
        f"load_physics(value_at(constants.physics), states, at + {first})",
        "store_observation(kernel, data, row, True, constants)",
    ]
    return lines, {"load_physics": _load_physics, "store_observation": step_loop.store_observation}


# -- The kernel ----------------------------------------------------------------------------------------------


class MujocoKernel(LoopKernel):
    """Steps and rolls out batches with MuJoCo's C functions; see `planvec.kernels.BatchKernel`."""

    num_proved = 48
    proved_horizon = 40
    # Steps take 50 microseconds and more, and rows differ: threads take few rows at a time.
    _slice_steps = (4, 64)
    _has_single_loop = False  # a simulation takes longer than what that saves

    def __init__(self, task: Task, opened: OpenedEnv) -> None:
        env, dtype = opened.env, opened.dtype
        self._task = task
        base: Any = env.unwrapped
        self._model, self._data = base.model, base.data
        space, observed = env.action_space, env.observation_space
        is_known = isinstance(space, spaces.Box) and space.shape == (self._model.nu,)
        if not is_known or space.dtype != np.float32 or observed.dtype != np.float64:
            raise ValueError(f"actions of {space}, observations of {observed}")
        check_originals(base)
        if any(type(getattr(mujoco, name)) is not BuiltinFunctionType for name in _WRAPPED):
            raise ValueError("a function of mujoco was replaced")
        num_extras = sum(kind if isinstance(kind, int) else 1 for _, kind in task.entries(base))
        self._simulations = [
            Simulation(self._model, saved_arrays(base), num_extras) for _ in range(opened.num_threads)
        ]
        layout = layout_of(opened, ("physics",), may_hold=True)
        (physics,) = layout.fields
        known = {"physics", "observation", "elapsed_steps", "terminated", "truncated"}
        if physics[:2] != Field("<f8", self._simulations[0].size)[:2] or not set(dtype.names or ()) <= known:
            raise ValueError(f"states of another form: {dtype}")
        digest = f"{code_digest(task.before, task.outcome, task.observe)} {task.reads_forces}"
        kernel_type = TaskType(task, digest, layout)
        constants = task.constants(base)
        super().__init__(kernel_type, opened, constants, (num_extras,))

    def _constants(self) -> Any:
        base, options = self._base, self._model.opt
        if base.model is not self._model or base.data is not self._data:
            return None
        # A callback that takes part in simulations may be a Python function. The clock of the module is none.
        if any(callback.value for callback in _callbacks()) or mujoco.get_mjcb_time() is not None:
            return None
        # With an unknown option MuJoCo would end the process. Gymnasium simulates through the Python module,
        # which turns MuJoCo's errors into exceptions.
        if not all(getattr(options, name) in values for name, values in _valid_options().items()):
            return None
        if type(base.frame_skip) is not int or options.enableflags & _SLEEP:
            return None
        try:
            return self._task.constants(base)
        except Exception:  # the user has changed or deleted an attribute; the environment says what is wrong
            _log.debug("%s steps itself", base, exc_info=True)
            return None

    def _passed(self, constants: object, thread: int) -> Machine:
        return Machine(self._simulations[thread].physics, constants, self._base.frame_skip)

    def _run(self, run: Callable[[int, int, int], int], num_rows: int, num_steps: int, is_even: bool) -> bool:
        for simulation in self._simulations:
            simulation.prepare()
        is_done = super()._run(run, num_rows, num_steps, is_even=False)
        return is_done and not any(one.has_exceeded_memory for one in self._simulations)

    def _columns(
        self, constants: object, extras: NDArray[np.float64], observations: object, stepped: NDArray[np.bool_]
    ) -> Columns:
        return self._task.columns(self._base, extras, stepped)

    def spread(self, states: np.ndarray, random: np.random.Generator) -> None:
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
