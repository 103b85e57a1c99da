"""What a worker is asked to do: one job per request, which knows how to write it and read the answer.

A job is written when it is sent, which may be later than it was asked for; `keep` then copies what the
caller could change meanwhile.
"""

from __future__ import annotations

import pickle
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from planvec import space_arrays
from planvec.arrays import Batch
from planvec.errors import InvalidBatchError, PlanvecError
from planvec.infos import Columns
from planvec.rollouts import RolloutOutputs, RolloutPlan
from planvec.stepping import Outputs
from planvec.workers.host import Call, Loose, RolloutOptions
from planvec.workers.slab import Slot

__all__ = ["CallJob", "Job", "ObserveJob", "RolloutJob", "Sink", "StepJob"]


class Job(ABC):
    """One request to one worker.

    Attributes:
        verb: What the worker is asked.
        rows: Which rows of the batch, or None for a call without rows.
        first_row: Where its rows begin in the batch.
        num_rows: How many it has.
        error: Why it failed, once it is done.
        is_pure: Whether it may be sent again after a crash.
        num_attempts: How often it was sent.
        num_lost: How often it was sent to a worker that had died before.
        num_unread: How often its answer could not be read.
    """

    verb: bytes

    def __init__(self, rows: slice | None = None, first_row: int = 0) -> None:
        self.rows = rows
        self.first_row = first_row if rows is None else rows.start
        self.num_rows = 0 if rows is None else rows.stop - rows.start
        self.is_pure = rows is not None
        self.is_done = False
        self.error: PlanvecError | None = None
        self.num_attempts = 0
        self.num_lost = 0
        self.num_unread = 0

    @abstractmethod
    def write(self, slot: Slot | None) -> bytes:
        """Write the inputs into the slot; returns the payload."""

    @abstractmethod
    def read(self, slot: Slot | None, payload: bytes) -> None:
        """Copy the answer out."""

    @abstractmethod
    def keep(self) -> None:
        """Copy the inputs, which the caller may change before they are sent."""

    def fail(self, error: PlanvecError) -> None:
        """Be done, with an error."""
        self.error, self.is_done = error, True

    def describe(self) -> str:
        """For error messages."""
        if self.rows is None:
            return self.verb.decode()
        return f"{self.verb.decode()} of rows {self.rows.start} to {self.rows.stop - 1}"


class CallJob(Job):
    """A method call, or an attribute to get or set, on the hosted object.

    Args:
        call: What to do.
        first_row: Where the rows among its arguments begin in the batch, for errors.

    Raises:
        InvalidBatchError: An argument cannot be pickled.
    """

    verb = b"call"

    def __init__(self, call: Call, first_row: int = 0) -> None:
        super().__init__(None, first_row)
        self._name = call.name
        self.value: Any = None
        try:
            self._payload: bytes = cloudpickle.dumps(call)
        except Exception as error:
            raise InvalidBatchError(
                f"{call.name}: an argument cannot be pickled ({type(error).__name__}: {error}); "
                "nothing was sent"
            ) from error

    def write(self, slot: Slot | None) -> bytes:
        return self._payload

    def read(self, slot: Slot | None, payload: bytes) -> None:
        self.value = pickle.loads(payload) if payload else None

    def keep(self) -> None:
        pass  # pickled already

    def describe(self) -> str:
        return f"call of {self._name}"


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


