"""Counts the processor cores that this process may use."""

from __future__ import annotations

import os


def num_cores() -> int:
    """Return the number of cores that this process may use (its affinity mask, if the system has one)."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1
