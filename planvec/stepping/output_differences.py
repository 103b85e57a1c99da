"""Compares the results of rows that were stepped twice, bit for bit."""

from __future__ import annotations

from typing import Any

from planvec.codecs import describe_difference
from planvec.rows import Outputs

_FIELDS = ("new_states", "observations", "rewards", "terminated", "truncated", "num_steps")


def output_difference(expected: Outputs, got: Outputs) -> str | None:
    """Return how the results of the same rows differ; None if they are the same."""
    for name in _FIELDS:
        first, second = getattr(expected, name), getattr(got, name)
        if first is None or second is None:
            continue
        if name == "new_states":
            difference = _state_difference(first, second)
        else:
            difference = describe_difference(name, first, second)
        if difference is not None:
            return difference
    return None


def _state_difference(first: Any, second: Any) -> str | None:
    """Return how states differ in the first row in which they do, or None."""
    if first.dtype.hasobject:
        return None if (first == second).all() else "the new states differ"
    if first.tobytes() == second.tobytes():
        return None
    row = next(row for row in range(len(first)) if first[row].tobytes() != second[row].tobytes())
    names = first.dtype.names or ()
    texts = (describe_difference(f"state {name}", first[name][row], second[name][row]) for name in names)
    return next((text for text in texts if text is not None), "the new states differ")
