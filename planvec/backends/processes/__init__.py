"""Worker processes: see `conversation` for who sends what to whom, and `worker` for their lives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planvec.lazy import lazy_names

if TYPE_CHECKING:
    from planvec.backends.processes.external_process import ExternalProcess
    from planvec.backends.processes.pool import over_processes

__all__ = ["ExternalProcess", "over_processes"]

# Lazily: a worker imports `child`, and not what its parent needs.
if not TYPE_CHECKING:  # which would take every name for one of this module
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "ExternalProcess": "planvec.backends.processes.external_process",
            "over_processes": "planvec.backends.processes.pool",
        },
    )
