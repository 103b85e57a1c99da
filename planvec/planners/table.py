"""The table of planners, from which the command line takes them.

A planner is one file or folder of this package and one entry here.
"""

from __future__ import annotations

import importlib
from typing import NamedTuple

from planvec.planners.base import Planner


class PlannerEntry(NamedTuple):
    """Names the class of a planner, which is imported when it is used."""

    module: str  # full name of the module or package
    class_name: str

    def load(self) -> type[Planner]:
        """Import and return the class."""
        planner_class: type[Planner] = getattr(importlib.import_module(self.module), self.class_name)
        return planner_class


# name on the command line -> class
PLANNERS = {
    "swarm": PlannerEntry("planvec.planners.swarm", "Swarm"),
    "swarm-wave": PlannerEntry("planvec.planners.swarm", "SwarmWave"),
    "mcts": PlannerEntry("planvec.planners.mcts", "MCTS"),
    "rollout-iw": PlannerEntry("planvec.planners.width", "RolloutIW"),
    "iw": PlannerEntry("planvec.planners.width", "IW"),
    "random-shooting": PlannerEntry("planvec.planners.shooting", "RandomShooting"),
    "cem": PlannerEntry("planvec.planners.shooting", "CEM"),
    "icem": PlannerEntry("planvec.planners.shooting", "ICEM"),
    "mppi": PlannerEntry("planvec.planners.shooting", "MPPI"),
}
