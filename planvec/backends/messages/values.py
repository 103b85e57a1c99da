"""Writes answers that are values, or lists of values: frames, attributes, what a method returned."""

from __future__ import annotations

import cloudpickle

from planvec.backends.messages.unpickling import load_pickled
from planvec.errors import EnvError
from planvec.rows import Answer, Outputs


def write_value(what: str, answer: Answer) -> bytes:
    """Return the payload of an answer without a slot: a value, or a list of values."""
    value = (answer.value, answer.outputs.values)
    try:
        payload: bytes = cloudpickle.dumps(value, protocol=5)
    except Exception as error:
        kind = type(answer.value if answer.outputs.values is None else answer.outputs.values[0]).__name__
        raise EnvError(f"{what}: its value, a {kind}, cannot be pickled ({error})") from error
    return payload


def read_value(payload: bytes) -> Answer:
    """Return the answer that `write_value` wrote."""
    value, values = load_pickled(payload)
    return Answer(Outputs(values=values), value=value)
