"""Writes requests in the parent and reads them in the worker, with one `Form` per kind of request.

Data of fixed size lies in a slot of the slab. Other data (states of variable size, texts, large rollouts) is
pickled into the payload of the message. A request without a form of its own is pickled as a whole.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import cloudpickle
import gymnasium
import numpy as np

from planvec.backends.messages.unpickling import load_pickled
from planvec.backends.processes.wire.form import Form, ReadableForm
from planvec.backends.processes.wire.hosted import HostedRequest
from planvec.backends.processes.wire.served import ServedRequest
from planvec.backends.processes.wire.slab import Slot
from planvec.backends.processes.wire.verbs import HOSTED, SERVED
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
    raw,
)

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
        try:
            payload: bytes = cloudpickle.dumps(request, protocol=5)
        except Exception as error:
            raise InvalidBatchError(
                f"{request.verb}: an argument cannot be pickled ({type(error).__name__}: {error}); "
                "nothing was sent"
            ) from error
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
