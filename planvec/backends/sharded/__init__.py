"""Spreads batches over workers of any kind: cuts, merges, masks and retries rows."""

from __future__ import annotations

from planvec.backends.sharded.backend import Sharded, WorkerGroup
from planvec.backends.sharded.description import check_replacement

__all__ = ["Sharded", "WorkerGroup", "check_replacement"]
