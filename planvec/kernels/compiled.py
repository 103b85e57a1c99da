"""Runs the compiled loops of a kernel over batches. Letters: B rows, A numbers of an action.

StepBatch --> constants of the environment    thread 0: rows 0 to 99, ...      --> Outputs, Columns
              or None: it was changed         thread 1: rows 100 to 199, ...
"""

from __future__ import annotations

import functools
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import Any

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from planvec.kernels.base import ActionRange, Kernel, Layout, OpenedEnv, bytes_of, layout_of
from planvec.kernels.digests import check_originals, code_digest
from planvec.kernels.kernel_type import CodeType, Flags, KernelType, Pointer, compile_loop
from planvec.kernels.step_loop import run_rows
from planvec.kernels.threads import run_sliced
from planvec.rows import (
    UNLIMITED,
    Columns,
    Outputs,
    RolloutBatch,
    StepBatch,
    empty_rows,
    has_mask_field,
    leaves,
)

_log = logging.getLogger("planvec")

_BYTES = types.Array(types.uint8, 1, "C")
_NUMBERS = types.Array(types.float64, 1, "C")
_INTEGERS = types.Array(types.int64, 1, "C")
_SEEDS = types.Array(types.uint64, 1, "C")
_NONE = types.none
_RESULTS = types.Tuple((_NUMBERS, _BYTES, _BYTES, _INTEGERS))
_NO_SEEDS = np.empty(0, np.uint64)
_NO_BYTES = np.empty(0, np.uint8)


# reads the present constants of the environment and returns a loop `loop(kernel, constants, code, ...)` with
# them, which takes the other arguments; None if it was changed so that it has to step itself
BindLoop = Callable[[], Callable[..., int] | None]


