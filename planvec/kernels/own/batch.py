"""Defines `OwnBatchKernel`, which steps batches with a NumPy function of a user.

It does what `planvec.stepping.row_loop` does, for all rows at once. The function is called with blocks of 1,
2, 4, ... or 4096 rows; missing ones are copies of the last row. NumPy and BLAS may round by the number of
rows, so the comparison with the environment covers each of these sizes. Letters: B rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.kernels.base import OpenedEnv, layout_of
from planvec.kernels.own.declared import (
    OBSERVE_ARGUMENTS,
    STEP_ARGUMENTS,
    KernelConstants,
    OwnKernel,
    arguments_of,
    python_function,
)
from planvec.rows import (
    UNLIMITED,
    ActionStreams,
    Columns,
    Outputs,
    RolloutBatch,
    StepBatch,
    has_mask_field,
    is_uniform,
    leaves,
    raw,
)

BLOCK_SIZES = tuple(2**power for power in range(13))  # numbers of rows with which functions are called

Arrays = list[np.ndarray]
# rewards, `terminated` and the numbers for infos of some rows
Stepped = tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.float64]]


def _blocks(num_rows: int) -> Iterator[tuple[slice, NDArray[np.int64]]]:
    """Yield the rows of each block of so many rows: without, and with copies of the last one that pad it."""
    for first in range(0, num_rows, BLOCK_SIZES[-1]):
        size = min(num_rows - first, BLOCK_SIZES[-1])
        padded = np.arange(first, first + (1 << (size - 1).bit_length()))
        yield slice(first, first + size), np.minimum(padded, first + size - 1)


_ROLLOUT_ROWS = 16_384  # rows whose random actions are drawn at once


class OwnBatchKernel:
    """Steps and rolls out batches with the NumPy function of a user, on the calling thread."""

    # Where a number is not finite, the environment itself steps the batch.

    num_proved = 128
    proved_horizon = 80
    block_sizes = BLOCK_SIZES

    def __init__(self, own: OwnKernel, opened: OpenedEnv) -> None:
        env, layout = opened.env, layout_of(opened, own.state)
        if layout.generator >= 0:
            raise ValueError(
                "states hold the generator np_random, from which a kernel of whole batches does not draw: "
                "set draws = False in the codec if steps draw nothing"
            )
        self._own = own
        # whether states tell which actions are legal; see `CompiledKernel`
        self.has_masks = has_mask_field(env.action_space, opened.dtype)
        self._space = env.action_space
        self._limit = opened.time_limit or UNLIMITED
        self._counts = layout.elapsed >= 0
        self._known = KernelConstants(own, env.unwrapped)
        self._observation_space = env.observation_space
        self._step = python_function(own.step)
        self._step_names = arguments_of(own.step, "step", STEP_ARGUMENTS)
        self._observe: Callable[..., Any] | None = None
        if own.observe is not None:
            self._observe = python_function(own.observe)
            self._observe_names = arguments_of(own.observe, "observe", OBSERVE_ARGUMENTS)
        self._num_results = 3 if own.infos is None else 4

    def has_changed(self) -> bool:
        """Return whether the kernel has to be compared with the environment again."""
        return self._known.has_changed()

    def spread(self, states: np.ndarray, random: np.random.Generator) -> None:
        """Do nothing: the states that random steps reach are compared."""

    def step(self, batch: StepBatch, out: Outputs, info_keys: tuple[str, ...] | None) -> Columns | None:
        """Step rows and write their results. See `CompiledKernel.step`."""
        if self.has_masks and batch.same_dt != 1:
            return None
        stepped = self._stepped(batch.states, out, batch.dt, lambda step: batch.actions)
        if stepped is None:
            return None
        attributes, extras = stepped
        if out.observations is not None:
            self._call_observe(attributes, out.observations)
        if info_keys == () or self._own.infos is None:
            return {}
        columns = self._own.columns(self._known.constants, extras, out.observations, out.numbers[3] > 0)
        return {name: columns[name] for name in info_keys or columns if name in columns}

    def rollout(self, batch: RolloutBatch, out: Outputs) -> bool:
        """Roll out rows and write their results. See `CompiledKernel.rollout`."""
        if batch.actions is None and (self.has_masks or not is_uniform(self._space)):
            return False
        num_rows = len(batch.states)
        parts = [
            slice(first, min(first + _ROLLOUT_ROWS, num_rows)) for first in range(0, num_rows, _ROLLOUT_ROWS)
        ]
        return all(self._roll(batch.part(part), out.part(part)) for part in parts)

    def _roll(self, batch: RolloutBatch, out: Outputs) -> bool:
        if batch.actions is not None:
            given = batch.actions.reshape(len(batch.states), batch.horizon, *batch.actions.shape[1:])
            actions_at: Callable[[int], np.ndarray] = lambda step: given[:, step]  # noqa: E731
        else:
            streams = ActionStreams(self._space, batch.action_seed, batch.first_row, len(batch.states))
            actions_at = streams.column
        return self._stepped(batch.states, out, batch.horizon, actions_at, batch.discount) is not None

    def _stepped(
        self,
        states: np.ndarray,
        out: Outputs,
        wanted: Any,  # number of steps of each row, or of all
        actions_at: Callable[[int], np.ndarray],  # from a step to the actions `[B, ...]` of all rows
        discount: float | None = None,  # None: steps, whose rewards are added up
    ) -> tuple[Arrays, NDArray[np.float64]] | None:
        """Step rows and write their results, apart from the observations."""
        # Returns the attributes after the steps, and the numbers for infos of the last step, each `[B, ...]`;
        # None if an attribute is not finite before them.
        columns = [states[name].copy() for name in self._own.state]
        elapsed = np.zeros(len(states), np.int64)
        if self._counts:
            elapsed[:] = states["elapsed_steps"]
        left = (self._limit if self._counts else UNLIMITED) - elapsed  # steps until the limit
        rewards, terminated, truncated, num_steps = out.numbers
        rewards[:], num_steps[:] = 0.0, 0
        terminated[:], truncated[:] = states["terminated"], states["truncated"]
        extras = np.zeros(len(states))
        active = np.flatnonzero(~(terminated | truncated))  # the rows whose episode has not ended
        wanted = np.minimum(wanted, left)
        if not _are_finite(columns, active):
            return None
        step, weight = 0, 1.0
        while len(active):
            more, ends, extras[active] = self._call_step(columns, active, actions_at(step)[active])
            if not (_are_finite(columns, active) and np.isfinite(more).all()):
                raise ValueError("a result is not finite")
            if discount is not None:
                rewards[active] += weight * more
                weight *= discount
            else:
                # The first one is not added to 0, which would make -0 of it 0.
                rewards[active] = more if step == 0 else rewards[active] + more
            terminated[active] = ends
            num_steps[active] += 1
            step += 1
            active = active[~ends & (step < wanted[active])]
        truncated[:] = np.where(num_steps > 0, num_steps >= left, truncated)
        if out.new_states is not None:
            raw(out.new_states)[:] = raw(np.ascontiguousarray(states))
            for name, column in zip(self._own.state, columns, strict=True):
                out.new_states[name] = column
            out.new_states["terminated"], out.new_states["truncated"] = terminated, truncated
            if self._counts:
                out.new_states["elapsed_steps"] = np.minimum(elapsed + num_steps, np.iinfo(np.int32).max)
        return columns, extras

    # -- the functions of the user -----------------------------------------------------------------

    def _call_step(self, columns: Arrays, rows: NDArray[np.int64], actions: np.ndarray) -> Stepped:
        """Step some rows."""
        # `columns`: the attributes, `[B, ...]` each; the given rows are overwritten in place.
        rewards, extras = np.empty(len(rows)), np.zeros(len(rows))
        terminated, names = np.empty(len(rows), np.bool_), self._own.state
        for part, padded in _blocks(len(rows)):
            given = {
                "state": tuple([column[rows[padded]] for column in columns]),
                "action": actions[padded],
                "constants": self._known.constants,
            }
            results = self._step(*[given[name] for name in self._step_names])
            after, *others = self._checked(results)
            own, num_rows = rows[part], len(padded)
            for name, column, array in zip(names, columns, after, strict=True):
                array = np.asarray(array)
                expected = (num_rows, *column.shape[1:])
                if array.shape != expected or not np.can_cast(array.dtype, column.dtype, "same_kind"):
                    raise ValueError(
                        f"step of {self._own.owner}: expected {name} of shape {expected} and dtype "
                        f"{column.dtype}, got {array.shape} and {array.dtype}"
                    )
                column[own] = array[: len(own)]
            for name, target, array in zip(
                ("reward", "terminated", "extra"), (rewards, terminated, extras), others, strict=False
            ):
                target[part] = self._numbers(name, array, num_rows)[: len(own)]
        return rewards, terminated, extras

    def _call_observe(self, columns: Arrays, out: object) -> None:
        """Write the observations of all rows."""
        targets = list(leaves(out))
        for rows, padded in _blocks(len(columns[0])):
            state, num_rows = tuple([column[padded] for column in columns]), len(padded)
            if self._observe is None:
                parts: list[Any] = [np.concatenate([part.reshape(num_rows, -1) for part in state], 1)]
            else:
                given = {"state": state, "constants": self._known.constants}
                observed = self._observe(*[given[name] for name in self._observe_names])
                parts = list(observed) if isinstance(observed, (tuple, list)) else [observed]
            if len(parts) != len(targets):
                raise ValueError(
                    f"observe of {self._own.owner}: expected {len(targets)} arrays as in "
                    f"{self._observation_space}, got {len(parts)}"
                )
            for target, part in zip(targets, parts, strict=True):
                array = np.asarray(part)
                expected = (num_rows, *target.shape[1:])
                if array.shape[:1] != expected[:1] or array.size != np.prod(expected):
                    raise ValueError(
                        f"observe of {self._own.owner}: expected shape {expected}, got {array.shape}"
                    )
                target[rows] = array.reshape(expected)[: rows.stop - rows.start]

    def _checked(self, results: object) -> tuple[Any, ...]:
        """Return the results of a step."""
        names, owner = self._own.state, self._own.owner
        if not isinstance(results, tuple) or len(results) != self._num_results:
            form = "(state, reward, terminated" + (", extra)" if self._num_results == 4 else ")")
            got = f"{len(results)} results" if isinstance(results, tuple) else f"a {type(results).__name__}"
            raise ValueError(f"step of {owner}: expected {form}, got {got}")
        if not isinstance(results[0], (tuple, list)) or len(results[0]) != len(names):
            is_sized = isinstance(results[0], (tuple, list))
            got = f"{len(results[0])} entries" if is_sized else f"a {type(results[0]).__name__}"
            raise ValueError(f"step of {owner}: expected a state of {len(names)} arrays {names}, got {got}")
        return tuple(results)

    def _numbers(self, name: str, array: object, num_rows: int) -> np.ndarray:
        """Return one number for each row."""
        array = np.asarray(array)
        if array.shape not in ((num_rows,), ()) or array.dtype.kind not in "fiub":
            raise ValueError(
                f"step of {self._own.owner}: expected {name} of shape {(num_rows,)}, got {array.dtype} "
                f"of shape {array.shape}"
            )
        return np.broadcast_to(array, (num_rows,))


def _are_finite(columns: Arrays, rows: NDArray[np.int64]) -> bool:
    floats = [column for column in columns if column.dtype.kind == "f"]
    return all(bool(np.isfinite(column[rows]).all()) for column in floats)
