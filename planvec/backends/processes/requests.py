"""Writes requests in the parent and reads them in the worker, and their answers the other way round.

Data of fixed size lies in a slot of the slab. Other data (states of variable size, texts, large rollouts) is
pickled into the payload of the message. A request without a `Form` is pickled as a whole.
"""

from __future__ import annotations

import math
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Protocol

import cloudpickle
import numpy as np

from planvec.backends.messages import (
    HasStepper,
    dump_answer,
    load_answer,
    pickle_for_worker,
)
from planvec.backends.processes.channel import HOSTED, PICKLED, SERVED
from planvec.backends.processes.slab import Slot
from planvec.errors import InvalidBatchError
from planvec.rows import (
    Answer,
    FlagBatch,
    ObserveBatch,
    Outputs,
    Request,
    RolloutBatch,
    RowRequest,
    StepBatch,
    copy_rows,
    decode_columns,
    encode_columns,
    raw,
    resolve,
)

# -- Writes answers in a worker and reads them in its parent.
#
# Arrays of fixed size lie in the slot of the request. Infos of numbers and arrays are encoded as bytes; other
# data is pickled.

_COLUMNS = b"columns:"  # Prefix of a payload of encoded infos. A pickle begins with another byte.


def write_answer(answer: Answer, slot: Slot, waits: int) -> bytes:
    """Return the payload of an answer whose arrays of fixed size lie in a slot."""
    slot.seconds[0], slot.waits[0] = answer.seconds, waits
    fixed, outputs = slot.outputs, answer.outputs
    if outputs is fixed and not answer.columns and not answer.errors:
        return b""  # everything lies in the slot
    rest = Outputs(
        new_states=outputs.new_states if fixed.new_states is None else None,
        observations=outputs.observations if fixed.observations is None else None,
    )
    if rest.new_states is None and rest.observations is None and not answer.errors:
        if not answer.columns:
            return b""  # everything lies in the slot
        encoded = encode_columns(answer.columns)
        if encoded is not None:
            return _COLUMNS + encoded
    return dump_answer(answer, rest, b"", partial(pickle.dumps, protocol=5))


def read_answer(slot: Slot, payload: bytes) -> Answer:
    """Return the answer that `write_answer` wrote. Its arrays are views of the slot: copy them at once."""
    if payload and not payload.startswith(_COLUMNS):
        answer = load_answer(pickle.loads(payload))
        answer.waits = int(slot.waits[0])
        rest, fixed = answer.outputs, slot.outputs
        answer.outputs = replace(
            fixed,
            new_states=fixed.new_states if rest.new_states is None else rest.new_states,
            observations=fixed.observations if rest.observations is None else rest.observations,
        )
        return answer
    columns = decode_columns(payload[len(_COLUMNS) :]) if payload else {}
    seconds, waits = float(slot.seconds[0]), int(slot.waits[0])
    return Answer(slot.outputs, columns, seconds=seconds, waits=waits, is_borrowed=True)


# -- Defines operations on the hosted object: calls of methods, reads and writes of attributes.
#
# The worker calls one of these functions. Attributes of a `PlanEnv` are those of its environment.


def call_method(hosted: object, name: str, args: tuple[object, ...], kwargs: dict[str, Any]) -> Any:
    """Call a method of the hosted object."""
    return getattr(hosted, name)(*args, **kwargs)


def get_attribute(hosted: object, name: str) -> Any:
    """Read an attribute of the hosted object by its dotted name."""
    first, *rest = name.split(".")
    if isinstance(hosted, HasStepper):
        return resolve(hosted.stepper.env.get_wrapper_attr(first), rest)
    return resolve(hosted, [first, *rest])


def set_attribute(hosted: object, name: str, value: object) -> None:
    """Set an attribute of the hosted object."""
    if isinstance(hosted, HasStepper):
        hosted.stepper.env.set_wrapper_attr(name, value)
    else:
        setattr(hosted, name, value)


@dataclass(slots=True)
class HostedRequest(Request[Any]):
    """Requests an operation on the hosted object."""

    verb: ClassVar[str] = "call"

    name: str  # name of the method or the attribute, for messages
    payload: bytes  # the pickled function, name and further arguments

    @classmethod
    def of(cls, function: Callable[..., Any], name: str, *arguments: object) -> HostedRequest:
        """Return the request for `function(hosted, name, *arguments)`."""
        try:
            return cls(name, pickle_for_worker((function, name, arguments)))
        except Exception as error:
            raise InvalidBatchError(
                f"{name}: an argument cannot be pickled ({type(error).__name__}: {error}); nothing was sent"
            ) from error


# -- Defines `Server`, the base class of hosted objects that answer requests of their own.
#
# A `PlanEnv` answers the requests of `planvec.rows` over a `Slab`. An object that lays out the shared memory
# itself, such as the environments of a vector environment, implements `Server`.


class SharedLayout(Protocol):
    """Describes a `Server`, and lays out the memory that it shares with its parent."""

    # The worker pickles it for the parent. Each process maps the memory once per worker process.

    def map_memory(self, memory: int) -> memoryview:
        """Map the shared memory."""
        # Returns the progress; see `planvec.stepping.row_loop`.
        ...

    def difference(self, replacement: Any) -> str | None:
        """Return how the object of a restarted worker differs from this one, for messages; None if equal."""
        ...


