"""Worker processes: see `conversation` for who sends what to whom."""

from __future__ import annotations

from planvec.workers.external_process import ExternalProcess

__all__ = ["ExternalProcess"]
