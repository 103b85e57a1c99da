"""Measures how long a codec takes to save, restore, step and observe."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.codecs.base import StateCodec

_NUM_TIMED = 40


def time_codec(codec: StateCodec, states: NDArray[Any], actions: Sequence[Any]) -> dict[str, float]:
    """Time the methods of a codec at some of the states."""
    # `states`: `[B]`.
    # Returns medians in microseconds of "get", "set", "step" and "observe".
    rows = np.unique(np.linspace(0, len(states) - 1, _NUM_TIMED).astype(int))
    times: dict[str, list[float]] = {"get": [], "set": [], "step": [], "observe": []}
    clock = time.perf_counter
    for row, value in zip(rows, codec.load(states[rows]).values, strict=True):
        started = clock()
        codec.set(value)
        after_set = clock()
        observation = codec.step(actions[row])[0]
        after_step = clock()
        codec.get(observation)
        after_get = clock()
        codec.set(value)
        before_observe = clock()
        codec.observe()
        after_observe = clock()
        times["set"].append(after_set - started)
        times["step"].append(after_step - after_set)
        times["get"].append(after_get - after_step)
        times["observe"].append(after_observe - before_observe)
    return {name: 1e6 * statistics.median(seconds) for name, seconds in times.items()}
