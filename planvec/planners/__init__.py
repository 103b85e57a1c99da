"""Planners: they choose actions by stepping states in batches, on any `BatchStepper`. `PLANNERS` names all.

`planvec.Swarm` and its kin plan one action; `planvec.run_episode` plans and acts until the episode ends.

    base       `Planner`, the base class: a frozen configuration with `begin` to override
    search     `Search`, one decision in progress, the requests that it may make, and the loop that sends them
    plan       `Plan`, the result, and its file
    episode    plans and acts until the episode ends, records that, and writes it to a file
    novelty    features of observations, and which of them were seen before
    mcts, swarm, shooting, width    the planners
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from planvec.lazy import lazy_names
from planvec.planners.base import Planner, check_stepper, help_text, on_command_line, option
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
from planvec.planners.mcts.tree import Tree
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
from planvec.planners.search import (
    PlanCallback,
    PlanProgress,
    RolloutRequest,
    Search,
    Simulation,
    StepRequest,
)
from planvec.planners.shooting import CEM, ICEM, MPPI, Distribution, RandomShooting
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
]


# The table of planners, from which the command line takes them: name there -> class
PLANNERS: dict[str, type[Planner]] = {
    "swarm": Swarm,
    "swarm-wave": SwarmWave,
    "mcts": MCTS,
    "rollout-iw": RolloutIW,
    "iw": IW,
    "random-shooting": RandomShooting,
    "cem": CEM,
    "icem": ICEM,
    "mppi": MPPI,
}

if not TYPE_CHECKING:  # they import numba
    __getattr__, __dir__ = lazy_names(
        __name__,
        {"Walkers": "planvec.planners.swarm.search", "Screens": "planvec.planners.novelty.features"},
    )
