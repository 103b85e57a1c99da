"""The result of one decision of a planner. Letters: A root actions, L actions of a sequence, D depths."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


def _no_integers() -> NDArray[np.int64]:
    return np.empty(0, np.int64)


def _no_numbers() -> NDArray[np.float64]:
    return np.empty(0)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """One decision. A planner has to give `action` and `value`; the other fields default to "unknown".

    `Planner.plan` fills in `num_simulations`, `num_env_steps`, `elapsed` and `stop_reason` itself.

    Attributes:
        action: The action to take, an element of the action space.
        value: Estimated return from the state on; discounted if the planner discounts. In a game of two
            players it is that of the player to move, as all values of a plan are.
        root_actions: `[A, *action shape]`, the first actions that were compared: all of a Discrete space,
            else those that were tried (a swarm: those of its walkers at the end).
        visit_counts: `[A]` int64, number of simulations (walkers, trajectories) that began with each; of
            width-based planners the nodes below, with those of the last decision.
        action_values: `[A]` float64, mean return of each; NaN where the count is 0.
        standard_errors: `[A]` float64, standard error of that mean; NaN where the count is below 2.
        best_actions: `[L, *action shape]`, the best action sequence. In a random environment it is that of
            one sampled future.
        best_num_steps: `[L]` int64, number of environment steps for which each of its actions is repeated.
        best_return: Sum of the rewards along it; discounted if the planner discounts; NaN if unknown.
        depth_histogram: `[D]` int64, how many simulations ended after 0, 1, ... actions (shooting:
            environment steps).
        num_simulations: Tree simulations, walker moves or trajectories.
        num_env_steps: Environment steps simulated.
        elapsed: Seconds; NaN if unknown.
        stop_reason: "num_simulations", "num_iterations", "max_env_steps", "max_seconds", "callback",
            "ended" (every simulated episode has ended), "exhausted" (nothing is left to simulate) or
            "max_memory".
        search_data: What the planner can reuse or a user can inspect: a `Tree`, the `Walkers` of a swarm, a
            `Distribution`, a `WidthTree`, or None.
    """

    action: Any
    value: float
    root_actions: NDArray[Any] = field(default_factory=_no_numbers)
    visit_counts: NDArray[np.int64] = field(default_factory=_no_integers)
    action_values: NDArray[np.float64] = field(default_factory=_no_numbers)
    standard_errors: NDArray[np.float64] = field(default_factory=_no_numbers)
    best_actions: NDArray[Any] = field(default_factory=_no_numbers)
    best_num_steps: NDArray[np.int64] = field(default_factory=_no_integers)
    best_return: float = float("nan")
    depth_histogram: NDArray[np.int64] = field(default_factory=_no_integers)
    num_simulations: int = 0
    num_env_steps: int = 0
    elapsed: float = float("nan")
    stop_reason: str | None = None
    search_data: Any = None

    def __repr__(self) -> str:
        return (
            f"<Plan: action {self.action}, value {self.value:.4g}, {self.num_simulations} simulations, "
            f"{self.num_env_steps} env steps, {self.stop_reason}>"
        )
