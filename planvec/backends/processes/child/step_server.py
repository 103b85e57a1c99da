"""Answers requests over a slab with the stepper of a `PlanEnv`."""

from __future__ import annotations

from typing import Any

from planvec.backends.processes.wire.answers import write_answer, write_value
from planvec.backends.processes.wire.channel import Frame
from planvec.backends.processes.wire.requests import form_named
from planvec.backends.processes.wire.slab import Slab
from planvec.errors import EnvError
from planvec.rows import Answer, RowRequest, clear_row, unpicklable_rows
from planvec.stepping import EnvStepper

__all__ = ["StepServer"]


class StepServer:
    """Answers the requests of `planvec.rows`.

    Args:
        stepper: Performs them.
        memory: The file descriptor of the slab.

    Attributes:
        progress: The row at work, in the slab.
    """

    def __init__(self, stepper: EnvStepper, memory: int) -> None:
        self._stepper = stepper
        slab = Slab(stepper.description, memory)
        self._slots, self.progress = slab.slots, slab.progress
        stepper.loop.progress = slab.progress

    def perform(self, frame: Frame) -> bytes:
        """Execute a request to the environment, and return the payload of the answer."""
        form = form_named(frame.verb)
        slot = self._slots[frame.slot].first(frame.num_rows) if form.has_slot else None
        request, outputs = form.read(slot, frame.payload, self._stepper.description.action_space)
        answer = self._stepper.perform(request, outputs)
        if slot is None:
            return write_value(request.verb, answer)
        try:
            return write_answer(answer, slot)
        except EnvError:
            if not isinstance(request, RowRequest) or not request.mask_errors:
                raise
            self._flag_unsent(request, answer)
            return write_answer(answer, slot)

    def _flag_unsent(self, request: RowRequest[Any], answer: Answer) -> None:
        """Flag the rows whose infos cannot be pickled."""
        unsent = unpicklable_rows(answer.columns)
        for row in unsent:
            clear_row(answer.columns, row)
        self._stepper.loop.flag(request.states, answer.outputs, list(unsent))
        answer.errors |= unsent
