"""Planners with a swarm of walkers that clone each other (Fractal Monte Carlo)."""

from __future__ import annotations

from planvec.planners.swarm.planner import Swarm, SwarmWave
from planvec.planners.swarm.samplers import NormalDt
from planvec.planners.swarm.walkers import Walkers

__all__ = ["NormalDt", "Swarm", "SwarmWave", "Walkers"]
