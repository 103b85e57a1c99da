"""Measure how long calls take, in turn (A, B, C, A, B, C, ...): a machine that drifts treats all alike."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["first_rows", "measure", "ratio_of_totals"]

SLICE = 0.05
"""Seconds in which one of a pair runs before the other does."""


def first_rows(env: Any, num_rows: int) -> tuple[Any, Any]:
    """Return random actions `[B, ...]` and the first state of an episode `[B]` for a batch of `num_rows`."""
    env.reset(seed=0)
    env.action_space.seed(0)
    actions = np.stack([env.action_space.sample() for _ in range(num_rows)])
    return actions, np.repeat(np.atleast_1d(env.get_state()), num_rows)


def measure(contenders: dict[str, Callable[[], Any]], repeats: int, seconds: float) -> dict[str, float]:
    """Return the median seconds per call of each contender.

    Args:
        contenders: Name -> one call.
        repeats: Turns of each.
        seconds: Length of a turn; at least one call.
    """
    calls = {}
    for name, run in contenders.items():
        run()
        started = time.perf_counter()
        run()
        once = max(time.perf_counter() - started, 1e-7)
        calls[name] = max(1, min(2000, int(seconds / once)))
    times: dict[str, list[float]] = {name: [] for name in contenders}
    gc.collect()
    gc.disable()
    try:
        for _ in range(repeats):
            for name, run in contenders.items():
                run()  # not counted: processes that have slept are placed on cores anew
                started = time.perf_counter()
                for _ in range(calls[name]):
                    run()
                times[name].append((time.perf_counter() - started) / calls[name])
    finally:
        gc.enable()
    return {name: statistics.median(values) for name, values in times.items()}


def ratio_of_totals(pair: tuple[Callable[[], Any], Callable[[], Any]], seconds: float) -> float:
    """Return the ratio of the time of two calls, the first over the second, where rare calls take longer.

    They take turns, and which of the two is first changes every time. All times are added up, without the
    turns that took more than three times the median, in which the machine was busy: a median would leave out
    what is rare.

    Args:
        pair: The two calls.
        seconds: How long to measure.
    """
    number = max(1, int(SLICE / statistics.median(_timed(pair[0], 1) for _ in range(20))))
    times: tuple[list[float], list[float]] = ([], [])
    gc.collect()
    gc.disable()
    try:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for which in (0, 1) if len(times[0]) % 2 else (1, 0):
                times[which].append(_timed(pair[which], number))
    finally:
        gc.enable()
    limit = 3 * statistics.median(times[1])
    kept = [(a, b) for a, b in zip(*times, strict=True) if max(a, b) <= limit]
    return sum(a for a, _ in kept) / sum(b for _, b in kept)


def _timed(run: Callable[[], Any], number: int) -> float:
    started = time.perf_counter()
    for _ in range(number):
        run()
    return time.perf_counter() - started
