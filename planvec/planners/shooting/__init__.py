"""Planners that roll out whole action sequences."""

from __future__ import annotations

from planvec.planners.shooting.distributions import Distribution
from planvec.planners.shooting.planners import CEM, ICEM, MPPI, RandomShooting

__all__ = ["CEM", "ICEM", "MPPI", "Distribution", "RandomShooting"]
