"""Decides how long to wait before a worker is restarted."""

from __future__ import annotations

_FIRST_PAUSE = 0.05
# seconds before the restart of a worker that exited at least twice without finishing anything
_LONGEST_PAUSE = 1.0


def pause_before_restart(num_failures: float) -> float:
    """Return the seconds to wait, given the number of exits since the worker last finished something."""
    repeated = num_failures - 2
    return 0.0 if repeated < 0 else min(_FIRST_PAUSE * 2**repeated, _LONGEST_PAUSE)
