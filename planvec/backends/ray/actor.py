"""Defines `StepActor`, the actor that hosts a `PlanEnv` and answers requests."""

from __future__ import annotations

import io
import os
import pickle
import sys
import threading
from collections import OrderedDict
from dataclasses import replace
from functools import partial
from typing import Any

import cloudpickle
import numpy as np
import ray

from planvec.backends.messages import (
    Failure,
    dump_answer,
    load_answer,
    load_factory,
    load_pickled,
    write_value,
)
from planvec.backends.processes.system import bytes_shared, bytes_used
from planvec.codecs import quiet_libraries
from planvec.errors import PlanvecError
from planvec.rows import Answer, Request, SavedState
from planvec.stepping import ROW, STEP, EnvStepper

# -- Puts a large state that several requests hold into the object store once. Each node fetches it once -----

LARGE = 100_000  # Bytes of a state from which on it is shared. Ray copies less into the message.
_KEPT_BYTES = 1 << 26  # bytes of states that are remembered


class SharedStates:
    """Remembers the large states that were sent of late. All workers of a backend share it."""

    def __init__(self) -> None:
        self._references: OrderedDict[SavedState, Any] = OrderedDict()
        self._num_bytes = 0

    def reference(self, state: SavedState) -> Any:
        """Return Ray's reference to the bytes of a state that was sent before; None for a new one."""
        # Most states are sent once: a put for each of them would cost more than their place in the message.
        if state not in self._references:
            self._references[state] = None
            self._num_bytes += state.nbytes
            while self._num_bytes > _KEPT_BYTES:
                self._num_bytes -= self._references.popitem(last=False)[0].nbytes
            return None
        self._references.move_to_end(state)
        if self._references[state] is None:
            self._references[state] = ray.put(np.frombuffer(bytes(state), np.uint8))
        return self._references[state]


# -- Packs requests and answers, so that Ray keeps their arrays in its object store and copies them no more

# A pickle without the contents of its arrays, and these: `NDArray[uint8]` or a reference to one
Packed = tuple[bytes, list[Any]]


_SMALL = 1 << 14  # bytes of an array up to which it stays in the pickle: Ray takes 70 us for each array


def pack(value: object) -> Packed:
    """Pack a value. Classes are pickled by name, so that the bytes are the same in every process."""
    buffers = _Buffers()
    return pickle.dumps(value, protocol=5, buffer_callback=buffers.add), buffers.contents


def pack_by_value(value: object, shared_states: SharedStates) -> Packed:
    """Pack a value that may contain functions and classes of the user's script."""
    stream, buffers = io.BytesIO(), _Buffers()
    _Pickler(stream, buffers, shared_states).dump(value)
    return stream.getvalue(), buffers.contents


def unpack(data: bytes, buffers: list[Any]) -> Any:
    """Return what was packed. Its arrays are views of the buffers, and cannot be written."""
    arrays = [ray.get(buffer) if isinstance(buffer, ray.ObjectRef) else buffer for buffer in buffers]
    return load_pickled(data, arrays)


class _Buffers:
    """Collects the contents of large arrays and states, in the order in which they are pickled."""

    def __init__(self) -> None:
        self.contents: list[Any] = []
        self.reference: Any = (
            None  # Ray's reference to what `add` receives next, if it is in the object store
        )

    def add(self, buffer: pickle.PickleBuffer) -> bool:
        """Add the contents of an array or a state. Returns whether they stay in the pickle."""
        contents = np.frombuffer(buffer.raw(), np.uint8)
        if len(contents) < _SMALL:
            return True
        self.contents.append(contents if self.reference is None else self.reference)
        self.reference = None
        return False


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc] # which has no types
    """Pickles arrays and large states without their contents."""

    def __init__(self, stream: io.BytesIO, buffers: _Buffers, shared_states: SharedStates) -> None:
        super().__init__(stream, protocol=5, buffer_callback=buffers.add)
        self._buffers, self._shared_states = buffers, shared_states

    def reducer_override(self, value: object) -> Any:
        if type(value) is SavedState and value.nbytes >= LARGE:
            restore, (data, *rest) = value.__reduce__()
            self._buffers.reference = self._shared_states.reference(value)
            return restore, (pickle.PickleBuffer(data), *rest)
        return super().reducer_override(value)


# each group of methods has a thread of its own, so that it is answered while rows are stepped
CONCURRENCY_GROUPS = {"watch": 1, "life": 1}


class StepActor:
    """Hosts a `PlanEnv`. All methods but those in concurrency groups run in one thread."""

    def __init__(self) -> None:
        self._stepper: EnvStepper | None = None
        self._num_requests = 0

    def where(self) -> tuple[int, str]:
        """Return the process id and the id of the node."""
        return os.getpid(), ray.get_runtime_context().get_node_id()

    def open(self, factory: bytes, path: list[str], directory: str | None) -> tuple[bytes | Failure, int]:
        """Make the environment. Return its pickled description, and the bytes of memory in use."""
        # `path`: the driver's `sys.path`; what exists on this node is searched, too. `directory` becomes the
        # working directory if it exists here; None keeps Ray's.
        sys.path += [entry for entry in path if entry not in sys.path and os.path.exists(entry)]
        result: bytes | Failure
        try:
            if directory is not None and os.path.isdir(directory):
                os.chdir(directory)
            quiet_libraries()
            self._stepper = load_factory(factory)().stepper
            result = cloudpickle.dumps(self._stepper.description)
        except BaseException as error:
            result = Failure.of(error)
        return result, _bytes_of_its_own()

    def perform(self, data: bytes, buffers: list[Any], asks_rss: bool) -> tuple[Packed | Failure, int]:
        """Perform a packed request. Return the packed answer or the failure, and the bytes of memory."""
        # The bytes are 0 if nobody asks, or if the system hides them.
        assert self._stepper is not None
        progress = self._stepper.loop.progress
        progress[ROW] = -1
        self._num_requests += 1
        try:
            request: Request[Any] = unpack(data, buffers)
            write = partial(_pack_answer, request)
            outcome: Packed | Failure = self._stepper.perform_and_write(request, None, write)
        except BaseException as error:
            outcome = Failure.of(error)
        return outcome, _bytes_of_its_own() if asks_rss else 0

    @ray.method(concurrency_group="watch")
    def progress(self) -> tuple[int, int, int]:
        """Return the number of the request at work, its row (-1: none), and the step of its rollout."""
        assert self._stepper is not None
        progress = self._stepper.loop.progress
        return self._num_requests, int(progress[ROW]), int(progress[STEP])

    @ray.method(concurrency_group="life")
    def live(self) -> None:
        """Never return: the driver learns from the error of this call that the actor has died."""
        threading.Event().wait()


def _bytes_of_its_own() -> int:
    """Return the bytes of memory that this process uses, without what it reads in the object store."""
    return bytes_used(os.getpid()) - bytes_shared(os.getpid())


def _pack_answer(request: Request[Any], answer: Answer) -> Packed:
    """Pack an answer."""
    value = b""
    if not request.has_rows or answer.outputs.values is not None:
        value = write_value(request.verb, answer)
    return dump_answer(answer, replace(answer.outputs, values=None, state_blocks=None), value, pack)


def read_answer(outcome: Packed | Failure) -> Answer | PlanvecError:
    """Return an answer, or the error of the environment. Its arrays are views of the object store."""
    return outcome.to_error() if isinstance(outcome, Failure) else load_answer(unpack(*outcome))
