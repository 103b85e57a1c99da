"""Width-based planners. Importing them does not import numba, which they import when they plan."""

from __future__ import annotations

from planvec.planners.width.planner import IW, RolloutIW

__all__ = ["IW", "RolloutIW"]