class StepJob(Job):
    """One chunk of `step_batch`.

    Args:
        batch: The whole batch.
        rows: The rows of this chunk.
        return_state: Whether new states are wanted.
        sink: Where the whole batch goes.
    """

    verb = b"step"

    def __init__(self, batch: Batch, rows: slice, return_state: bool, sink: Sink) -> None:
        super().__init__(rows)
        self._place = rows
        self._batch = batch if self.num_rows == len(batch) else batch.part(rows)
        self._return_state = return_state
        self._sink = sink
        self.columns: Columns = {}

    def keep(self) -> None:
        batch = self._batch
        self._batch = Batch(
            batch.states.copy(),
            space_arrays.map_leaves(lambda leaf: leaf.copy(), batch.actions),
            batch.dt.copy(),
            None if batch.seeds is None else batch.seeds.copy(),
        )

    def write(self, slot: Slot | None) -> bytes:
        assert slot is not None
        batch, view = self._batch, slot.first(self.num_rows)
        view.has_seeds[0] = batch.seeds is not None
        view.return_state[0] = self._return_state
        view.dt[:] = batch.dt
        if batch.seeds is not None:
            view.seeds[:] = batch.seeds
        if view.actions is not None:
            space_arrays.copy_rows(batch.actions, view.actions)
        if view.raw_states is not None:
            view.raw_states[:] = space_arrays.raw(batch.states)
            if view.actions is not None:
                return b""
        loose = Loose(
            states=batch.states if view.states is None else None,
            actions=batch.actions if view.actions is None else None,
        )
        return loose.pack()

    def read(self, slot: Slot | None, payload: bytes) -> None:
        assert slot is not None
        loose = Loose.unpack(payload)
        out, rows, view = self._sink.get(), self._place, slot.first(self.num_rows)
        if out.new_states is not None:
            _copy_states(view, loose, out.new_states[rows])
        if isinstance(out.observations, (np.ndarray, list)):
            listed = view.observations is None
            out.observations[rows] = loose.observations if listed else view.observations
        else:
            target = space_arrays.take_rows(out.observations, rows)
            space_arrays.copy_rows(view.observations, target)
        out.rewards[rows] = view.rewards
        out.terminated[rows] = view.terminated
        out.truncated[rows] = view.truncated
        out.num_steps[rows] = view.num_steps
        self.columns = loose.columns or {}


def _copy_states(view: Slot, loose: Loose, out: NDArray[Any]) -> None:
    if view.raw_new_states is None:
        out[:] = loose.states
    else:
        space_arrays.raw(out)[:] = view.raw_new_states


class RolloutJob(Job):
    """One chunk of `rollout_batch`.

    Args:
        plan: The whole batch.
        rows: The rows of this chunk.
        out: Where the whole batch goes.
    """

    verb = b"rollout"

    def __init__(self, plan: RolloutPlan, rows: slice, out: RolloutOutputs) -> None:
        super().__init__(rows)
        self._place = rows
        self._plan = plan.part(rows)
        self._out = out

    def keep(self) -> None:
        plan = self._plan
        plan.states = plan.states.copy()
        if plan.actions is not None:
            plan.actions = space_arrays.map_leaves(lambda leaf: leaf.copy(), plan.actions)
        plan.seeds = None if plan.seeds is None else plan.seeds.copy()

    def write(self, slot: Slot | None) -> bytes:
        assert slot is not None
        plan, view = self._plan, slot.first(self.num_rows)
        view.has_seeds[0] = plan.seeds is not None
        if plan.seeds is not None:
            view.seeds[:] = plan.seeds
        if view.raw_states is not None:
            view.raw_states[:] = space_arrays.raw(plan.states)
        options = RolloutOptions(plan.horizon, plan.actions, plan.seed, plan.first_row, plan.discount)
        loose = Loose(states=plan.states if view.states is None else None)
        return pickle.dumps((options, loose), protocol=5)

    def read(self, slot: Slot | None, payload: bytes) -> None:
        assert slot is not None
        loose = Loose.unpack(payload)
        out, rows, view = self._out, self._place, slot.first(self.num_rows)
        _copy_states(view, loose, out.final_states[rows])
        out.returns[rows] = view.rewards
        out.num_steps[rows] = view.num_steps
        out.terminated[rows] = view.terminated
        out.truncated[rows] = view.truncated


class ObserveJob(Job):
    """One chunk of `observe`.

    Args:
        states: The whole batch.
        rows: The rows of this chunk.
        out: Where the whole batch goes.
    """

    verb = b"observe"

    def __init__(self, states: NDArray[Any], rows: slice, out: Any) -> None:
        super().__init__(rows)
        self._place = rows
        self._states = states[rows]
        self._out = out

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
        if slot.observations is None:
            self._out[self._place] = Loose.unpack(payload).observations
        else:
            target = space_arrays.take_rows(self._out, self._place)
            space_arrays.copy_rows(slot.first(self.num_rows).observations, target)
