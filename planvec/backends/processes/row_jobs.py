"""Jobs that step, roll out or observe rows of a batch.

A job whose worker died may be done in parts, by several workers: it is done when they are.
"""

from __future__ import annotations

import itertools
import pickle
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from planvec.backends.processes.child.host import Loose, RolloutOptions
from planvec.backends.processes.jobs import Job
from planvec.backends.processes.wire.slab import Slot
from planvec.errors import PlanvecError
from planvec.rows import space_arrays
from planvec.rows.checks import Batch
from planvec.rows.infos import Columns
from planvec.rows.outputs import Errors, Outputs
from planvec.rows.rollouts import RolloutPlan

__all__ = ["ObserveJob", "RolloutJob", "RowJob", "Sink", "StepJob"]


class Sink:
    """Where a whole batch goes, allocated after its chunks were sent: the workers need not wait for it.

    Args:
        allocate: Makes the arrays.
    """

    def __init__(self, allocate: Callable[[], Outputs]) -> None:
        self._allocate = allocate
        self._lock = threading.Lock()
        self._out: Outputs | None = None

    def get(self) -> Outputs:
        """The arrays. Another thread may ask for them first, with an answer to write."""
        with self._lock:
            if self._out is None:
                self._out = self._allocate()
            return self._out


class RowJob(Job):
    """A job that has rows.

    Args:
        first_row: Where they begin in the batch.
        num_rows: How many.

    Attributes:
        mask_errors: Whether a row that fails is flagged, rather than the end of its batch.
        parts: The jobs that do it now, in the order of their rows; empty while it is in one piece. Parts
            that were parted again stand there no more.
        columns: The infos, once it is done.
        errors: Of the rows that are flagged, by their places in the batch.
    """

    def __init__(self, first_row: int, num_rows: int, mask_errors: bool = False) -> None:
        super().__init__(first_row, num_rows)
        self.mask_errors = mask_errors
        self.parts: list[RowJob] = []
        self.columns: Columns = {}
        self.errors: Errors = {}
        self._whole: RowJob | None = None

    @abstractmethod
    def _part(self, rows: slice) -> RowJob:
        """The same for some of its rows."""

    @abstractmethod
    def action(self, row: int, step: int, space: gymnasium.Space[Any]) -> Any:
        """The action that one of its rows takes, at a step of its rollout."""

    @property
    def place(self) -> slice:
        """Its rows in the batch."""
        return slice(self.first_row, self.first_row + self.num_rows)

    @property
    def is_wanted(self) -> bool:
        return not (self.is_done or self.parts or (self._whole is not None and self._whole.is_done))

    def split(self, *cuts: int) -> list[RowJob]:
        """Do it in parts from now on.

        Args:
            cuts: The rows that parts begin at, beside the first.
        """
        ends = [0, *cuts, self.num_rows]
        ranges = [slice(start, stop) for start, stop in itertools.pairwise(ends) if start < stop]
        self.parts = [self._part(rows) for rows in ranges]
        whole = self._whole or self
        for part in self.parts:
            part._whole = whole
        if whole is not self:
            place = whole.parts.index(self)
            whole.parts[place : place + 1] = self.parts
        return self.parts

    def leaves(self) -> Sequence[RowJob]:
        """The jobs that do it, in the order of their rows."""
        return self.parts or (self,)

    def finish(self, error: PlanvecError | None = None) -> None:
        self.error, self.is_done = error, True
        whole = self._whole
        if whole is not None and not whole.is_done and all(part.is_done for part in whole.parts):
            whole.finish(next((part.error for part in whole.parts if part.error is not None), None))

    def _later(self) -> Iterator[Job]:
        if self._whole is None:
            yield from super()._later()
        else:
            yield from (part for part in self._whole.parts if part.first_row > self.first_row)
            yield from self._whole._later()

    def fail_batch(self, error: PlanvecError) -> None:
        if self._whole is None:
            super().fail_batch(error)
        else:
            self._whole.fail_batch(error)

    def write_off(self, error: PlanvecError) -> None:
        """Have its rows flagged, instead of stepped."""
        self.verb, self.num_deaths = b"write_off", 0
        self.errors = dict.fromkeys(range(self.first_row, self.first_row + self.num_rows), error)

    @property
    def is_written_off(self) -> bool:
        """Whether its rows are only to be flagged."""
        return self.verb == b"write_off"

    def describe(self) -> str:
        if self.num_rows == 1:
            return f"{self.verb.decode()} of row {self.first_row}"
        return f"{self.verb.decode()} of rows {self.first_row} to {self.first_row + self.num_rows - 1}"


