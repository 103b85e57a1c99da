"""Planners: they choose actions by stepping states in batches, on any `BatchStepper`.

`planvec.Swarm` and its kin plan one action; `planvec.run_episode` plans and acts until the episode ends.

    table      names every planner: one file or folder and one entry each
    base       `Planner`, the base class: a frozen configuration with `begin` to override
    search     `Search`, one decision in progress, and the requests that it may make
    driver     the loop that sends requests to the stepper
    plan       `Plan`, the result
    episode    plans and acts until the episode ends; `trajectory` writes the episode to a file
    mcts, swarm, shooting    the planners
"""

from __future__ import annotations

from planvec.planners.base import Planner
from planvec.planners.driver import PlanCallback
from planvec.planners.episode import Episode, EpisodeCallback, EpisodeRecorder, run_episode
from planvec.planners.mcts import MCTS, Tree
from planvec.planners.options import HELP, option
from planvec.planners.plan import Plan
from planvec.planners.search import RolloutRequest, Search, Simulation, StepRequest
from planvec.planners.shooting import CEM, ICEM, MPPI, RandomShooting
from planvec.planners.swarm import NormalDt, Swarm, SwarmWave
from planvec.planners.table import PLANNERS, PlannerEntry
from planvec.planners.trajectory import save_trajectory, trajectory_arrays

__all__ = [
    "CEM",
    "HELP",
    "ICEM",
    "MCTS",
    "MPPI",
    "PLANNERS",
    "Episode",
    "EpisodeCallback",
    "EpisodeRecorder",
    "NormalDt",
    "Plan",
    "PlanCallback",
    "Planner",
    "PlannerEntry",
    "RandomShooting",
    "RolloutRequest",
    "Search",
    "Simulation",
    "StepRequest",
    "Swarm",
    "SwarmWave",
    "Tree",
    "option",
    "run_episode",
    "save_trajectory",
    "trajectory_arrays",
]
