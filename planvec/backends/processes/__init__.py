"""Worker processes: see `conversation` for who sends what to whom."""

from __future__ import annotations

from planvec.backends.processes.external_process import ExternalProcess

__all__ = ["ExternalProcess"]
