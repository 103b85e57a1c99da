"""When two states are the same place for a search. Letters: B rows."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.lib import recfunctions
from numpy.typing import NDArray

__all__ = ["state_keys"]


def state_keys(states: NDArray[Any], keeps_generator: bool = False) -> list[Hashable]:
    """What states are told apart by: all of their bytes but for those of the generator.

    A search that samples chance reseeds the generator before every step, so that it decides nothing.

    Args:
        states: `[B]`.
        keeps_generator: Whether the generator counts, as for a search that foresees chance.
    """
    names = states.dtype.names
    if names is None:
        return list(states) if keeps_generator else [getattr(state, "place", state) for state in states]
    if "generator" in names and not keeps_generator:
        kept = [name for name in names if name != "generator"]
        states = np.asarray(recfunctions.repack_fields(states[kept]))
    size = states.dtype.itemsize
    joined = states.tobytes()
    return [joined[start : start + size] for start in range(0, len(joined), size)]
