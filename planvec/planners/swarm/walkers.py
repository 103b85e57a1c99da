"""The walkers of a swarm as a struct of arrays. Letters: B walkers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.planners.swarm.lineage import Lineage
from planvec.rows import Transitions, raw

__all__ = ["Walkers"]


@dataclass(slots=True, eq=False)
class Walkers:
    """The state of every walker, and the actions that led to it.

    Attributes:
        start: `[1]`, the state at which the planner plans.
        states: `[B]` states.
        returns: `[B]` float64, undiscounted.
        num_steps: `[B]` int64, age in environment steps.
        nodes: `[B]` int64, the latest node of each in the lineage.
        terminated: `[B]` bool.
        truncated: `[B]` bool.
        lineage: The moves of all walkers, a tree.
    """

    start: NDArray[Any]
    states: NDArray[Any]
    returns: NDArray[np.float64]
    num_steps: NDArray[np.int64]
    nodes: NDArray[np.int64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    lineage: Lineage

    @classmethod
    def initial(cls, start: NDArray[Any], num_walkers: int, action_space: Space[Any]) -> Walkers:
        """Return walkers that have not moved yet.

        Args:
            start: `[1]`.
            num_walkers: B.
            action_space: The space of one action.
        """
        return cls(
            start=start,
            states=np.repeat(start, num_walkers),
            returns=np.zeros(num_walkers),
            num_steps=np.zeros(num_walkers, np.int64),
            nodes=np.zeros(num_walkers, np.int64),
            terminated=np.zeros(num_walkers, bool),
            truncated=np.zeros(num_walkers, bool),
            lineage=Lineage(action_space, num_walkers),
        )

    def advance(self, actions: NDArray[Any], out: Transitions) -> None:
        """Update every walker by its transition.

        Args:
            actions: `[B, *action shape]`.
            out: The transitions.
        """
        assert out.new_states is not None
        num_steps = out.infos["num_steps"]
        self.states = out.new_states
        self.returns = self.returns + out.rewards
        self.num_steps = self.num_steps + num_steps
        self.terminated, self.truncated = out.terminated, out.truncated
        self.nodes = self.lineage.append(self.nodes, actions, num_steps, out.rewards)

    def clone(self, sources: NDArray[np.int64]) -> None:
        """Replace walker `i` by a copy of walker `sources[i]`, for all at once."""
        states = self.states
        self.states = states[sources] if states.dtype.hasobject else raw(states)[sources].view(states.dtype)
        self.returns = self.returns[sources]
        self.num_steps = self.num_steps[sources]
        self.nodes = self.nodes[sources]
        self.terminated = self.terminated[sources]
        self.truncated = self.truncated[sources]

    def have_all_ended(self) -> bool:
        """Return whether the episodes of all walkers have ended."""
        return bool(np.count_nonzero(self.terminated | self.truncated) == len(self.terminated))

    def values(self) -> NDArray[np.float64]:
        """Return the returns `[B]`, extrapolated to the age of the oldest walker.

        Walkers draw how long they repeat an action, so that they differ in age. Without extrapolation,
        young walkers would look good where steps cost and bad where steps pay. For each step that a walker is
        younger, it is credited the mean reward per step of all walkers that have not terminated. A walker
        that has terminated collects no more rewards, and is credited nothing.
        """
        num_missing = self.num_steps.max() - self.num_steps
        if not np.count_nonzero(self.terminated):
            credit: NDArray[np.float64] = num_missing * (self.returns.sum() / self.num_steps.sum())
            return self.returns + credit
        running = ~self.terminated
        if not running.any():
            return self.returns.copy()
        mean_reward = self.returns[running].sum() / self.num_steps[running].sum()
        return self.returns + np.where(running, mean_reward * num_missing, 0.0)

    def dead(self, values: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which walkers `[B]` have terminated with a loss.

        A termination may be a crash or a goal. The flag does not tell them apart, but the returns do: a
        terminated walker is dead unless its value is above the mean of the walkers that go on, at the
        same age. In CartPole it loses +1 per step and falls behind; in MountainCar it saves -1 per
        step and gets ahead; in FrozenLake a hole is no better than walking on, and the goal is. Where all
        have terminated, those below the mean are dead. Truncation is not death, since the time limit does
        not depend on the actions.

        Args:
            values: `[B]`, those of `values()`.
        """
        if not np.count_nonzero(self.terminated):
            return self.terminated
        running = ~self.terminated
        if running.any():
            behind: NDArray[np.bool_] = self.terminated & (values <= values[running].mean())
            return behind
        # min: the mean of equal numbers may be rounded up beyond all of them.
        below: NDArray[np.bool_] = values < min(values.mean(), values.max())
        return below
