"""Writes requests in the parent and reads them in the worker, with one `Form` per kind of request.

Data of fixed size lies in a slot of the slab. Other data (states of variable size, texts, large rollouts) is
pickled into the payload of the message. A request without a form of its own is pickled as a whole.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import cloudpickle
import gymnasium
import numpy as np

from planvec.backends.messages import (
    HasStepper,
    dump_answer,
    load_answer,
    load_pickled,
    pickle_for_worker,
    read_value,
)
from planvec.backends.processes.channel import HOSTED, SERVED
from planvec.backends.processes.slab import Slot
from planvec.errors import InvalidBatchError
from planvec.rows import (
    Answer,
    FlagBatch,
    ObserveBatch,
    Outputs,
    Request,
    RolloutBatch,
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


def write_answer(answer: Answer, slot: Slot) -> bytes:
    """Return the payload of an answer whose arrays of fixed size lie in a slot."""
    slot.seconds[0] = answer.seconds
    fixed, outputs = slot.outputs, answer.outputs
    if outputs is fixed and not answer.columns and not answer.errors:
        return b""  # everything lies in the slot
    rest = Outputs(
        new_states=outputs.new_states if fixed.new_states is None else None,
        observations=outputs.observations if fixed.observations is None else None,
    )
    if rest.new_states is None and rest.observations is None and not answer.errors:
        if not answer.columns:
            return b""
        encoded = encode_columns(answer.columns)
        if encoded is not None:
            return _COLUMNS + encoded
    return dump_answer(answer, rest, b"", partial(pickle.dumps, protocol=5))


def read_answer(slot: Slot, payload: bytes) -> Answer:
    """Return the answer that `write_answer` wrote. Its arrays are views of the slot: copy them at once."""
    if payload and not payload.startswith(_COLUMNS):
        answer = load_answer(pickle.loads(payload))
        rest, fixed = answer.outputs, slot.outputs
        answer.outputs = replace(
            fixed,
            new_states=fixed.new_states if rest.new_states is None else rest.new_states,
            observations=fixed.observations if rest.observations is None else rest.observations,
        )
        return answer
    columns = decode_columns(payload[len(_COLUMNS) :]) if payload else {}
    return Answer(slot.outputs, columns, seconds=float(slot.seconds[0]), is_borrowed=True)


# -- Defines `Form`, the way to write one kind of request in the parent, and to read it in the worker --------

R = TypeVar("R", bound=Request[Any])


class Form(ABC, Generic[R]):
    """Writes requests of one kind."""

    verb: ClassVar[bytes]  # name of the form in messages: at most 16 ASCII characters
    has_slot: ClassVar[bool] = True  # whether the rows of the request lie in a slot
    may_step: ClassVar[bool] = True  # whether the worker may step an environment, and so use more memory

    @abstractmethod
    def write(self, request: R, slot: Slot | None, space: gymnasium.Space[Any] | None) -> bytes:
        """Write a request into a slot, and return the payload."""
        # `slot`: the first rows of a slot; None if the form has none. `space`: None if the process steps no
        # rows.
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
        # Returns the request, and the arrays for the outputs of its rows; None if the form has no slot.


# -- Defines operations on the hosted object: calls of methods, reads and writes of attributes ---------------


class Operation(ABC):
    """Base class of operations on the hosted object."""

    name: str  # name of the method or the attribute

    @abstractmethod
    def apply(self, hosted: Any) -> Any:
        """Execute the operation in the process, and return its value."""


@dataclass(slots=True)
class CallMethod(Operation):
    """Calls a method of the hosted object."""

    name: str
    args: tuple[Any, ...]  # positional arguments
    kwargs: dict[str, Any]  # keyword arguments

    def apply(self, hosted: Any) -> Any:
        return getattr(hosted, self.name)(*self.args, **self.kwargs)


@dataclass(slots=True)
class GetAttribute(Operation):
    """Reads an attribute of the object; if the object is a `PlanEnv`, of its environment."""

    name: str  # A dotted name

    def apply(self, hosted: Any) -> Any:
        first, *rest = self.name.split(".")
        if isinstance(hosted, HasStepper):
            return resolve(hosted.stepper.env.get_wrapper_attr(first), rest)
        return resolve(hosted, [first, *rest])


@dataclass(slots=True)
class SetAttribute(Operation):
    """Sets an attribute of the object; if the object is a `PlanEnv`, of its environment."""

    name: str
    value: Any  # the new value

    def apply(self, hosted: Any) -> None:
        if isinstance(hosted, HasStepper):
            hosted.stepper.env.set_wrapper_attr(self.name, self.value)
        else:
            setattr(hosted, self.name, self.value)


@dataclass(slots=True)
class HostedRequest(Request[Any]):
    """Requests an operation on the hosted object."""

    verb: ClassVar[str] = "call"

    name: str  # name of the method or the attribute, for messages
    payload: bytes  # the pickled operation

    @classmethod
    def of(cls, operation: Operation) -> HostedRequest:
        """Return the request for an operation."""
        try:
            return cls(operation.name, pickle_for_worker(operation))
        except Exception as error:
            raise InvalidBatchError(
                f"{operation.name}: an argument cannot be pickled ({type(error).__name__}: {error}); "
                "nothing was sent"
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


_HAS_SEEDS, _RETURN_STATE, _MASK_ERRORS = 1, 2, 4  # the bits of `Slot.flags`


class _StepForm(ReadableForm[StepBatch]):
    verb = b"step"

    def write(self, request: StepBatch, slot: Slot | None, space: gymnasium.Space[Any] | None) -> bytes:
        assert slot is not None
        slot.flags[0] = (
            (request.seeds is not None) * _HAS_SEEDS
            + request.return_state * _RETURN_STATE
            + request.mask_errors * _MASK_ERRORS
        )
        _write_start(request, slot)
        slot.dt[:] = request.dt
        if slot.actions is not None:
            copy_rows(request.actions, slot.actions)
            if slot.states is not None:
                return b""
        states = request.states if slot.states is None else None
        return pickle.dumps((states, request.actions if slot.actions is None else None), protocol=5)

    def read(
        self, slot: Slot | None, payload: bytes, space: gymnasium.Space[Any] | None
    ) -> tuple[StepBatch, Outputs | None]:
        assert slot is not None
        states: Any
        states, actions = pickle.loads(payload) if payload else (None, None)
        flags = int(slot.flags[0])
        request = StepBatch(
            states if slot.states is None else slot.states,
            actions if slot.actions is None else slot.actions,
            slot.dt,
            slot.seeds if flags & _HAS_SEEDS else None,
            bool(flags & _RETURN_STATE),
            bool(flags & _MASK_ERRORS),
        )
        return request, _outputs(slot, request.return_state, has_observations=True)


class _RolloutForm(ReadableForm[RolloutBatch]):
    verb = b"rollout"

    def write(self, request: RolloutBatch, slot: Slot | None, space: gymnasium.Space[Any] | None) -> bytes:
        assert slot is not None
        assert space is not None
        _write_start(request, slot)
        actions = request.actions
        num_actions = 0
        if actions is not None:
            count = request.num_rows * request.horizon
            target = slot.rollout_tree(space, count)
            if target is not None:
                copy_rows(actions, target)
                actions, num_actions = None, count
        states = request.states if slot.states is None else None
        options = {
            "horizon": request.horizon,
            "action_seed": request.action_seed,
            "first_row": request.first_row,
            "discount": request.discount,
            "mask_errors": request.mask_errors,
        }
        has_seeds = request.seeds is not None
        return pickle.dumps((options, has_seeds, num_actions, actions, states), protocol=5)

    def read(
        self, slot: Slot | None, payload: bytes, space: gymnasium.Space[Any] | None
    ) -> tuple[RolloutBatch, Outputs | None]:
        assert slot is not None
        assert space is not None
        options, has_seeds, num_actions, actions, states = pickle.loads(payload)
        if num_actions:
            actions = slot.rollout_tree(space, num_actions)
        request = RolloutBatch(
            states=states if slot.states is None else slot.states,
            actions=actions,
            seeds=slot.seeds if has_seeds else None,
            **options,
        )
        return request, _outputs(slot, return_state=True, has_observations=False)


class _FlagForm(ReadableForm[FlagBatch]):
    verb = b"flag"

    def write(self, request: FlagBatch, slot: Slot | None, space: gymnasium.Space[Any] | None) -> bytes:
        assert slot is not None
        if slot.state_blocks is not None:
            slot.state_blocks[:] = raw(request.states)
        states = request.states if slot.states is None else None
        return pickle.dumps((states, request.has_observations, request.return_state), protocol=5)

    def read(
        self, slot: Slot | None, payload: bytes, space: gymnasium.Space[Any] | None
    ) -> tuple[FlagBatch, Outputs | None]:
        assert slot is not None
        states, has_observations, return_state = pickle.loads(payload)
        states = states if slot.states is None else slot.states
        request = FlagBatch(states, has_observations, return_state)
        return request, _outputs(slot, return_state, has_observations)


class _ObserveForm(ReadableForm[ObserveBatch]):
    verb = b"observe"

    def write(self, request: ObserveBatch, slot: Slot | None, space: gymnasium.Space[Any] | None) -> bytes:
        assert slot is not None
        if slot.state_blocks is None:
            return pickle.dumps(request.states, protocol=5)
        slot.state_blocks[:] = raw(request.states)
        return b""

    def read(
        self, slot: Slot | None, payload: bytes, space: gymnasium.Space[Any] | None
    ) -> tuple[ObserveBatch, Outputs | None]:
        assert slot is not None
        states = pickle.loads(payload) if slot.states is None else slot.states
        return ObserveBatch(states), Outputs(observations=_observations(slot))


class _PickledForm(ReadableForm[Request[Any]]):
    """Pickles requests whose answers are not arrays of fixed size, so that a slot has no use."""

    verb = b"request"
    has_slot = may_step = False

    def write(self, request: Request[Any], slot: Slot | None, space: gymnasium.Space[Any] | None) -> bytes:
        payload: bytes = cloudpickle.dumps(request, protocol=5)
        return payload

    def read(
        self, slot: Slot | None, payload: bytes, space: gymnasium.Space[Any] | None
    ) -> tuple[Request[Any], Outputs | None]:
        return load_pickled(payload), None


class _HostedForm(Form[HostedRequest]):
    verb = HOSTED
    has_slot = may_step = False

    def write(self, request: HostedRequest, slot: Slot | None, space: gymnasium.Space[Any] | None) -> bytes:
        return request.payload


class _ServedForm(Form[ServedRequest]):
    verb = SERVED
    has_slot = False

    def write(self, request: ServedRequest, slot: Slot | None, space: gymnasium.Space[Any] | None) -> bytes:
        return request.write()

    def read_answer(self, slot: Slot | None, payload: bytes) -> Answer:
        return Answer(Outputs(), value=payload)


_HOSTED, _SERVED, _PICKLED = _HostedForm(), _ServedForm(), _PickledForm()
_READABLE: dict[type[Request[Any]], ReadableForm[Any]] = {
    StepBatch: _StepForm(),
    RolloutBatch: _RolloutForm(),
    FlagBatch: _FlagForm(),
    ObserveBatch: _ObserveForm(),
}
_BY_VERB = {form.verb: form for form in (*_READABLE.values(), _PICKLED)}


def form_of(request: Request[Any]) -> Form[Any]:
    """Return the form that writes a request."""
    if isinstance(request, ServedRequest):
        return _SERVED
    return _HOSTED if isinstance(request, HostedRequest) else _READABLE.get(type(request), _PICKLED)


def form_named(verb: bytes) -> ReadableForm[Any]:
    """Return the form with a verb, to read a request."""
    return _BY_VERB[verb]


def _write_start(request: StepBatch | RolloutBatch, slot: Slot) -> None:
    """Write the data that steps and rollouts have in common: seeds and states."""
    if request.seeds is not None:
        slot.seeds[:] = request.seeds
    if slot.state_blocks is not None:
        slot.state_blocks[:] = raw(request.states)


def _observations(slot: Slot) -> Any:
    """Return the arrays for observations in the slot, or a list for observations of variable size."""
    fixed = slot.outputs.observations
    return [None] * len(slot.dt) if fixed is None else fixed


def _outputs(slot: Slot, return_state: bool, has_observations: bool) -> Outputs:
    """Return the outputs in a slot, with lists for data of variable size."""
    fixed = slot.outputs
    is_fixed = fixed.new_states is not None and fixed.observations is not None
    if return_state and has_observations and is_fixed:
        return fixed
    states = np.empty(len(slot.dt), object) if fixed.new_states is None else fixed.new_states
    return replace(
        fixed,
        new_states=states if return_state else None,
        state_blocks=fixed.state_blocks if return_state else None,
        observations=_observations(slot) if has_observations else None,
    )
