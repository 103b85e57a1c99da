"""What one decision of a planner looks like. Letters: A root actions, L actions of a branch, D depths."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Plan"]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """One decision.

    Attributes:
        action: The action to take, an element of the action space.
        value: Return expected from the state on, by what the search found; discounted if the planner
            discounts.
        root_actions: `[A, *action shape]`, the first actions that were weighed: all of a Discrete
            space, else those that were tried or are still carried at the end.
        visit_counts: `[A]` int64, how many simulations (walkers, trajectories) stand behind each.
        action_values: `[A]` float64, their mean return; NaN where the count is 0.
        standard_errors: `[A]` float64, of that mean; NaN where the count is below 2.
        best_actions: `[L, *action shape]`, the best action sequence that was found. Where the environment
            is random it is one sampled future.
        best_num_steps: `[L]` int64, for how many environment steps each of its actions is held.
        best_return: Sum of the rewards along it; discounted if the planner discounts.
        depth_histogram: `[D]` int64, how many simulations ended after 0, 1, ... actions (of shooting:
            environment steps).
        num_simulations: Tree simulations, walker moves or trajectories.
        num_env_steps: Environment steps simulated.
        elapsed: Seconds.
        stop_reason: "num_simulations", "num_iterations", "horizon", "max_env_steps", "max_seconds",
            "callback", "ended" (no simulated episode goes on), "exhausted" or "max_memory".
        search: What is behind it: the `Tree`, the `Walkers` of the swarm, or the `Distribution`.
    """

    action: Any
    value: float
    root_actions: NDArray[Any]
    visit_counts: NDArray[np.int64]
    action_values: NDArray[np.float64]
    standard_errors: NDArray[np.float64]
    best_actions: NDArray[Any]
    best_num_steps: NDArray[np.int64]
    best_return: float
    depth_histogram: NDArray[np.int64]
    num_simulations: int
    num_env_steps: int
    elapsed: float
    stop_reason: str
    search: Any = field(repr=False)