class LoopKernel(ABC):
    """Steps and rolls out batches with compiled loops: the base class of kernels of numbers and of MuJoCo."""

    num_proved = 128
    proved_horizon = 80
    # numbers of rows for which the results of a row may differ; () if it makes no difference
    block_sizes: tuple[int, ...] = ()
    _slice_steps = (4096, 10**7)  # smallest and largest number of steps of a slice; see `run_sliced`
    # Whether steps without repeats have a loop of their own. For kernels of numbers it takes 4 to 25 % less
    # time in most cases (CartPole, FrozenLake, MountainCar; 1 to 65,536 rows).
    _has_single_loop = True

    def __init__(
        self,
        kernel_type: KernelType[Any],
        opened: OpenedEnv,
        constants: object,  # the present ones; see `_constants`
        infos_shape: tuple[int, ...] | None,  # shape of what the infos of a row are made of; None: no infos
    ) -> None:
        env = opened.env
        self._base: Any = env.unwrapped
        self._observation_space = env.observation_space
        self._type = kernel_type
        self._layout: Layout = kernel_type.layout
        # steps after which an episode is truncated; a very large number: no limit
        self.time_limit = opened.time_limit or UNLIMITED
        self.num_threads = opened.num_threads
        # Whether states tell which actions are legal. Then the environment draws random ones, and repeats
        # actions.
        self.has_masks = has_mask_field(env.action_space, opened.dtype)
        limits = ActionRange.of(env.action_space)
        unused = Pointer(ActionRange(*[np.empty(0)] * 4))
        # the range of random actions; None if they are drawn otherwise
        self.action_range = None if limits is None else Pointer(limits)
        self._limits = self.action_range or unused
        self._infos_shape = infos_shape
        self._no_extras = np.empty((0, *(infos_shape or ())))
        self._constants_type = numba.typeof(self._passed(constants, 0))
        draws = (types.uint64, types.int64, numba.typeof(self._limits))
        self._roll_rows = self._compile(_NONE, types.int64, draws, _NONE)
        repeats = not self._has_single_loop
        # by whether actions are repeated; the other one is compiled when it is first used
        self._step_loops = {repeats: self._compile_step(repeats)}

    @abstractmethod
    def _constants(self) -> Any:
        """Return the present constants; None if the environment was changed so that it has to step itself."""

    def _passed(self, constants: Any, thread: int) -> Any:
        """Return what the loops of a thread take as constants."""
        return constants

    @abstractmethod
    def _columns(
        self, constants: Any, extras: NDArray[np.float64], observations: Any, stepped: NDArray[np.bool_]
    ) -> Columns:
        """Return the infos of a batch; see `Kernel.columns`."""

    def has_changed(self) -> bool:
        """Return whether the kernel has to be compared with the environment again."""
        return False

    def spread(self, states: np.ndarray, random: np.random.Generator) -> None:
        """Spread states over all states, for the proof; see `Kernel`."""
        return

    def _compile_step(self, repeats: bool) -> Callable[..., int]:
        """Return the loop over steps, with or without repeats."""
        observations = types.UniTuple(_BYTES, len(self._layout.observation))
        return self._compile(_INTEGERS if repeats else _NONE, _NONE, (_NONE,) * 3, observations)

    def _compile(
        self, dt: Any, horizon: Any, draws: tuple[Any, ...], observations: object
    ) -> Callable[..., int]:
        """Return the loop over rows for arguments of these types."""
        extras = types.Array(types.float64, 1 + len(self._infos_shape or ()), "C")
        return compile_loop(
            run_rows,
            *(self._type, self._constants_type, types.int64, types.int64, _BYTES, _BYTES, dt, horizon),
            *(types.float64, _SEEDS, types.int64, *draws, _BYTES, observations, _RESULTS, extras),
        )

    def _run(self, run: Callable[[int, int, int], int], num_rows: int, num_steps: int, is_even: bool) -> bool:
        """Run a loop over all rows, on all threads. Returns whether no row was refused."""
        return not run_sliced(run, num_rows, self.num_threads, num_steps, is_even, self._slice_steps)

    def _perform(
        self,
        loop: Callable[..., int],
        constants: object,
        request: StepBatch | RolloutBatch,
        out: Outputs,
        given: tuple[object, ...],  # `actions`, `dt`, `horizon` and `discount` of `run_rows`
        draws: tuple[object, ...],  # `action_seed`, `first_row` and `action_range`
        observations: object,
        extras: NDArray[np.float64],
        num_steps: int,
        is_even: bool,
    ) -> bool:
        """Run a loop with the arguments of a request. Returns whether no row was refused."""
        seeds = _NO_SEEDS if request.seeds is None else np.ascontiguousarray(request.seeds)
        rewards, terminated, truncated, counts = out.numbers
        results = (rewards, terminated.view(np.uint8), truncated.view(np.uint8), counts)
        before = (bytes_of(request.states), *given, seeds, self.time_limit, *draws)
        all_new = None if out.new_states is None else bytes_of(out.new_states)

        def run(thread: int, first: int, last: int) -> int:
            new_states = np.empty(self._layout.itemsize, np.uint8) if all_new is None else all_new
            passed = self._passed(constants, thread)
            return loop(self._type, passed, first, last, *before, new_states, observations, results, extras)

        return self._run(run, len(request.states), num_steps, is_even)

    def step(self, batch: StepBatch, out: Outputs, info_keys: tuple[str, ...] | None) -> Columns | None:
        """Step rows and write their results."""
        # Returns the infos; None if the environment itself has to step the batch.
        constants = self._constants()
        if constants is None or (self.has_masks and batch.same_dt != 1):
            return None
        repeats = batch.same_dt != 1 or not self._has_single_loop
        if repeats not in self._step_loops:
            self._step_loops[repeats] = self._compile_step(repeats)
        num_rows = len(batch.states)
        has_extras = info_keys != () and self._infos_shape is not None
        observations = out.observations
        if observations is None:  # nobody wants them
            observations = empty_rows(self._observation_space, num_rows)
        extras = np.zeros((num_rows if has_extras else 0, *(self._infos_shape or ())))
        given = (bytes_of(batch.actions), np.ascontiguousarray(batch.dt) if repeats else None, None, 1.0)
        targets = tuple([bytes_of(leaf) for leaf in leaves(observations)])
        num_steps, is_even = batch.same_dt or int(batch.dt.max(initial=1)), batch.same_dt is not None
        loop, no_draws = self._step_loops[repeats], (None, None, None)
        if not self._perform(
            loop, constants, batch, out, given, no_draws, targets, extras, num_steps, is_even
        ):
            return None
        if not has_extras:
            return {}
        columns = self._columns(constants, extras, observations, out.numbers[3] > 0)
        return {name: columns[name] for name in info_keys or columns if name in columns}

    def rollout(self, batch: RolloutBatch, out: Outputs) -> bool:
        """Roll out rows and write their results."""
        # Returns False if the environment itself has to step the batch.
        constants = self._constants()
        if constants is None:
            return False
        if batch.actions is None and (self.has_masks or self.action_range is None):
            return False
        actions = _NO_BYTES if batch.actions is None else bytes_of(batch.actions)
        given = (actions, None, batch.horizon, float(batch.discount))
        draws = (batch.action_seed, batch.first_row, self._limits)
        loop, horizon, extras = self._roll_rows, batch.horizon, self._no_extras
        return self._perform(loop, constants, batch, out, given, draws, None, extras, horizon, False)


