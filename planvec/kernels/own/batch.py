"""Defines `OwnBatchKernel`, which steps batches with a NumPy function of a user.

It does what `planvec.stepping.row_loop` does, for all rows at once. Letters: B rows, H steps of a rollout.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from planvec.kernels.buffers import UNLIMITED
from planvec.kernels.layout import layout_of
from planvec.kernels.own.blocks import BLOCK_SIZES, Blocks, Stepped
from planvec.kernels.own.declared import OwnKernel
from planvec.kernels.own.watch import Watch
from planvec.rows import (
    ActionStreams,
    Columns,
    Outputs,
    RolloutBatch,
    StepBatch,
    has_mask_field,
    is_uniform,
    raw,
)

_ROLLOUT_ROWS = 16_384  # rows whose random actions are drawn at once


class OwnBatchKernel:
    """Steps and rolls out batches with the NumPy function of a user, on the calling thread."""

    # Where a number is not finite, the environment itself steps the batch.
    # `block_sizes`: Numbers of rows for which the results of a row may differ. `dtype`: The dtype of one
    # state.

    num_proved = 128
    proved_horizon = 80
    block_sizes = BLOCK_SIZES

    def __init__(
        self, own: OwnKernel, env: gymnasium.Env[Any, Any], dtype: np.dtype[Any], time_limit: int | None
    ) -> None:
        layout = layout_of(dtype, own.state, env)
        if layout.generator >= 0:
            raise ValueError(
                "states hold the generator np_random, from which a kernel of whole batches does not draw: "
                "set draws = False in the codec if steps draw nothing"
            )
        self._own = own
        # whether states tell which actions are legal; see `CompiledKernel`
        self.has_masks = has_mask_field(env.action_space, dtype)
        self._space = env.action_space
        self._limit = time_limit or UNLIMITED
        self._counts = layout.elapsed >= 0
        self._watch = Watch(own, env.unwrapped)
        self._blocks = Blocks(own, env.observation_space)

    def settle(self) -> None:
        """Prepare for batches, after the kernel was compared with the environment."""
        self._watch.settle()

    def has_changed(self) -> bool:
        """Return whether the kernel has to be compared with the environment again."""
        return self._watch.has_changed()

    def spread(self, states: NDArray[Any], random: np.random.Generator) -> None:
        """Do nothing: the states that random steps reach are compared."""

    def step(self, batch: StepBatch, out: Outputs, info_keys: tuple[str, ...] | None) -> Columns | None:
        """Step rows and write their results. See `CompiledKernel.step`."""
        if self.has_masks and batch.same_dt != 1:
            return None
        rows = _Rows(batch.states, self._own.state, self._limit if self._counts else UNLIMITED)
        extras = np.zeros(rows.num_rows)
        wanted = np.minimum(batch.dt, rows.left)
        active, constants, is_first = rows.active(), self._watch.constants, True
        if not rows.are_finite(active):
            return None
        while len(active):
            rewards, terminated, extra = self._advance(rows, active, batch.actions[active], constants)
            # The first one is not added to 0, which would make -0 of it 0.
            rows.rewards[active] = rewards if is_first else rows.rewards[active] + rewards
            extras[active], is_first = extra, False
            active = active[~terminated & (rows.num_steps[active] < wanted[active])]
        rows.write(batch.states, out, self._counts)
        if out.observations is not None:
            self._blocks.observe(rows.columns, constants, out.observations)
        if info_keys == () or self._own.infos is None:
            return {}
        columns = self._own.columns(constants, extras, out.observations, rows.num_steps > 0)
        return {name: columns[name] for name in info_keys or columns if name in columns}

    def _advance(
        self, rows: _Rows, active: NDArray[np.int64], actions: NDArray[Any], constants: Any
    ) -> Stepped:
        """Step some rows once. Their rewards are returned."""
        stepped = self._blocks.step(rows.columns, active, actions, constants)
        if not (rows.are_finite(active) and np.isfinite(stepped[0]).all()):
            raise ValueError("a result is not finite")
        rows.num_steps[active] += 1
        rows.terminated[active] = stepped[1]
        return stepped

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
        rows = _Rows(batch.states, self._own.state, self._limit if self._counts else UNLIMITED)
        wanted = np.minimum(batch.horizon, rows.left)
        active, constants = rows.active(), self._watch.constants
        actions_at = self._actions(batch)
        weight, step = 1.0, 0
        if not rows.are_finite(active):
            return False
        while len(active):
            actions = actions_at(step)[active]
            rewards, terminated, _ = self._advance(rows, active, actions, constants)
            rows.rewards[active] += weight * rewards
            weight *= batch.discount
            step += 1
            active = active[~terminated & (step < wanted[active])]
        rows.write(batch.states, out, self._counts)
        return True

    def _actions(self, batch: RolloutBatch) -> Any:
        """Return a function from a step to the actions `[B, ...]` of all rows."""
        if batch.actions is not None:
            given = batch.actions.reshape(len(batch.states), batch.horizon, *batch.actions.shape[1:])
            return lambda step: given[:, step]
        return ActionStreams(self._space, batch.action_seed, batch.first_row, len(batch.states)).column


class _Rows:
    """Holds the rows of a batch as arrays `[B, ...]` while they are stepped."""

    # `terminated`: Flags. `states`: `[B]`.

    def __init__(self, states: NDArray[Any], names: tuple[str, ...], limit: int) -> None:
        self._names, self.num_rows = names, len(states)
        self.columns = [states[name].copy() for name in names]  # the attributes, in order
        self.terminated, self._was_truncated = states["terminated"].copy(), states["truncated"].copy()
        self._elapsed: Any = np.zeros(self.num_rows, np.int64)
        if limit < UNLIMITED:
            self._elapsed = states["elapsed_steps"].astype(np.int64)
        self.left: NDArray[np.int64] = limit - self._elapsed  # steps that are left until the limit
        self.rewards = np.zeros(self.num_rows)  # sums of rewards
        self.num_steps = np.zeros(self.num_rows, np.int64)  # steps taken

    def active(self) -> NDArray[np.int64]:
        """Return the indices of the rows whose episode has not ended."""
        return np.flatnonzero(~(self.terminated | self._was_truncated))

    def are_finite(self, active: NDArray[np.int64]) -> bool:
        """Return whether all numbers of these rows are finite."""
        floats = [column for column in self.columns if column.dtype.kind == "f"]
        return all(bool(np.isfinite(column[active]).all()) for column in floats)

    def write(self, states: NDArray[Any], out: Outputs, counts: bool) -> None:
        """Write the results, apart from the observations."""
        assert out.rewards is not None
        assert out.terminated is not None
        assert out.truncated is not None
        assert out.num_steps is not None
        has_stepped = self.num_steps > 0
        truncated = np.where(has_stepped, self.num_steps >= self.left, self._was_truncated)
        out.rewards[:], out.num_steps[:] = self.rewards, self.num_steps
        out.terminated[:], out.truncated[:] = self.terminated, truncated
        if out.new_states is None:
            return
        raw(out.new_states)[:] = raw(np.ascontiguousarray(states))
        for name, column in zip(self._names, self.columns, strict=True):
            out.new_states[name] = column
        out.new_states["terminated"], out.new_states["truncated"] = self.terminated, truncated
        if counts:
            elapsed = np.minimum(self._elapsed + self.num_steps, np.iinfo(np.int32).max)
            out.new_states["elapsed_steps"] = elapsed
