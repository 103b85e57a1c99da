"""Planners with a swarm of walkers that clone each other (Fractal Monte Carlo).

Importing it does not import numba, which the planners import when they plan.
"""

from __future__ import annotations

from planvec.planners.swarm.config import NormalDt
from planvec.planners.swarm.planner import Swarm, SwarmWave

__all__ = ["NormalDt", "Swarm", "SwarmWave"]
