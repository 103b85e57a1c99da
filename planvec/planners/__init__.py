"""Planners: they choose actions by stepping states in batches, on any `BatchStepper`. `PLANNERS` names all.

`planvec.Swarm` and its kin plan one action; `planvec.run_episode` plans and acts until the episode ends.

    base       `Planner`, the base class: a frozen configuration with `begin` to override
    search     `Search`, one decision in progress, and the requests that it may make
    driver     the loop that sends requests to the stepper
    plan       `Plan`, the result, and its file
    episode    plans and acts until the episode ends, records that, and writes it to a file
    novelty    features of observations, and which of them were seen before
    mcts, swarm, shooting, width    the planners
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, NamedTuple

from planvec.lazy import lazy_names
from planvec.planners.base import Planner, check_stepper, help_text, on_command_line, option
from planvec.planners.driver import PlanCallback, PlanProgress
from planvec.planners.episode import (
    Episode,
    EpisodeCallback,
    EpisodeRecorder,
    EpisodeStep,
    actions_of_arrays,
    arrays_of_actions,
    replay_steps,
    resume_episode,
    run_episode,
    save_trajectory,
    trajectory_arrays,
)
from planvec.planners.mcts.planner import MCTS
from planvec.planners.mcts.tree import Tree, node_visits, view_of
from planvec.planners.novelty.numbers import Downscaled, integer_rows, is_screen, numbers_of_space
from planvec.planners.plan import (
    Plan,
    SearchData,
    TreeView,
    ViewedTree,
    arrays_of_plan,
    check_plan_states,
    load_plan,
    plan_of_arrays,
    save_plan,
)
from planvec.planners.root_actions import equal_actions
from planvec.planners.search import RolloutRequest, Search, Simulation, StepRequest
from planvec.planners.shooting.distributions import Distribution
from planvec.planners.shooting.planners import CEM, ICEM, MPPI, RandomShooting
from planvec.planners.swarm.config import NormalDt
from planvec.planners.swarm.planner import Swarm, SwarmWave
from planvec.planners.width import IW, RolloutIW

if TYPE_CHECKING:
    from planvec.planners.novelty.features import Screens
    from planvec.planners.swarm.search import Walkers

__all__ = [
    "CEM",
    "ICEM",
    "IW",
    "MCTS",
    "MPPI",
    "PLANNERS",
    "Distribution",
    "Downscaled",
    "Episode",
    "EpisodeCallback",
    "EpisodeRecorder",
    "EpisodeStep",
    "NormalDt",
    "Plan",
    "PlanCallback",
    "PlanProgress",
    "Planner",
    "PlannerEntry",
    "RandomShooting",
    "RolloutIW",
    "RolloutRequest",
    "Screens",
    "Search",
    "SearchData",
    "Simulation",
    "StepRequest",
    "Swarm",
    "SwarmWave",
    "Tree",
    "TreeView",
    "ViewedTree",
    "Walkers",
    "actions_of_arrays",
    "arrays_of_actions",
    "arrays_of_plan",
    "check_plan_states",
    "check_stepper",
    "equal_actions",
    "help_text",
    "integer_rows",
    "is_screen",
    "load_plan",
    "node_visits",
    "numbers_of_space",
    "on_command_line",
    "option",
    "plan_of_arrays",
    "replay_steps",
    "resume_episode",
    "run_episode",
    "save_plan",
    "save_trajectory",
    "trajectory_arrays",
    "view_of",
]


class PlannerEntry(NamedTuple):
    """Names the class of a planner, which is imported when it is used."""

    module: str  # full name of the module or package
    class_name: str

    def load(self) -> type[Planner]:
        """Import and return the class."""
        planner_class: type[Planner] = getattr(importlib.import_module(self.module), self.class_name)
        return planner_class


# The table of planners, from which the command line takes them: name there -> class
PLANNERS = {
    "swarm": PlannerEntry("planvec.planners.swarm.planner", "Swarm"),
    "swarm-wave": PlannerEntry("planvec.planners.swarm.planner", "SwarmWave"),
    "mcts": PlannerEntry("planvec.planners.mcts.planner", "MCTS"),
    "rollout-iw": PlannerEntry("planvec.planners.width", "RolloutIW"),
    "iw": PlannerEntry("planvec.planners.width", "IW"),
    "random-shooting": PlannerEntry("planvec.planners.shooting.planners", "RandomShooting"),
    "cem": PlannerEntry("planvec.planners.shooting.planners", "CEM"),
    "icem": PlannerEntry("planvec.planners.shooting.planners", "ICEM"),
    "mppi": PlannerEntry("planvec.planners.shooting.planners", "MPPI"),
}

if not TYPE_CHECKING:  # they import numba
    __getattr__, __dir__ = lazy_names(
        __name__,
        {"Walkers": "planvec.planners.swarm.search", "Screens": "planvec.planners.novelty.features"},
    )
