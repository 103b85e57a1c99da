"""MPPI: sequences weighted by the exponential of their return. Letters: B sequences."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.planners.options import option
from planvec.planners.shooting.distributions import Distribution
from planvec.planners.shooting.gaussian import Gaussian
from planvec.planners.shooting.noise import MAX_BETA
from planvec.planners.shooting.search import Deviation, Shooting, check_std


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
