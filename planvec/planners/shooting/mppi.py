"""MPPI: sequences weighted by the exponential of their return. Letters: B sequences, L actions of one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.planners.shooting.distributions import Distribution, Gaussian
from planvec.planners.shooting.noise import MAX_BETA
from planvec.planners.shooting.search import Deviation, Shooting, fixed_std

__all__ = ["MPPI", "mppi_update", "mppi_weights"]


def mppi_weights(returns: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    """Weights `exp(return / temperature)`, adding up to 1.

    Args:
        returns: `[B]`.
        temperature: Above 0, in units of the return: the paper's lambda.

    Returns:
        `[B]`.
    """
    best = returns.max()
    # inf - inf is no number: where the best is infinite, those that are as good share the weight.
    weights = np.exp((returns - best) / temperature) if np.isfinite(best) else (returns == best) * 1.0
    normalised: NDArray[np.float64] = weights / weights.sum()
    return normalised


def mppi_update(
    samples: NDArray[Any], returns: NDArray[np.float64], temperature: float
) -> NDArray[np.float64]:
    """The mean of samples weighted by `exp(return / temperature)`.

    For a cost `J = u'Hu/2 + g'u` (the return is -J) and samples of N(mu, Sigma) it converges to
    `(Sigma^-1 + H / temperature)^-1 (Sigma^-1 mu - g / temperature)`.

    Args:
        samples: `[B, ...]`.
        returns: `[B]`.
        temperature: Above 0, in units of the return.

    Returns:
        `[...]`.
    """
    weights = mppi_weights(returns, temperature)
    mean: NDArray[np.float64] = np.einsum("b,b...->...", weights, samples.astype(np.float64))
    return mean


@dataclass(frozen=True)
class MPPI(Shooting):
    """Model predictive path integral control (Williams et al. 2017, "Information Theoretic MPC").

    In each iteration it draws sequences about its mean, always with the same deviation, and moves the mean
    to their average, weighted by `exp(return / temperature)`. It takes the first action of the mean; the
    next decision begins with the mean one step on. For Box actions.

    Args:
        num_trajectories: B, sequences per iteration.
        horizon: H, environment steps of a sequence.
        discount: Factor per environment step.
        dt: For how many environment steps an action is held.
        num_iterations: Per decision.
        temperature: The lower, the fewer sequences count. Above 0.
        relative_temperature: The temperature is in units of the standard deviation of the returns of the
            iteration, and so needs no tuning to the scale of the rewards; else it is in units of the
            return, as in the paper (lambda).
        std: Standard deviation of the noise. A number is a fraction of half the range of a Box; numbers
            `[*action shape]` are in units of the action, and need no bounds.
        noise_beta: Colour of the noise, from 0 to 10: 0 is white (the paper), 1 pink, 2 red.
        max_env_steps: As of `Planner`.
        max_seconds: As of `Planner`.

    Raises:
        ValueError: A number out of range.
    """

    num_trajectories: int = 64
    num_iterations: int = 1
    temperature: float = 0.2
    relative_temperature: bool = True
    std: Deviation = 0.5
    noise_beta: float = 1.0

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        self._in_range(0, math.inf, "temperature")
        self._in_range(0, MAX_BETA, "noise_beta")
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature: expected a number above 0, got {self.temperature!r}")
        fixed_std(self, "std")

    def first(self, space: Space[Any]) -> Gaussian:
        """Normal, with the deviation that it keeps."""
        return Gaussian.first(space, self.num_actions, self.dt, self.std, self.noise_beta, "std")

    def learn(
        self, distribution: Distribution, sequences: NDArray[Any], returns: NDArray[np.float64]
    ) -> tuple[Distribution, float]:
        """Move the mean; the weighted mean return."""
        assert isinstance(distribution, Gaussian)
        temperature = self.temperature
        if self.relative_temperature:
            # Equal returns: every sequence counts alike, at any temperature.
            temperature *= _spread(returns) or 1.0
        mean = mppi_update(sequences, returns, temperature)
        weights = mppi_weights(returns, temperature)
        counts = weights > 0  # 0 * -inf is no number
        return replace(distribution, mean=mean), float((weights[counts] * returns[counts]).sum())

    def choose(self, distribution: Distribution, best: NDArray[Any]) -> NDArray[Any]:
        """The mean."""
        return distribution.center()


def _spread(returns: NDArray[np.float64]) -> float:
    finite = returns[np.isfinite(returns)]
    return float(finite.std()) if len(finite) else 0.0
