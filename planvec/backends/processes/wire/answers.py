"""Writes answers in a worker and reads them in its parent.

Arrays of fixed size lie in the slot of the request. Infos of numbers and arrays are encoded as bytes; other
data is pickled.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from typing import Any

from planvec.backends.messages.failures import Failure
from planvec.backends.processes.wire.slab import Slot
from planvec.rows import Answer, Columns, decode_columns, encode_columns, unpicklable_rows

_COLUMNS = b"columns:"  # Prefix of a payload of encoded infos. A pickle begins with another byte.


@dataclass(slots=True)
class _Rest:
    """Holds the parts of an answer that do not lie in a slot, or None for a part that it lacks."""

    states: Any = None  # new states of variable size
    observations: Any = None  # observations of variable size
    columns: Columns | None = None  # infos
    errors: dict[int, Failure] | None = None  # row of the chunk -> error of a flagged row
    values: list[Any] | None = None  # rendered frames or values of attributes


def write_answer(answer: Answer, slot: Slot) -> bytes:
    """Return the payload of an answer whose arrays of fixed size lie in a slot."""
    slot.seconds[0] = answer.seconds
    fixed, outputs = slot.outputs, answer.outputs
    if outputs is fixed and not answer.columns and not answer.errors:
        return b""  # everything lies in the slot
    states = outputs.new_states if fixed.new_states is None else None
    observations = outputs.observations if fixed.observations is None else None
    if states is None and observations is None and not answer.errors:
        if not answer.columns:
            return b""
        encoded = encode_columns(answer.columns)
        if encoded is not None:
            return _COLUMNS + encoded
    errors = {row: Failure.of(error) for row, error in answer.errors.items()}
    rest = _Rest(states, observations, answer.columns or None, errors or None)
    try:
        return pickle.dumps(rest, protocol=5)
    except Exception:
        for error in unpicklable_rows(answer.columns).values():
            raise error from None
        raise


def read_answer(slot: Slot, payload: bytes) -> Answer:
    """Return the answer that `write_answer` wrote. Its arrays are views of the slot: copy them at once."""
    seconds = float(slot.seconds[0])
    if not payload:
        return Answer(slot.outputs, seconds=seconds, is_borrowed=True)
    if payload.startswith(_COLUMNS):
        return Answer(
            slot.outputs, decode_columns(payload[len(_COLUMNS) :]), seconds=seconds, is_borrowed=True
        )
    rest: _Rest = pickle.loads(payload)
    outputs = slot.outputs
    if rest.states is not None or rest.observations is not None:
        outputs = replace(
            outputs,
            new_states=outputs.new_states if rest.states is None else rest.states,
            observations=outputs.observations if rest.observations is None else rest.observations,
        )
    errors = {row: failure.to_error() for row, failure in (rest.errors or {}).items()}
    return Answer(outputs, rest.columns or {}, errors, seconds=seconds, is_borrowed=True)
