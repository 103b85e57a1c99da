"""Compiles a kernel for one environment and runs it over batches. Letters: B rows, A numbers of an action."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Any

import gymnasium
import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from planvec.kernels.base import UNLIMITED, ActionRange, Kernel, bytes_of, layout_of
from planvec.kernels.digests import check_originals, code_digest
from planvec.kernels.kernel_type import BoundLoop, CodeType, Flags, KernelType, compile_loop
from planvec.kernels.step_loop import roll_rows, step_rows
from planvec.kernels.threads import run_sliced
from planvec.rows import Columns, Outputs, RolloutBatch, StepBatch, empty_rows, has_mask_field, leaves

_log = logging.getLogger("planvec")

_BYTES = types.Array(types.uint8, 1, "C")
_NUMBERS = types.Array(types.float64, 1, "C")
_INTEGERS = types.Array(types.int64, 1, "C")
_SEEDS = types.Array(types.uint64, 1, "C")
_RESULTS = types.Tuple((_NUMBERS, _BYTES, _BYTES, _INTEGERS))
_NO_SEEDS = np.empty(0, np.uint64)
_NO_BYTES = np.empty(0, np.uint8)


class CompiledKernel:
    """Steps and rolls out batches with the compiled kernel of an environment."""

    num_proved = 128
    proved_horizon = 80
    # numbers of rows for which the results of a row may differ; () if it makes no difference
    block_sizes: tuple[int, ...] = ()

    def __init__(
        self,
        kernel: Kernel,
        env: gymnasium.Env[Any, Any],
        dtype: np.dtype[Any],  # the dtype of one state
        time_limit: int | None,
        num_threads: int,
    ) -> None:
        self._kernel = kernel
        self._base = env.unwrapped
        self._observation_space = env.observation_space
        self._layout = layout = layout_of(dtype, kernel.fields, env)
        # steps after which an episode is truncated; a very large number: no limit
        self.time_limit = time_limit or UNLIMITED
        self.num_threads = num_threads
        # Whether states tell which actions are legal. Then the environment draws random ones, and repeats
        # actions.
        self.has_masks = has_mask_field(env.action_space, dtype)
        # the range of random actions; None if they are drawn otherwise
        self.action_range = ActionRange.of(env.action_space)
        self._check_code()
        first_constants = kernel.constants(self._base)
        self._flags = _flags_of(first_constants)
        constants = numba.typeof(_without_flags(first_constants))
        self._type = KernelType(kernel, self._digest(), layout, self._flags)
        rows = (types.int64, types.int64, _BYTES, _BYTES)
        self._step_arguments = (
            *(self._type, constants, *rows),
            *(_SEEDS, types.int64, _BYTES, types.boolean, types.UniTuple(_BYTES, len(layout.observation))),
            *(_RESULTS, _NUMBERS, types.boolean),
        )
        self._step_once = self._compile_step(types.none)
        self._step_repeatedly: Callable[..., int] | None = None
        self._loops: dict[tuple[Any, Hashable], BoundLoop] = {}
        self._roll_rows = compile_loop(
            roll_rows,
            *(self._type, constants, *rows, types.int64, types.float64, _SEEDS, types.int64),
            *(types.uint64, types.int64, *[_NUMBERS] * 4),
            *(_BYTES, _RESULTS),
        )

    def _check_code(self) -> None:
        """Check that the environment steps with the code for which the kernel was written."""
        check_originals(self._base)

    def _digest(self) -> str:
        """Return a digest of the code of the kernel."""
        return code_digest(self._kernel.step, self._kernel.observe, self._kernel.refuses)

    def has_changed(self) -> bool:
        """Return whether the kernel has to be compared with the environment again."""
        return False

    def _constants(self) -> tuple[Any, ...] | None:
        """Return the present constants; None if the environment was changed so that it has to step itself."""
        try:
            constants = self._kernel.constants(self._base)
        except Exception:  # the user has changed or deleted an attribute; the environment says what is wrong
            _log.debug("%s steps itself", self._base, exc_info=True)
            return None
        return constants if _flags_of(constants) == self._flags else None

    def open_loop(self, loop: Any, code: CodeType, variant: Hashable, *examples: Any) -> BoundLoop:
        """Compile another loop for this kernel, or load it from the cache on disk."""
        # Arguments of one `variant` have the same types. `code` stands for the loop and all that it calls.
        if (loop, variant) in self._loops:
            return self._loops[loop, variant]
        constants = self._constants()
        if constants is None:
            raise ValueError("the environment was changed")
        numbers = numba.typeof(_without_flags(constants))
        entry = compile_loop(loop, self._type, numbers, code, *map(numba.typeof, examples))
        self._loops[loop, variant] = BoundLoop(entry, self._type, self._numbers)
        return self._loops[loop, variant]

    def _numbers(self) -> tuple[Any, ...] | None:
        """Return the present constants without flags; None as for `_constants`."""
        constants = self._constants()
        return None if constants is None else _without_flags(constants)

    def spread(self, states: NDArray[Any], random: np.random.Generator) -> None:
        """Spread states over all states, for the proof; see `Kernel`."""
        if self._kernel.spread is not None:
            self._kernel.spread(states, random, self._base)

    def _compile_step(self, dt: types.Type) -> Callable[..., int]:
        """Return the loop over steps for one type of its argument `dt`."""
        arguments = self._step_arguments
        return compile_loop(step_rows, *arguments[:6], dt, *arguments[6:])

    def step(self, batch: StepBatch, out: Outputs, info_keys: tuple[str, ...] | None) -> Columns | None:
        """Step rows and write their results."""
        # Returns the infos; None if the environment itself has to step the batch.
        constants = self._constants()
        if constants is None or (self.has_masks and batch.same_dt != 1):
            return None
        if batch.same_dt != 1 and self._step_repeatedly is None:
            self._step_repeatedly = self._compile_step(_INTEGERS)
        loop = self._step_once if batch.same_dt == 1 else self._step_repeatedly
        assert loop is not None
        num_rows, columns_of = len(batch.states), self._kernel.columns
        has_extras = info_keys != () and columns_of is not None
        observations = out.observations
        if observations is None:  # nobody wants them
            observations = empty_rows(self._observation_space, num_rows)
        numbers, extras = _without_flags(constants), np.zeros(num_rows if has_extras else 1)
        states = None if out.new_states is None else bytes_of(out.new_states)
        arguments = (
            bytes_of(batch.states),
            bytes_of(batch.actions),
            None if batch.same_dt == 1 else np.ascontiguousarray(batch.dt),
            _NO_SEEDS if batch.seeds is None else np.ascontiguousarray(batch.seeds),
            self.time_limit,
        )
        results = (
            states is not None,
            tuple([bytes_of(leaf) for leaf in leaves(observations)]),
            _results_of(out),
            extras,
            has_extras,
        )

        def run(first: int, last: int) -> int:
            new_states = np.empty(self._layout.itemsize, np.uint8) if states is None else states
            return loop(self._type, numbers, first, last, *arguments, new_states, *results)

        steps = batch.same_dt or int(batch.dt.max(initial=1))
        if run_sliced(run, num_rows, self.num_threads, steps, is_even=batch.same_dt is not None):
            return None
        if not has_extras:
            return {}
        assert columns_of is not None
        assert out.num_steps is not None
        columns = columns_of(constants, extras, observations, out.num_steps > 0)
        return {name: columns[name] for name in info_keys or columns if name in columns}

    def rollout(self, batch: RolloutBatch, out: Outputs) -> bool:
        """Roll out rows and write their results."""
        # Returns False if the environment itself has to step the batch.
        constants = self._constants()
        if constants is None:
            return False
        if batch.actions is None and (self.has_masks or self.action_range is None):
            return False
        numbers, unused = _without_flags(constants), np.empty(self._layout.action.size)
        arguments = (
            bytes_of(batch.states),
            _NO_BYTES if batch.actions is None else bytes_of(batch.actions),
            batch.horizon,
            float(batch.discount),
            _NO_SEEDS if batch.seeds is None else np.ascontiguousarray(batch.seeds),
            self.time_limit,
            batch.action_seed,
            batch.first_row,
            *(self.action_range or [unused] * 4),
            bytes_of(out.new_states),
            _results_of(out),
        )

        def run(first: int, last: int) -> int:
            return self._roll_rows(self._type, numbers, first, last, *arguments)

        return not run_sliced(run, len(batch.states), self.num_threads, batch.horizon, is_even=False)


def _flags_of(constants: tuple[Any, ...]) -> Flags:
    """Return the constants that are flags; see `Flags`."""
    return tuple(value if isinstance(value, bool) else None for value in constants)


def _without_flags(constants: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the constants that the loops pass; flags are compiled in."""
    return tuple(value for value in constants if not isinstance(value, bool))


def _results_of(out: Outputs) -> tuple[Any, ...]:
    """Return the arrays of results that both loops fill, in the order of their arguments."""
    assert out.terminated is not None
    assert out.truncated is not None
    return out.rewards, out.terminated.view(np.uint8), out.truncated.view(np.uint8), out.num_steps
