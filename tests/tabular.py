"""Optimal values of Gymnasium's toy text, by value iteration on `env.unwrapped.P`.

Letters: S cells, A actions.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

TABULAR: dict[str, tuple[str, dict[str, Any]]] = {
    "FrozenLake 4x4": ("FrozenLake-v1", {"is_slippery": False}),
    "FrozenLake 8x8": ("FrozenLake-v1", {"is_slippery": False, "map_name": "8x8"}),
    "FrozenLake 4x4 slippery": ("FrozenLake-v1", {}),
    "FrozenLake 8x8 slippery": ("FrozenLake-v1", {"map_name": "8x8"}),
    "Taxi": ("Taxi-v4", {}),
    "CliffWalking": ("CliffWalking-v1", {}),
}


class Optimum:
    """The optimal action values of an environment without a time limit.

    Args:
        name: A key of `TABULAR`.
        discount: Factor per step.

    Attributes:
        action_values: `[S, A]`.
        values: `[S]`.
    """

    def __init__(self, name: str, discount: float) -> None:
        env_id, options = TABULAR[name]
        self._env = gymnasium.make(env_id, **options)
        self._table: Any = self._env.unwrapped.P  # type: ignore[attr-defined]
        num_cells, num_actions = len(self._table), len(self._table[0])
        rewards = np.zeros((num_cells, num_actions))
        moves = np.zeros((num_cells, num_actions, num_cells))
        for cell, actions in self._table.items():
            for action, outcomes in actions.items():
                for probability, after, reward, terminated in outcomes:
                    rewards[cell, action] += probability * reward
                    moves[cell, action, after] += probability * (not terminated)
        values = np.zeros(num_cells)
        while True:
            self.action_values: NDArray[np.float64] = rewards + discount * moves @ values
            before, values = values, self.action_values.max(axis=1)
            if np.abs(values - before).max() < 1e-13:
                break
        self.values: NDArray[np.float64] = values

    def starts(self, count: int) -> list[int]:
        """Return cells that an episode can reach before its end: `count` random ones, at most all."""
        seen = {int(self._env.reset(seed=seed)[0]) for seed in range(300)}
        ends, front = set(), list(seen)
        while front:
            for outcomes in self._table[front.pop()].values():
                for probability, after, _, terminated in outcomes:
                    if terminated:
                        ends.add(int(after))
                    elif probability and after not in seen:
                        seen.add(int(after))
                        front.append(int(after))
        cells = np.random.default_rng(0).permutation(sorted(seen - ends))
        return [int(cell) for cell in cells[:count]]

    def regret(self, cell: int, action: Any) -> float:
        """Return the optimal value of a cell minus that of an action."""
        return float(self.values[cell] - self.action_values[cell, int(action)])
