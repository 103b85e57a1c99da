"""Hosts one object in a worker process, and answers requests until the parent closes the channel."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import cloudpickle

from planvec.backends.messages.factories import load_factory
from planvec.backends.messages.failures import Failure
from planvec.backends.messages.main_classes import load_from_parent
from planvec.backends.messages.values import write_value
from planvec.backends.processes.child.step_server import StepServer
from planvec.backends.processes.wire.channel import Channel, Frame
from planvec.backends.processes.wire.hosted import Operation
from planvec.backends.processes.wire.served import Server
from planvec.backends.processes.wire.verbs import DONE, FAILED, HOSTED, READY
from planvec.rows import Answer, Outputs
from planvec.stepping import ROW, TICKET, HasStepper, new_progress


def open_host(channel: Channel, memory: int, factory: bytes | Callable[[], Any]) -> Host | None:
    """Make the hosted object, and send its description or the error to the parent."""
    # Returns the host, or None if the object could not be made.
    try:
        make = load_factory(factory) if isinstance(factory, bytes) else factory
        host = Host(channel, make(), memory)
        payload = cloudpickle.dumps(host.description)
    except BaseException as error:
        channel.send(0, FAILED, payload=pickle.dumps(Failure.of(error)))
        return None
    channel.send(0, READY, payload=payload)
    return host


class Host:
    """Answers requests in order."""

    def __init__(self, channel: Channel, hosted: Any, memory: int) -> None:
        self._channel = channel
        self._hosted = hosted
        self._progress = new_progress()
        self._perform: Callable[[Frame], bytes] = self._operate
        # describes the object to the parent; None if it is neither a `PlanEnv` nor a `Server`
        self.description: Any = None
        if isinstance(hosted, HasStepper):
            server = StepServer(hosted.stepper, memory)
            self._perform, self._progress = server.perform, server.progress
            self.description = hosted.stepper.description
        elif isinstance(hosted, Server):
            self._perform = lambda frame: hosted.serve(frame.payload)
            self._progress = hosted.layout.map_memory(memory)
            self.description = hosted.layout

    def serve(self) -> None:
        """Answer requests until the parent closes the channel."""
        channel = self._channel
        while True:
            channel.wait()
            frame = channel.receive()
            assert frame is not None  # `receive` waits at this end of the channel
            self._progress[ROW], self._progress[TICKET] = -1, frame.ticket
            perform = self._operate if frame.verb == HOSTED else self._perform
            try:
                payload, verb = perform(frame), DONE
            except BaseException as error:
                payload, verb = pickle.dumps(Failure.of(error)), FAILED
            channel.send(frame.ticket, verb, frame.slot, frame.num_rows, payload)

    def close(self) -> None:
        """Close the hosted object, if it has a `close` method."""
        close = getattr(self._hosted, "close", None)
        if callable(close):
            close()

    def _operate(self, frame: Frame) -> bytes:
        """Execute an operation on the hosted object, and return the payload of the answer."""
        operation: Operation = load_from_parent(frame.payload)
        return write_value(operation.name, Answer(Outputs(), value=operation.apply(self._hosted)))
