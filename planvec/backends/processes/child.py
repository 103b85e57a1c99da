"""Runs a worker process of any start method."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any

import cloudpickle

from planvec.backends.messages import (
    Failure,
    HasStepper,
    load_factory,
    load_from_parent,
    load_pickled,
    write_value,
)
from planvec.backends.processes.channel import DONE, FAILED, HOSTED, READY, Channel, ChannelError, Frame
from planvec.backends.processes.requests import FORM_OF_VERB, Server, write_answer
from planvec.backends.processes.slab import Slab, WorkerSpec
from planvec.backends.processes.system import die_with_parent, num_waits
from planvec.backends.signals import HANDLED
from planvec.codecs import may_fork, quiet_libraries
from planvec.rows import Answer, Outputs, Request
from planvec.stepping import ROW, TICKET, new_progress


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
            self._perform, self.description = self._step, hosted.stepper.description
            slab = Slab(self.description, memory)
            self._slots, self._progress = slab.slots, slab.progress
            hosted.stepper.loop.progress = slab.progress
        elif isinstance(hosted, Server):
            self._perform, self.description = lambda frame: hosted.serve(frame.payload), hosted.layout
            self._progress = hosted.layout.map_memory(memory)

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

    def _step(self, frame: Frame) -> bytes:
        """Execute a request of `planvec.rows`, and return the payload of the answer."""
        form, stepper = FORM_OF_VERB.get(frame.verb), self._hosted.stepper
        if form is None:
            request: Request[Any] = load_pickled(frame.payload)
            return write_value(request.verb, stepper.perform(request))
        slot = self._slots[frame.slot].first(frame.num_rows)
        request, outputs = form.read(slot, frame.payload)
        before = num_waits()
        payload: bytes = stepper.perform_and_write(
            request, outputs, lambda answer: write_answer(answer, slot, num_waits() - before)
        )
        return payload

    def _operate(self, frame: Frame) -> bytes:
        """Execute an operation on the hosted object, and return the payload of the answer."""
        function, name, arguments = load_from_parent(frame.payload)
        return write_value(name, Answer(Outputs(), value=function(self._hosted, name, *arguments)))


def main(spec: WorkerSpec, sock: socket.socket, lifeline: socket.socket, memory: int) -> None:
    """Run a worker, and end the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    for number in HANDLED:
        if callable(signal.getsignal(number)):  # a forked process inherits the parent's handlers
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
    die_with_parent(lifeline)
    spec.apply()
    may_fork()
    quiet_libraries()
    channel = Channel(sock)
    hosted, status = None, 0
    try:
        try:
            factory = spec.factory
            hosted = load_factory(factory)() if isinstance(factory, bytes) else factory()
            host = Host(channel, hosted, memory)
            payload = cloudpickle.dumps(host.description)
        except BaseException as error:
            channel.send(0, FAILED, payload=pickle.dumps(Failure.of(error)))
        else:
            channel.send(0, READY, payload=payload)
            host.serve()
    except ChannelError:
        pass  # the parent has closed the channel or has ended
    except BaseException:  # of a signal handler of the environment, between two requests
        traceback.print_exc()
        status = 1
    finally:
        # The process must end in any case, and nobody waits for an error of `close`.
        with contextlib.suppress(BaseException):
            close = getattr(hosted, "close", None)
            if callable(close):
                close()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        # Not sys.exit, which would wait for threads that the environment has started.
        os._exit(status)


def run(spec: int, channel: int, lifeline: int, slab: int) -> None:
    """Run a worker, and end the process."""
    try:
        for fd in (channel, lifeline, slab):
            os.set_inheritable(fd, False)
        main(WorkerSpec.read(spec), socket.socket(fileno=channel), socket.socket(fileno=lifeline), slab)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)
