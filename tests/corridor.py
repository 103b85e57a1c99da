"""A task whose first reward is not its best one, and the search of a graph that should find the best one."""

from __future__ import annotations

from typing import Any

import gymnasium

import planvec


class Corridor(gymnasium.Env[Any, int]):
    """A corridor with a small reward at the left end, next to the start, and a large one at the right end."""

    def __init__(self, num_cells: int) -> None:
        self.num_cells = num_cells
        self.observation_space = gymnasium.spaces.Discrete(num_cells)
        self.action_space = gymnasium.spaces.Discrete(4)  # 1 goes right, the others left
        self.cell = 1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.cell = 1
        return self.cell, {}

    def step(self, action: int) -> Any:
        self.cell += 1 if action == 1 else -1
        reward = {0: 0.1, self.num_cells - 1: 1.0}.get(self.cell, 0.0)
        return self.cell, reward, reward > 0, False, {}


GRAPH = planvec.MCTS(
    num_simulations=8192,
    rollout_horizon=0,
    transpositions="observation",
    backup="max",
    discount=0.99,
    outcome_widening=(1.0, 0.0),
)
