"""Computes keys that identify states. Letters: B rows."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.lib import recfunctions
from numpy.typing import NDArray

from planvec.rows.saved_state import GENERATOR_FIELD


def state_keys(states: NDArray[Any], with_generator: bool = False) -> list[Hashable]:
    """Return a key for each state. Equal states have equal keys, and different states different ones."""
    # A search that samples chance reseeds the random generator before every step, so the generator in the
    # state has no influence. Such a search leaves the generator out of the keys.
    # `states`: `[B]`.
    names = states.dtype.names
    if names is None:
        return list(states) if with_generator else [state.without_generator for state in states]
    if GENERATOR_FIELD in names and not with_generator:
        kept = [name for name in names if name != GENERATOR_FIELD]
        states = np.asarray(recfunctions.repack_fields(states[kept]))
    size = states.dtype.itemsize
    joined = states.tobytes()
    return [joined[start : start + size] for start in range(0, len(joined), size)]
