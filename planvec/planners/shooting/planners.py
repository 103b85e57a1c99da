"""Random shooting, CEM and iCEM. Letters: B sequences, H environment steps of a sequence, K elites."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from planvec.planners.base import option
from planvec.planners.root_actions import check_action_space
from planvec.planners.shooting.distributions import MAX_BETA, Categorical, Distribution, Gaussian, Uniform
from planvec.planners.shooting.search import Deviation, Shooting, best_rows, check_std

_DECAY = 1.25  # factor by which iCEM reduces the number of sequences after each iteration, as in the paper

_INITIAL_STD = "standard deviation at the beginning of a decision, as a fraction of half the range of a Box"
_MOMENTUM = "share of the old mean and standard deviation (or probabilities) in the new ones, from 0 to 1"


@dataclass(frozen=True)
class RandomShooting(Shooting):
    """Takes the first action of the best of many uniformly random sequences.

    It reuses nothing of the last decision. In a random environment the best sequence may be one that was
    lucky.

    Raises:
        ValueError: A number is out of range.
    """

    def initial_distribution(self, space: Space[Any]) -> Uniform:
        """Return the uniform distribution."""
        check_action_space(space)
        return Uniform.initial(space, self.num_actions, self.dt)

    def learn(
        self, distribution: Distribution, sequences: NDArray[Any], returns: NDArray[np.float64]
    ) -> tuple[Distribution, float]:
        """Return the distribution with the best sequence, and its return."""
        best = best_rows(returns, 1)
        return distribution.refit(sequences[best], 0.0), float(returns[best[0]])


@dataclass(frozen=True)
class CEM(Shooting):
    """The cross-entropy method (Rubinstein and Kroese 2004; with categories too, Botev et al. 2013).

    In each iteration it draws sequences and fits the distribution to the best of them. Box actions are
    normal, with a mean and a standard deviation per step and number; those of Discrete, MultiDiscrete
    and MultiBinary spaces have a probability per step and category. The next decision begins with the
    mean shifted by one step, and with the initial standard deviation again.

    Raises:
        ValueError: A number is out of range.
    """

    num_trajectories: int = option(64, "Number of sequences per iteration, B.")
    num_iterations: int = option(4, "Iterations per decision.")
    num_elites: int = option(
        8, "Number of the best sequences of an iteration that it learns from, K: from 2 to B."
    )
    initial_std: Deviation = option(
        0.5,
        "Standard deviation at the beginning of a decision, as a fraction of half the range of a Box; "
        "numbers `[*action shape]` are in units of the action, and need no bounds.",
    )
    momentum: float = option(
        0.1, "Share of the old mean and standard deviation (or probabilities) in the new ones, in [0, 1]."
    )
    execute: Literal["mean", "best"] = option(
        "mean",
        '"mean" takes the first action of the mean (of the most likely sequence, where actions are '
        'discrete), "best" that of the best sequence.',
    )

    def __post_init__(self) -> None:
        """Check the fields."""
        super().__post_init__()
        self._check_integers(2, "num_elites", optional=False)
        if self.num_elites > self.num_trajectories:
            raise ValueError(
                f"num_elites: expected at most num_trajectories ({self.num_trajectories}), "
                f"got {self.num_elites}"
            )
        check_std(self, "initial_std")
        self._check_numbers(0, 1, "momentum")
        if self.execute not in ("mean", "best"):
            raise ValueError(f"execute: expected 'mean' or 'best', got {self.execute!r}")

    def initial_distribution(self, space: Space[Any]) -> Distribution:
        """Return normal distributions for a Box, else categorical ones."""
        if isinstance(space, spaces.Box):
            return Gaussian.initial(space, self.num_actions, self.dt, self.initial_std, 0.0, "initial_std")
        check_action_space(space)
        return Categorical.initial(space, self.num_actions, self.dt)

    def learn(
        self, distribution: Distribution, sequences: NDArray[Any], returns: NDArray[np.float64]
    ) -> tuple[Distribution, float]:
        """Return the distribution fitted to the elites, and their mean return."""
        elites = best_rows(returns, self.num_elites)
        return distribution.refit(sequences[elites], self.momentum), float(returns[elites].mean())

    def choose(self, distribution: Distribution, best: NDArray[Any]) -> NDArray[Any]:
        """Return the sequence that `execute` asks for."""
        return best if self.execute == "best" else distribution.mode()


@dataclass(frozen=True)
class ICEM(Shooting):
    """iCEM (Pinneri et al. 2020, "Sample-efficient Cross-Entropy Method for Real-time Planning").

    It differs from CEM on a Box in five points: the noise is coloured, so that sequences push in one
    direction for a while; elites are rolled out again in the next iteration and, shifted by one step, in the
    next decision; later iterations have fewer sequences (each 1.25 times fewer than the one before, but
    at least 2 K); the mean is one of the sequences of the last iteration; and the first action of the
    best sequence is taken, not that of the mean.

    Repeated elites and the mean count as sequences of an iteration. Elites are rolled out again because in a
    random environment their return is partly luck. There the best sequence may still be one that was lucky;
    the mean, which `CEM` takes, depends less on luck.

    Raises:
        ValueError: A number is out of range.
    """

    num_trajectories: int = option(40, "Number of sequences of the first iteration, B.")
    num_iterations: int = option(3, "Iterations per decision.")
    num_elites: int = option(
        10, "Number of the best sequences of an iteration that it learns from, K: from 2 to half of B."
    )
    initial_std: Deviation = option(
        0.5,
        "Standard deviation at the beginning of a decision, as a fraction of half the range of a Box; "
        "numbers `[*action shape]` are in units of the action, and need no bounds.",
    )
    momentum: float = option(0.1, "Share of the old mean and standard deviation in the new ones, in [0, 1].")
    noise_beta: float = option(
        1.0,
        "Colour of the noise, from 0 to 10: 0 is white, 1 pink, 2 red (the paper: 0.25 for HalfCheetah, 2 "
        "to 4 for slower tasks).",
    )
    reuse: float = option(0.3, "Fraction of the elites that is rolled out again, in [0, 1].")

    def __post_init__(self) -> None:
        """Check the fields."""
        super().__post_init__()
        self._check_integers(2, "num_elites", optional=False)
        if 2 * self.num_elites > self.num_trajectories:
            raise ValueError(
                f"num_elites: expected at most half of num_trajectories ({self.num_trajectories}), "
                f"got {self.num_elites}"
            )
        check_std(self, "initial_std")
        self._check_numbers(0, 1, "momentum", "reuse")
        self._check_numbers(0, MAX_BETA, "noise_beta")

    def initial_distribution(self, space: Space[Any]) -> Gaussian:
        """Return normal distributions with coloured noise."""
        return Gaussian.initial(
            space, self.num_actions, self.dt, self.initial_std, self.noise_beta, "initial_std"
        )

    def propose(
        self, distribution: Distribution, generator: np.random.Generator, iteration: int
    ) -> NDArray[Any]:
        """Return the reused elites, in the last iteration the mean, and newly drawn sequences."""
        known = [distribution.elites[: round(self.reuse * self.num_elites)]]
        if iteration == self.num_iterations - 1:
            known.append(distribution.mode()[None])
        total = max(round(self.num_trajectories / _DECAY**iteration), 2 * self.num_elites)
        drawn = distribution.sample(generator, total - sum(map(len, known)))
        return np.concatenate([*known, drawn])

    def learn(
        self, distribution: Distribution, sequences: NDArray[Any], returns: NDArray[np.float64]
    ) -> tuple[Distribution, float]:
        """Return the distribution fitted to the elites, and their mean return."""
        elites = best_rows(returns, self.num_elites)
        return distribution.refit(sequences[elites], self.momentum), float(returns[elites].mean())


# -- MPPI: sequences weighted by the exponential of their return. Letters: B sequences -----------------------


def mppi_weights(returns: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    """Return weights in proportion to `exp(return / temperature)`, with a sum of 1."""
    # `returns`: `[B]`.
    best = returns.max()
    # inf - inf is NaN: where the best return is infinite, the rows with that return share the weight.
    weights = np.exp((returns - best) / temperature) if np.isfinite(best) else (returns == best) * 1.0
    normalised: NDArray[np.float64] = weights / weights.sum()
    return normalised


def mppi_update(
    samples: NDArray[Any], returns: NDArray[np.float64], temperature: float
) -> NDArray[np.float64]:
    """Return the mean of samples weighted by `exp(return / temperature)`."""
    # For a cost `J = u'Hu/2 + g'u` (the return is -J) and samples of N(mu, Sigma) it converges to `(Sigma^-1
    # + H / temperature)^-1 (Sigma^-1 mu - g / temperature)`.
    # `returns`: `[B]`.
    weights = mppi_weights(returns, temperature)
    mean: NDArray[np.float64] = np.einsum("b,b...->...", weights, samples.astype(np.float64))
    return mean


@dataclass(frozen=True)
class MPPI(Shooting):
    """Model predictive path integral control (Williams et al. 2017, "Information Theoretic MPC").

    In each iteration it draws sequences about its mean, always with the same standard deviation, and moves
    the mean to their average, weighted by `exp(return / temperature)`. It takes the first action of the mean;
    the next decision begins with the mean shifted by one step. It supports Box actions.

    Raises:
        ValueError: A number is out of range.
    """

    num_trajectories: int = option(64, "Number of sequences per iteration, B.")
    num_iterations: int = option(1, "Iterations per decision.")
    temperature: float = option(0.2, "Above 0; with a lower one, fewer sequences determine the mean.")
    relative_temperature: bool = option(
        True,
        "Whether the temperature is in units of the standard deviation of the returns of the iteration, so "
        "that it does not depend on the scale of the rewards; else it is in units of the return, as in the "
        "paper (lambda).",
    )
    std: Deviation = option(
        0.5,
        "Standard deviation of the noise, as a fraction of half the range of a Box; "
        "numbers `[*action shape]` are in units of the action, and need no bounds.",
    )
    noise_beta: float = option(
        1.0, "Colour of the noise, from 0 to 10: 0 is white (the paper), 1 pink, 2 red."
    )

    def __post_init__(self) -> None:
        """Check the fields."""
        super().__post_init__()
        self._check_numbers(0, math.inf, "temperature")
        self._check_numbers(0, MAX_BETA, "noise_beta")
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature: expected a number above 0, got {self.temperature!r}")
        check_std(self, "std")

    def initial_distribution(self, space: Space[Any]) -> Gaussian:
        """Return normal distributions, whose standard deviation does not change."""
        return Gaussian.initial(space, self.num_actions, self.dt, self.std, self.noise_beta, "std")

    def learn(
        self, distribution: Distribution, sequences: NDArray[Any], returns: NDArray[np.float64]
    ) -> tuple[Distribution, float]:
        """Return the distribution with the weighted mean, and the weighted mean return."""
        assert isinstance(distribution, Gaussian)
        temperature = self.temperature
        if self.relative_temperature:
            # Where all returns are equal, so are the weights, at any temperature.
            temperature *= _finite_std(returns) or 1.0
        mean = mppi_update(sequences, returns, temperature)
        weights = mppi_weights(returns, temperature)
        counts = weights > 0  # 0 * -inf is NaN
        return replace(distribution, mean=mean), float((weights[counts] * returns[counts]).sum())

    def choose(self, distribution: Distribution, best: NDArray[Any]) -> NDArray[Any]:
        """Return the mean."""
        return distribution.mode()


def _finite_std(returns: NDArray[np.float64]) -> float:
    """Return the standard deviation of the finite returns; 0 where there are none."""
    finite = returns[np.isfinite(returns)]
    return float(finite.std()) if len(finite) else 0.0