class Server(ABC):
    """Answers requests of its own. A worker that hosts such an object passes them on to it."""

    # Describes it, and lays out its memory. The worker maps it before the first request.
    layout: SharedLayout

    @abstractmethod
    def serve(self, payload: bytes) -> bytes:
        """Return the answer to what `ServedRequest.write` returned."""


class ServedRequest(Request[Any]):
    """Asks something of a `Server`. The value of the answer is what `Server.serve` returned."""

    verb: ClassVar[str] = "serve"

    @abstractmethod
    def write(self) -> bytes:
        """Write what lies in the shared memory, and return the rest. Called when the request is sent."""


# -- Writes requests over rows into a slot in the parent, and reads them in the worker -----------------------


class Form:
    """Writes requests of one kind: what is no array of fixed size is pickled."""

    verb: ClassVar[bytes] = b"rows"  # name of the form in messages: at most 16 ASCII characters

    def write(self, request: Any, slot: Slot) -> bytes:
        """Write a request into the first rows of a slot, and return the rest; empty if there is none."""
        rest, num_actions = replace(request, states=_write_states(request.states, slot)), 0
        if isinstance(request, RolloutBatch) and request.actions is not None:
            count = request.num_rows * request.horizon
            target = slot.rollout_tree(count)
            if target is not None:
                copy_rows(request.actions, target)
                rest.actions, num_actions = None, count
        return pickle.dumps((rest, num_actions), protocol=5)

    def read(self, slot: Slot, payload: bytes) -> tuple[Any, Outputs]:
        """Return the request that `write` wrote, and the arrays for the outputs of its rows."""
        request, num_actions = pickle.loads(payload)
        if request.states is None:
            request.states = slot.states
        if num_actions:
            request.actions = slot.rollout_tree(num_actions)
        return request, _outputs(slot, request)


_HAS_SEEDS, _RETURN_STATE, _MASK_ERRORS = 1, 2, 4  # the bits of `Slot.flags`


class _StepForm(Form):
    """Writes steps. A pickle would take longer than a step of a small environment."""

    verb = b"step"

    def write(self, request: StepBatch, slot: Slot) -> bytes:
        slot.flags[0] = (
            (request.seeds is not None) * _HAS_SEEDS
            + request.return_state * _RETURN_STATE
            + request.mask_errors * _MASK_ERRORS
        )
        slot.dt[:] = request.dt
        slot.deadline[0] = math.inf if request.deadline is None else request.deadline
        if request.seeds is not None:
            slot.seeds[:] = request.seeds
        states, actions = _write_states(request.states, slot), request.actions
        if slot.actions is not None:
            copy_rows(actions, slot.actions)
            actions = None
        return b"" if states is None and actions is None else pickle.dumps((states, actions), protocol=5)

    def read(self, slot: Slot, payload: bytes) -> tuple[StepBatch, Outputs]:
        states: Any
        states, actions = pickle.loads(payload) if payload else (None, None)
        if states is None:
            states = slot.states
        flags, deadline = int(slot.flags[0]), float(slot.deadline[0])
        request = StepBatch(
            states,
            slot.actions if actions is None else actions,
            slot.dt,
            slot.seeds if flags & _HAS_SEEDS else None,
            bool(flags & _RETURN_STATE),
            bool(flags & _MASK_ERRORS),
            deadline=None if deadline == math.inf else deadline,
        )
        return request, _outputs(slot, request)


# type of request -> its form; a request of another type needs no slot
FORMS: dict[type[Request[Any]], Form] = {
    StepBatch: _StepForm(),
    RolloutBatch: Form(),
    FlagBatch: Form(),
    ObserveBatch: Form(),
}
FORM_OF_VERB = {form.verb: form for form in FORMS.values()}


def write_request(request: Request[Any]) -> tuple[bytes, bytes]:
    """Return the verb and the payload of a request that needs no slot."""
    if isinstance(request, ServedRequest):
        return SERVED, request.write()
    if isinstance(request, HostedRequest):
        return HOSTED, request.payload
    return PICKLED, cloudpickle.dumps(request, protocol=5)


def _write_states(states: Any, slot: Slot) -> Any:
    """Write states of fixed size into a slot, and return None; return states of variable size."""
    if slot.state_blocks is None:
        return states
    slot.state_blocks[:] = raw(states)
    return None


def _outputs(slot: Slot, request: RowRequest[Any]) -> Outputs:
    """Return the outputs in a slot, with lists for data of variable size."""
    fixed, num_rows = slot.outputs, len(slot.dt)
    is_fixed = fixed.new_states is not None and fixed.observations is not None
    if request.return_state and request.has_observations and is_fixed:
        return fixed
    states = np.empty(num_rows, object) if fixed.new_states is None else fixed.new_states
    observations = [None] * num_rows if fixed.observations is None else fixed.observations
    return replace(
        fixed,
        new_states=states if request.return_state else None,
        state_blocks=fixed.state_blocks if request.return_state else None,
        observations=observations if request.has_observations else None,
    )
