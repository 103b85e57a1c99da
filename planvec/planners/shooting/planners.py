"""Random shooting, CEM and iCEM: refit to the best sequences. Letters: B sequences, H horizon, K elites."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from planvec.planners.root_actions import check_action_space
from planvec.planners.shooting.distributions import Categorical, Distribution, Gaussian, Uniform
from planvec.planners.shooting.noise import MAX_BETA
from planvec.planners.shooting.search import Deviation, Shooting, best_rows, fixed_std

__all__ = ["CEM", "ICEM", "RandomShooting"]

_DECAY = 1.25
"""By what iCEM divides the number of sequences after each iteration: that of the paper, for every task."""


@dataclass(frozen=True)
class RandomShooting(Shooting):
    """Takes the first action of the best of many uniformly random sequences.

    It learns nothing from one decision to the next. Where the environment is random, the best sequence
    may be one that was lucky.

    Args:
        num_trajectories: B, sequences.
        horizon: H, environment steps of a sequence.
        discount: Factor per environment step.
        dt: For how many environment steps an action is held.
        max_env_steps: As of `Planner`.
        max_seconds: As of `Planner`.

    Raises:
        ValueError: A number out of range.
    """

    def first(self, space: Space[Any]) -> Uniform:
        """Uniform sequences."""
        check_action_space(space)
        return Uniform.first(space, self.num_actions, self.dt)

    def learn(
        self, distribution: Distribution, sequences: NDArray[Any], returns: NDArray[np.float64]
    ) -> tuple[Distribution, float]:
        """Note the best sequence."""
        best = best_rows(returns, 1)
        return distribution.refit(sequences[best], 0.0), float(returns[best[0]])


@dataclass(frozen=True)
class CEM(Shooting):
    """The cross-entropy method (Rubinstein and Kroese 2004; with categories too, Botev et al. 2013).

    In each iteration it draws sequences and fits the distribution to the best of them. Box actions are
    normal, with a mean and a standard deviation per step and number; those of Discrete, MultiDiscrete
    and MultiBinary spaces have a probability per step and category. The next decision begins with the
    mean one step on, and with the first standard deviation again.

    Args:
        num_trajectories: B, sequences per iteration.
        horizon: H, environment steps of a sequence.
        discount: Factor per environment step.
        dt: For how many environment steps an action is held.
        num_iterations: Per decision.
        num_elites: K, the best sequences of an iteration, from 2 to B.
        initial_std: Standard deviation that a decision begins with. A number is a fraction of half the
            range of a Box; numbers `[*action shape]` are in units of the action, and need no bounds.
        momentum: Share of the old mean, deviation or probabilities in the new ones, in [0, 1].
        execute: "mean" takes the first action of the mean (of the likeliest sequence, where actions are
            discrete), "best" that of the best sequence rolled out.
        max_env_steps: As of `Planner`.
        max_seconds: As of `Planner`.

    Raises:
        ValueError: A number out of range.
    """

    num_trajectories: int = 64
    num_iterations: int = 4
    num_elites: int = 8
    initial_std: Deviation = 0.5
    momentum: float = 0.1
    execute: Literal["mean", "best"] = "mean"

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        self._at_least(2, "num_elites", optional=False)
        if self.num_elites > self.num_trajectories:
            raise ValueError(
                f"num_elites: expected at most num_trajectories ({self.num_trajectories}), "
                f"got {self.num_elites}"
            )
        fixed_std(self, "initial_std")
        self._in_range(0, 1, "momentum")
        if self.execute not in ("mean", "best"):
            raise ValueError(f"execute: expected 'mean' or 'best', got {self.execute!r}")

    def first(self, space: Space[Any]) -> Distribution:
        """Normal, or categories."""
        if isinstance(space, spaces.Box):
            return Gaussian.first(space, self.num_actions, self.dt, self.initial_std, 0.0, "initial_std")
        check_action_space(space)
        return Categorical.first(space, self.num_actions, self.dt)

    def learn(
        self, distribution: Distribution, sequences: NDArray[Any], returns: NDArray[np.float64]
    ) -> tuple[Distribution, float]:
        """Fit to the elites; their mean return."""
        elites = best_rows(returns, self.num_elites)
        return distribution.refit(sequences[elites], self.momentum), float(returns[elites].mean())

    def choose(self, distribution: Distribution, best: NDArray[Any]) -> NDArray[Any]:
        """By `execute`."""
        return best if self.execute == "best" else distribution.center()


@dataclass(frozen=True)
class ICEM(Shooting):
    """iCEM (Pinneri et al. 2020, "Sample-efficient Cross-Entropy Method for Real-time Planning").

    CEM on a Box, with: coloured noise, so that sequences push one way for a while; elites that are rolled
    out again in the next iteration and, one step on, in the next decision; fewer sequences in later
    iterations (each has the number of the one before divided by 1.25, but at least 2 K); the mean as a
    sequence of the last one; and the best action that was seen instead of the mean.

    All of these count as sequences of an iteration. Elites are rolled out anew, since where the
    environment is random their return was partly luck. There the best action may still be one that was
    lucky; the mean that `CEM` takes is less so.

    Args:
        num_trajectories: B, sequences of the first iteration.
        horizon: H, environment steps of a sequence.
        discount: Factor per environment step.
        dt: For how many environment steps an action is held.
        num_iterations: Per decision.
        num_elites: K, the best sequences of an iteration, from 2 to half of B.
        initial_std: Standard deviation that a decision begins with. A number is a fraction of half the
            range of a Box; numbers `[*action shape]` are in units of the action, and need no bounds.
        momentum: Share of the old mean and deviation in the new ones, in [0, 1].
        noise_beta: Colour of the noise, from 0 to 10: 0 is white, 1 pink, 2 red (the paper: 0.25 for
            HalfCheetah, 2 to 4 for slower tasks).
        reuse: Fraction of the elites that is kept, in [0, 1].
        max_env_steps: As of `Planner`.
        max_seconds: As of `Planner`.

    Raises:
        ValueError: A number out of range.
    """

    num_trajectories: int = 40
    num_iterations: int = 3
    num_elites: int = 10
    initial_std: Deviation = 0.5
    momentum: float = 0.1
    noise_beta: float = 1.0
    reuse: float = 0.3

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        self._at_least(2, "num_elites", optional=False)
        if 2 * self.num_elites > self.num_trajectories:
            raise ValueError(
                f"num_elites: expected at most half of num_trajectories ({self.num_trajectories}), "
                f"got {self.num_elites}"
            )
        fixed_std(self, "initial_std")
        self._in_range(0, 1, "momentum", "reuse")
        self._in_range(0, MAX_BETA, "noise_beta")

    def first(self, space: Space[Any]) -> Gaussian:
        """Normal, with coloured noise."""
        return Gaussian.first(
            space, self.num_actions, self.dt, self.initial_std, self.noise_beta, "initial_std"
        )

    def propose(
        self, distribution: Distribution, generator: np.random.Generator, iteration: int
    ) -> NDArray[Any]:
        """The kept elites, the mean in the last iteration, and new ones."""
        kept = [distribution.elites[: round(self.reuse * self.num_elites)]]
        if iteration == self.num_iterations - 1:
            kept.append(distribution.center()[None])
        total = max(round(self.num_trajectories / _DECAY**iteration), 2 * self.num_elites)
        drawn = distribution.sample(generator, total - sum(map(len, kept)))
        return np.concatenate([*kept, drawn])

    def learn(
        self, distribution: Distribution, sequences: NDArray[Any], returns: NDArray[np.float64]
    ) -> tuple[Distribution, float]:
        """Fit to the elites; their mean return."""
        elites = best_rows(returns, self.num_elites)
        return distribution.refit(sequences[elites], self.momentum), float(returns[elites].mean())
