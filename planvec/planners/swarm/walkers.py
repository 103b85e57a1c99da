"""The walkers of a swarm as a struct of arrays. Letters: B walkers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.planners.swarm.lineage import Lineage
from planvec.rows.results import Transitions
from planvec.rows.space_arrays import raw

__all__ = ["Walkers"]


@dataclass(slots=True, eq=False)
class Walkers:
    """Where every walker is, and how it got there.

    Attributes:
        start: `[1]`, the state that was planned at.
        states: `[B]` states.
        returns: `[B]` float64, undiscounted.
        num_steps: `[B]` int64, age in environment steps.
        tips: `[B]` int64, the node of the lineage that each stands on.
        terminated: `[B]` bool.
        truncated: `[B]` bool.
        lineage: The moves of all of them, a tree.
    """

    start: NDArray[Any]
    states: NDArray[Any]
    returns: NDArray[np.float64]
    num_steps: NDArray[np.int64]
    tips: NDArray[np.int64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    lineage: Lineage

    @classmethod
    def at(cls, start: NDArray[Any], num_walkers: int, action_space: Space[Any]) -> Walkers:
        """Walkers that have not moved yet.

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
            tips=np.zeros(num_walkers, np.int64),
            terminated=np.zeros(num_walkers, bool),
            truncated=np.zeros(num_walkers, bool),
            lineage=Lineage(action_space, num_walkers),
        )

    def advance(self, actions: NDArray[Any], out: Transitions) -> None:
        """Move on by what stepping all of them gave."""
        assert out.new_states is not None
        num_steps = out.infos["num_steps"]
        self.states = out.new_states
        self.returns = self.returns + out.rewards
        self.num_steps = self.num_steps + num_steps
        self.terminated, self.truncated = out.terminated, out.truncated
        self.tips = self.lineage.append(self.tips, actions, num_steps, out.rewards)

    def take(self, sources: NDArray[np.int64]) -> None:
        """Walker `i` becomes a copy of what walker `sources[i]` is."""
        states = self.states
        self.states = states[sources] if states.dtype.hasobject else raw(states)[sources].view(states.dtype)
        self.returns = self.returns[sources]
        self.num_steps = self.num_steps[sources]
        self.tips = self.tips[sources]
        self.terminated = self.terminated[sources]
        self.truncated = self.truncated[sources]

    def have_all_ended(self) -> bool:
        """Whether no walker's episode goes on."""
        return bool(np.count_nonzero(self.terminated | self.truncated) == len(self.terminated))

    def values(self) -> NDArray[np.float64]:
        """Returns `[B]` as they would be if all walkers were of the same age, that of the oldest.

        Walkers draw how long they hold an action, so they differ in age. Compared as they are, the
        young would look good wherever steps cost and bad wherever they pay. A walker whose episode
        goes on is credited the mean reward per step of all such walkers for the steps it lacks; one
        that terminated collects nothing more, and is credited nothing.
        """
        lacking = self.num_steps.max() - self.num_steps
        if not np.count_nonzero(self.terminated):
            credit: NDArray[np.float64] = lacking * (self.returns.sum() / self.num_steps.sum())
            return self.returns + credit
        running = ~self.terminated
        if not running.any():
            return self.returns.copy()
        mean_reward = self.returns[running].sum() / self.num_steps[running].sum()
        return self.returns + np.where(running, mean_reward * lacking, 0.0)

    def dead(self, values: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which walkers `[B]` have ended where they had better not.

        A termination may be a crash or a goal, and the flag does not say which; the returns do. An
        ended walker is dead unless it is better off than walkers that go on are, on average, by the
        same age: in CartPole it forgoes +1 per step and falls behind, in MountainCar it is spared
        -1 per step and gets ahead, in FrozenLake a hole is no better than walking on and the goal
        is. If all have ended, those below the mean are dead. Truncation is no death: the clock ran
        out, whatever the walker did.

        Args:
            values: `[B]`, what `values()` gave.
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
