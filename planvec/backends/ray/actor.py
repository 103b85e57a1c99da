"""Defines `StepActor`, the actor that hosts a `PlanEnv` and answers requests."""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle
import ray

from planvec.backends.messages.factories import load_factory
from planvec.backends.messages.failures import Failure
from planvec.backends.messages.serving import perform
from planvec.backends.messages.unpickling import load_pickled
from planvec.backends.messages.values import write_value
from planvec.backends.processes.os.procfs import bytes_shared, bytes_used
from planvec.backends.ray.packing import Packed, pack, unpack
from planvec.rows import Answer, Columns, Outputs, Request, unpicklable_rows
from planvec.stepping import ROW, STEP, EnvStepper

# each group of methods has a thread of its own, so that it is answered while rows are stepped
CONCURRENCY_GROUPS = {"watch": 1, "life": 1}


@dataclass(slots=True)
class Reply:
    """Holds what `StepActor.perform` returns."""

    answer: Packed | None  # the packed answer; None if the request failed
    failure: Failure | None  # what failed; None if there is an answer
    rss: int  # bytes of memory that the process of the actor uses; 0 if nobody asked, or the system hides it


@dataclass(slots=True)
class _Parts:
    """Holds the parts of an answer. A value of the user is pickled by itself; see `write_value`."""

    outputs: Outputs
    columns: Columns
    errors: dict[int, Failure]
    value: bytes
    seconds: float


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
        sys.path += [entry for entry in path if entry not in sys.path and os.path.exists(entry)]
        result: bytes | Failure
        try:
            if directory is not None and os.path.isdir(directory):
                os.chdir(directory)
            self._stepper = load_factory(factory)().stepper
            result = cloudpickle.dumps(self._stepper.description)
        except BaseException as error:
            result = Failure.of(error)
        return result, _bytes_of_its_own()

    def perform(self, data: bytes, buffers: list[Any], asks_rss: bool) -> Reply:
        """Perform a packed request. `asks_rss` says whether to tell how much memory is used."""
        assert self._stepper is not None
        progress = self._stepper.loop.progress
        progress[ROW] = -1
        self._num_requests += 1
        try:
            request: Request[Any] = unpack(data, buffers)
            packed = perform(self._stepper, request, None, lambda answer: _pack_answer(request, answer))
            failure = None
        except BaseException as error:
            packed, failure = None, Failure.of(error)
        return Reply(packed, failure, _bytes_of_its_own() if asks_rss else 0)

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
    parts = _Parts(
        replace(answer.outputs, values=None, state_blocks=None),
        answer.columns,
        {row: Failure.of(error) for row, error in answer.errors.items()},
        value,
        answer.seconds,
    )
    try:
        return pack(parts)
    except Exception:
        for error in unpicklable_rows(answer.columns).values():
            raise error from None
        raise


def read_reply(packed: Packed) -> Answer:
    """Return an answer. Its arrays are views of the object store: copy them at once."""
    parts: _Parts = unpack(*packed)
    value, values = load_pickled(parts.value) if parts.value else (None, None)
    outputs = replace(parts.outputs, values=values)
    errors: Any = {row: failure.to_error() for row, failure in parts.errors.items()}
    return Answer(outputs, parts.columns, errors, value=value, seconds=parts.seconds, is_borrowed=True)
