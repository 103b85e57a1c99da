"""The walkers of a swarm as a struct of arrays. Letters: B walkers, L actions of a branch."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.planners.distance import Features
from planvec.transitions import Transitions

__all__ = ["Lineage", "Walkers"]


@dataclass(slots=True)
class Walkers:
    """Where every walker is, and how it got there. A clone takes all of it from its companion.

    Attributes:
        states: `[B]` states.
        features: What of their observations distances are measured by.
        returns: `[B]` float64, undiscounted.
        num_steps: `[B]` int64, age in environment steps.
        root_actions: `[B, *action shape]`, the first action of each.
        terminated: `[B]` bool.
        truncated: `[B]` bool.
    """

    states: NDArray[Any]
    features: Features
    returns: NDArray[np.float64]
    num_steps: NDArray[np.int64]
    root_actions: NDArray[Any]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]

    @classmethod
    def first(cls, actions: NDArray[Any], out: Transitions, features: Features) -> Walkers:
        """The walkers after their first action."""
        assert out.new_states is not None
        return cls(
            states=out.new_states,
            features=features,
            returns=out.rewards.copy(),
            num_steps=out.infos["num_steps"].copy(),
            root_actions=actions,
            terminated=out.terminated,
            truncated=out.truncated,
        )

    def advance(self, out: Transitions, features: Features) -> None:
        """Move on by what stepping all of them gave."""
        assert out.new_states is not None
        self.states, self.features = out.new_states, features
        self.returns += out.rewards
        self.num_steps += out.infos["num_steps"]
        self.terminated, self.truncated = out.terminated, out.truncated

    def take(self, sources: NDArray[np.int64]) -> None:
        """Walker `i` becomes a copy of what walker `sources[i]` is."""
        for each in fields(self):
            value = getattr(self, each.name)
            taken = value.take(sources) if isinstance(value, Features) else value[sources]
            setattr(self, each.name, taken)

    def values(self) -> NDArray[np.float64]:
        """Returns `[B]` as they would be if all walkers were of the same age, that of the oldest.

        Walkers draw how long they hold an action, so they differ in age. Compared as they are, the
        young would look good wherever steps cost and bad wherever they pay. A walker whose episode
        goes on is credited the mean reward per step of all such walkers for the steps it lacks; one
        that terminated collects nothing more, and is credited nothing.
        """
        running = ~self.terminated
        if not running.any():
            return self.returns.copy()
        mean_reward = self.returns[running].sum() / self.num_steps[running].sum()
        lacking = self.num_steps.max() - self.num_steps
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
        running = ~self.terminated
        if running.any():
            behind: NDArray[np.bool_] = self.terminated & (values <= values[running].mean())
            return behind
        # min: the mean of equal numbers may be rounded up beyond all of them.
        below: NDArray[np.bool_] = values < min(values.mean(), values.max())
        return below


@dataclass(slots=True)
class Lineage:
    """What every walker did in every iteration, and whom it then cloned.

    Attributes:
        actions: Per iteration `[B, *action shape]`.
        num_steps: Per iteration `[B]`, environment steps taken.
        sources: Per iteration `[B]`, which walker each one continued as.
    """

    actions: list[NDArray[Any]] = field(default_factory=list)
    num_steps: list[NDArray[np.int64]] = field(default_factory=list)
    sources: list[NDArray[np.int64]] = field(default_factory=list)

    def append(self, actions: NDArray[Any], num_steps: NDArray[np.int64], sources: NDArray[np.int64]) -> None:
        """Add an iteration."""
        self.actions.append(actions)
        self.num_steps.append(num_steps)
        self.sources.append(sources)

    def branch(self, walker: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The actions `[L, *action shape]` that lead to a walker, and the steps `[L]` each took."""
        rows = []
        for sources in reversed(self.sources):
            walker = int(sources[walker])
            rows.append(walker)
        rows.reverse()
        actions = np.stack([each[row] for each, row in zip(self.actions, rows, strict=True)])
        num_steps = np.array([each[row] for each, row in zip(self.num_steps, rows, strict=True)])
        moved = num_steps > 0  # an ended walker stays where it is
        return actions[moved], num_steps[moved]
