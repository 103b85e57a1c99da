"""Measure how long calls take, in turn (A, B, C, A, B, C, ...): a machine that drifts treats all alike."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

__all__ = ["measure"]


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
