"""Turns states into arrays that can be written to files without pickling, and back. Letters: B states.

The bytes of a `SavedState` are written as they are. Reading them runs no code, but restoring them may
unpickle them: `BatchEnv.check_states` limits what states from a file may name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.rows.saved_state import SavedState


def arrays_of_states(name: str, states: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return states as arrays of numbers and text."""
    # `states`: `[B]`, records or `SavedState`s.
    if not states.dtype.hasobject:
        return {name: states}
    saved = [bytes(state) for state in states]
    masks = [state.action_mask for state in states]
    size = max(map(len, masks), default=0)
    held = b"".join([mask or b"\1" * size for mask in masks])
    return {
        **({f"{name}.action_masks": np.frombuffer(held, np.bool_).reshape(len(masks), size)} if size else {}),
        name: np.frombuffer(b"".join(saved), np.uint8),
        f"{name}.sizes": np.array([len(data) for data in saved], np.int64),
        f"{name}.generator_sizes": np.array([state.generator_size for state in states], np.int64),
        f"{name}.origin": np.array(states[0].origin if len(states) else ""),
    }


def states_of_arrays(name: str, arrays: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """Return the states `[B]` that `arrays_of_states` turned into arrays."""
    if f"{name}.sizes" not in arrays:
        return arrays[name]
    data, origin = arrays[name].tobytes(), str(arrays[f"{name}.origin"])
    ends = arrays[f"{name}.sizes"].cumsum()
    if (arrays[f"{name}.sizes"] < 0).any() or (len(ends) and ends[-1] != len(data)):
        raise ValueError(f"{name}: expected {ends[-1]} bytes, got {len(data)}")
    states, start = np.empty(len(ends), object), 0
    masks = np.asarray(arrays.get(f"{name}.action_masks", np.zeros((len(ends), 0))), np.bool_)
    rows = zip(ends.tolist(), arrays[f"{name}.generator_sizes"].tolist(), strict=True)
    for row, ((end, generator_size), mask) in enumerate(zip(rows, masks, strict=True)):
        if not 0 <= generator_size <= end - start:
            raise ValueError(f"{name}.generator_sizes: expected sizes of parts of the states")
        states[row] = SavedState(data[start:end], origin, generator_size, mask.tobytes())
        start = end
    return states