class _SinkJob(RowJob):
    """A job whose rows start at states, perhaps with seeds, and whose answer goes to a `Sink`.

    Args:
        given: Its rows.
        first_row: Where they begin in the whole batch.
        mask_errors: Whether rows that fail are flagged.
        sink: Where the whole batch goes.
    """

    _given: Batch | RolloutPlan

    def __init__(self, given: Batch | RolloutPlan, first_row: int, mask_errors: bool, sink: Sink) -> None:
        super().__init__(first_row, len(given), mask_errors)
        self._given = given
        self._sink = sink

    def keep(self) -> None:
        self._given = self._given.copy()
        for part in self.parts:
            part.keep()

    def _begin(self, slot: Slot | None, return_state: bool) -> Slot:
        """Write what steps and rollouts have in common, and return its view."""
        assert slot is not None
        given, view = self._given, slot.first(self.num_rows)
        view.has_seeds[0] = given.seeds is not None
        view.return_state[0] = return_state
        view.mask_errors[0] = self.mask_errors
        if given.seeds is not None:
            view.seeds[:] = given.seeds
        if view.raw_states is not None:
            view.raw_states[:] = space_arrays.raw(given.states)
        return view

    def read(self, slot: Slot | None, payload: bytes) -> None:
        """Copy what a worker has found into the rows of the batch."""
        assert slot is not None
        out, rows = self._sink.get(), self.place
        loose, view = Loose.unpack(payload), slot.first(self.num_rows)
        found = view.outputs
        if out.new_states is not None:
            if view.raw_new_states is None:
                out.new_states[rows] = loose.states
            else:
                space_arrays.raw(out.new_states[rows])[:] = view.raw_new_states
        if isinstance(out.observations, (np.ndarray, list)):
            listed = found.observations is None
            out.observations[rows] = loose.observations if listed else found.observations
        elif out.observations is not None:
            target = space_arrays.take_rows(out.observations, rows)
            space_arrays.copy_rows(found.observations, target)
        out.rewards[rows] = found.rewards
        out.terminated[rows] = found.terminated
        out.truncated[rows] = found.truncated
        out.num_steps[rows] = found.num_steps
        self.columns = loose.columns or {}
        for row, failure in (loose.errors or {}).items():
            self.errors[self.first_row + row] = failure.revive(self.first_row)


class StepJob(_SinkJob):
    """One chunk of `step_batch`.

    Args:
        batch: Its rows.
        first_row: Where they begin in the whole batch.
        return_state: Whether new states are wanted.
        mask_errors: Whether rows that fail are flagged.
        sink: Where the whole batch goes.
    """

    verb = b"step"
    _given: Batch

    def __init__(
        self, batch: Batch, first_row: int, return_state: bool, mask_errors: bool, sink: Sink
    ) -> None:
        super().__init__(batch, first_row, mask_errors, sink)
        self._return_state = return_state

    def _part(self, rows: slice) -> RowJob:
        first_row = self.first_row + rows.start
        return StepJob(self._given.part(rows), first_row, self._return_state, self.mask_errors, self._sink)

    def action(self, row: int, step: int, space: gymnasium.Space[Any]) -> Any:
        return space_arrays.list_rows(space, self._given.part(slice(row, row + 1)).actions)[0]

    def write(self, slot: Slot | None) -> bytes:
        batch, view = self._given, self._begin(slot, self._return_state)
        view.dt[:] = batch.dt
        if view.actions is not None:
            space_arrays.copy_rows(batch.actions, view.actions)
            if view.states is not None:
                return b""
        return Loose(
            states=batch.states if view.states is None else None,
            actions=batch.actions if view.actions is None else None,
        ).pack()


class RolloutJob(_SinkJob):
    """One chunk of `rollout_batch`. Args: as `_SinkJob`."""

    verb = b"rollout"
    _given: RolloutPlan

    def _part(self, rows: slice) -> RowJob:
        return RolloutJob(self._given.part(rows), self.first_row + rows.start, self.mask_errors, self._sink)

    def action(self, row: int, step: int, space: gymnasium.Space[Any]) -> Any:
        return next(itertools.islice(self._given.sequences(space)(row), step, None), None)

    def write(self, slot: Slot | None) -> bytes:
        plan, view = self._given, self._begin(slot, return_state=True)
        loose = Loose(states=plan.states if view.states is None else None)
        if self.is_written_off:
            return loose.pack()
        options = RolloutOptions(plan.horizon, plan.actions, plan.seed, plan.first_row, plan.discount)
        return pickle.dumps((options, loose), protocol=5)


class ObserveJob(RowJob):
    """One chunk of `observe`.

    Args:
        states: Its rows.
        first_row: Where they begin in the whole batch.
        out: Where the whole batch goes.
    """

    verb = b"observe"

    def __init__(self, states: NDArray[Any], first_row: int, out: Any) -> None:
        super().__init__(first_row, len(states))
        self._states = states
        self._out = out

    def _part(self, rows: slice) -> RowJob:
        return ObserveJob(self._states[rows], self.first_row + rows.start, self._out)

    def action(self, row: int, step: int, space: gymnasium.Space[Any]) -> Any:
        return None

    def keep(self) -> None:
        self._states = self._states.copy()

    def write(self, slot: Slot | None) -> bytes:
        assert slot is not None
        view = slot.first(self.num_rows)
        if view.raw_states is None:
            return Loose(states=self._states).pack()
        view.raw_states[:] = space_arrays.raw(self._states)
        return b""

    def read(self, slot: Slot | None, payload: bytes) -> None:
        assert slot is not None
        found = slot.first(self.num_rows).outputs.observations
        if found is None:
            self._out[self.place] = Loose.unpack(payload).observations
        else:
            space_arrays.copy_rows(found, space_arrays.take_rows(self._out, self.place))
