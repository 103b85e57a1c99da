"""Answers requests over a slab with the stepper of a `PlanEnv`."""

from __future__ import annotations

from planvec.backends.messages.serving import perform
from planvec.backends.messages.values import write_value
from planvec.backends.processes.wire.answers import write_answer
from planvec.backends.processes.wire.channel import Frame
from planvec.backends.processes.wire.requests import form_named
from planvec.backends.processes.wire.slab import Slab
from planvec.stepping import EnvStepper


class StepServer:
    """Answers the requests of `planvec.rows`."""

    # `progress`: The row at work, in the slab.

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
        if slot is None:
            return write_value(request.verb, self._stepper.perform(request, outputs))
        return perform(self._stepper, request, outputs, lambda answer: write_answer(answer, slot))
