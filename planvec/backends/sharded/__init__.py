"""Spreads batches over workers of any kind: cuts, merges, masks and retries rows."""

from __future__ import annotations

from planvec.backends.sharded.backend import Sharded, check_replacement, check_same

__all__ = ["Sharded", "check_replacement", "check_same"]
