"""Spreads batches over workers: split, merge, mask, retry. It knows no process and no shared memory."""

from __future__ import annotations

from planvec.backends.sharded.backend import DIFFERENT, Sharded, WorkerGroup

__all__ = ["DIFFERENT", "Sharded", "WorkerGroup"]
