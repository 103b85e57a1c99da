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
    "swarm": PlannerEntry("planvec.planners.swarm.planner", "Swarm"),
    "swarm-wave": PlannerEntry("planvec.planners.swarm.planner", "SwarmWave"),
    "mcts": PlannerEntry("planvec.planners.mcts.planner", "MCTS"),
    "rollout-iw": PlannerEntry("planvec.planners.width.planner", "RolloutIW"),
    "iw": PlannerEntry("planvec.planners.width.planner", "IW"),
    "random-shooting": PlannerEntry("planvec.planners.shooting.planners", "RandomShooting"),
    "cem": PlannerEntry("planvec.planners.shooting.planners", "CEM"),
    "icem": PlannerEntry("planvec.planners.shooting.planners", "ICEM"),
    "mppi": PlannerEntry("planvec.planners.shooting.planners", "MPPI"),
}
