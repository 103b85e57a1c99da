"""What a worker is asked to do: one job per request, which knows how to write it and read the answer.

A job is written when it is sent, which may be later than it was asked for; `keep` then copies what the
caller could change meanwhile.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import cloudpickle

from planvec.backends.processes.child.host import Call
from planvec.backends.processes.wire.slab import Slot
from planvec.errors import InvalidBatchError, PlanvecError

__all__ = ["CallJob", "Job"]


class Job(ABC):
    """One request to one worker.

    Attributes:
        verb: What the worker is asked.
        first_row: Where its rows begin in the batch.
        num_rows: How many it has; 0 for a call without rows.
        is_done: Whether it was carried out, or given up.
        error: Why it failed, once it is done.
        is_pure: Whether it may be sent again after a crash.
        siblings: All jobs of the same batch, in the order of their rows.
        num_deaths: How many workers have died over it.
    """

    verb: bytes

    def __init__(self, first_row: int = 0, num_rows: int = 0) -> None:
        self.first_row = first_row
        self.num_rows = num_rows
        self.is_pure = num_rows > 0
        self.is_done = False
        self.error: PlanvecError | None = None
        self.siblings: Sequence[Job] = ()
        self.num_deaths = 0

    @abstractmethod
    def write(self, slot: Slot | None) -> bytes:
        """Write the inputs into the slot; returns the payload."""

    @abstractmethod
    def read(self, slot: Slot | None, payload: bytes) -> None:
        """Copy the answer out."""

    @abstractmethod
    def keep(self) -> None:
        """Copy the inputs, which the caller may change before they are sent."""

    @property
    def is_wanted(self) -> bool:
        """Whether somebody still waits for it."""
        return not self.is_done

    def finish(self, error: PlanvecError | None = None) -> None:
        """Be done."""
        self.error, self.is_done = error, True

    def fail(self, error: PlanvecError) -> None:
        """Be done with an error, and so are the rows behind: the first one that fails is raised."""
        self.finish(error)
        for job in self._later():
            if not job.is_done:
                job.finish(error)

    def fail_batch(self, error: PlanvecError) -> None:
        """Give up the whole batch."""
        for job in (self, *self.siblings):
            if not job.is_done:
                job.finish(error)

    def _later(self) -> Iterator[Job]:
        return (job for job in self.siblings if job.first_row > self.first_row)

    @abstractmethod
    def describe(self) -> str:
        """For error messages."""


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
        super().__init__(first_row)
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
