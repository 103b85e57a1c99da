"""Defines `Form`, the way to write one kind of request in the parent, and to read it in the worker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

import gymnasium

from planvec.backends.messages.values import read_value
from planvec.backends.processes.wire.answers import read_answer
from planvec.backends.processes.wire.slab import Slot
from planvec.rows import Answer, Outputs, Request

R = TypeVar("R", bound=Request[Any])


class Form(ABC, Generic[R]):
    """Writes requests of one kind."""

    verb: ClassVar[bytes]  # name of the form in messages: at most 16 ASCII characters
    has_slot: ClassVar[bool] = True  # whether the rows of the request lie in a slot
    may_step: ClassVar[bool] = True  # whether the worker may step an environment, and so use more memory

    @abstractmethod
    def write(self, request: R, slot: Slot | None, space: gymnasium.Space[Any] | None) -> bytes:
        """Write a request into a slot, and return the payload."""
        # Returns the pickled data that does not lie in the slot; empty if there is none.

    def read_answer(self, slot: Slot | None, payload: bytes) -> Answer:
        """Return the answer of the worker. Its arrays are views of the slot: copy them at once."""
        return read_value(payload) if slot is None else read_answer(slot, payload)


class ReadableForm(Form[R]):
    """Writes and reads requests that a `StepServer` performs."""

    # The worker reads other requests by itself.

    @abstractmethod
    def read(
        self, slot: Slot | None, payload: bytes, space: gymnasium.Space[Any] | None
    ) -> tuple[Request[Any], Outputs | None]:
        """Return the request that `write` wrote, and the outputs to fill in."""