class CompiledKernel(LoopKernel):
    """Steps and rolls out batches with a kernel of numbers."""

    def __init__(
        self, kernel: Kernel, opened: OpenedEnv, digest: str | None = None, token: str | None = None
    ) -> None:
        # `digest`: of the code of a user's kernel. None: a kernel of planvec's. `token`: see `KernelType`.
        base: Any = opened.env.unwrapped
        self._kernel = kernel
        if digest is None:
            check_originals(base)
            digest = code_digest(kernel.step, kernel.observe, kernel.refuses)
        constants = kernel.constants(base)
        self._flags = _flags_of(constants)
        kernel_type = KernelType(kernel, digest, layout_of(opened, kernel.fields), self._flags, token)
        self._loops: dict[tuple[Any, Hashable], BindLoop] = {}
        infos_shape = None if kernel.columns is None else ()
        super().__init__(kernel_type, opened, constants, infos_shape)

    def _constants(self) -> tuple[Any, ...] | None:
        try:
            constants = self._kernel.constants(self._base)
        except Exception:  # the user has changed or deleted an attribute; the environment says what is wrong
            _log.debug("%s steps itself", self._base, exc_info=True)
            return None
        return constants if _flags_of(constants) == self._flags else None

    def _passed(self, constants: tuple[object, ...], thread: int = 0) -> tuple[Any, ...]:
        return tuple(value for value in constants if not isinstance(value, bool))  # flags are compiled in

    def _columns(self, *arguments: object) -> Columns:
        assert self._kernel.columns is not None
        return self._kernel.columns(*arguments)

    def spread(self, states: np.ndarray, random: np.random.Generator) -> None:
        if self._kernel.spread is not None:
            self._kernel.spread(states, random, self._base)

    def open_loop(self, loop: object, code: CodeType, variant: Hashable, *examples: object) -> BindLoop:
        """Compile another loop for this kernel, or load it from the cache on disk."""
        # Arguments of one `variant` have the same types. `code` stands for the loop and all that it calls.
        if (loop, variant) not in self._loops:
            entry = compile_loop(loop, self._type, self._constants_type, code, *map(numba.typeof, examples))

            def bind() -> Callable[..., int] | None:
                constants = None if self.has_changed() else self._constants()
                if constants is None:
                    return None
                return functools.partial(entry, self._type, self._passed(constants), None)

            self._loops[loop, variant] = bind
        return self._loops[loop, variant]


def _flags_of(constants: tuple[object, ...]) -> Flags:
    """Return the constants that are flags; see `Flags`."""
    return tuple(value if isinstance(value, bool) else None for value in constants)
