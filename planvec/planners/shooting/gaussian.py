"""Normal distributions of action sequences. Letters: L actions of a sequence, K elites."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from planvec.errors import UnsupportedEnvError
from planvec.planners.root_actions import bounds_advice, box_actions
from planvec.planners.shooting.distributions import Distribution, no_elites
from planvec.planners.shooting.noise import colored_noise


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Gaussian(Distribution):
    """Normal distributions, clipped to the bounds of a Box."""

    space: spaces.Box
    mean: NDArray[np.float64]  # `[L, *action shape]` float64, in units of the action
    std: NDArray[np.float64]  # `[L, *action shape]` float64, in units of the action
    noise_beta: float = 0.0  # colour of the noise along a sequence; see `colored_noise`

    @classmethod
    def initial(
        cls, space: Space[Any], num_actions: int, dt: int, std: Any, noise_beta: float, name: str
    ) -> Gaussian:
        """Return the distribution about the middle of a Box, or about 0 where it has no bounds."""
        # `std`: A number, as a fraction of half the range; or an array `[*action shape]`, in units of the
        # action.
        if not isinstance(space, spaces.Box):
            raise UnsupportedEnvError(
                f"action_space: expected a Box, got {space}; plan discrete actions with CEM, "
                "RandomShooting, Swarm or MCTS, or wrap the environment so that its actions are one array"
            )
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        scale = _scale_of(space, std, name)
        finite = np.isfinite(low) & np.isfinite(high)
        middle = np.zeros(space.shape)
        middle[finite] = low[finite] / 2 + high[finite] / 2
        return cls(
            space=space,
            dt=dt,
            elites=no_elites(space, num_actions),
            mean=np.repeat(np.clip(middle, low, high)[None], num_actions, axis=0),
            std=np.repeat(scale[None], num_actions, axis=0),
            noise_beta=noise_beta,
        )

    def shifted(self, previous: Self) -> Self:
        """Return the mean and the elites of `previous`, shifted, with the initial std."""
        num_repeated, index = self._shift(previous)
        mean, elites = previous.mean[index], previous.elites[:, index]
        return replace(self, num_repeated=num_repeated, mean=mean, elites=elites)

    def sample(self, generator: np.random.Generator, num_sequences: int) -> NDArray[Any]:
        """Draw sequences `[num_sequences, L, *action shape]` with coloured noise."""
        shape = (num_sequences, *self.space.shape)
        noise = np.moveaxis(colored_noise(generator, self.noise_beta, shape, self.num_actions), -1, 1)
        with np.errstate(over="ignore"):  # infinity is clipped
            return self._actions(self.mean + self.std * noise)

    def refit(self, elites: NDArray[Any], momentum: float) -> Self:
        """Return the mean and the std of the elites, mixed with the present ones."""
        with np.errstate(over="ignore", invalid="ignore"):
            mean, std = elites.mean(axis=0, dtype=np.float64), elites.std(axis=0, dtype=np.float64)
        if not (np.isfinite(mean).all() and np.isfinite(std).all()):  # sums or squares were too large
            scale = np.abs(elites.astype(np.float64)).max()
            mean, std = (elites / scale).mean(axis=0) * scale, (elites / scale).std(axis=0) * scale
        return replace(
            self,
            elites=elites,
            mean=momentum * self.mean + (1 - momentum) * mean,
            std=momentum * self.std + (1 - momentum) * std,
        )

    def mode(self) -> NDArray[Any]:
        """Return the mean."""
        return self._actions(self.mean)

    def _actions(self, numbers: NDArray[np.float64]) -> NDArray[Any]:
        """Round and clip numbers to actions."""
        return box_actions(self.space, numbers)


def _scale_of(space: spaces.Box, std: Any, name: str) -> NDArray[np.float64]:
    """Return a standard deviation `[*action shape]` in units of the action; see `Gaussian.initial`."""
    if np.ndim(std):
        if np.shape(std) != space.shape:
            raise ValueError(f"{name}: expected a number or shape {space.shape}, got shape {np.shape(std)}")
        return np.array(std, np.float64)
    if not space.is_bounded("both"):
        raise UnsupportedEnvError(
            f"action_space: expected a Box with finite bounds, got {space}; give {name} as an array "
            f"of shape {space.shape} in units of the action, or {bounds_advice(space)}"
        )
    scale: NDArray[np.float64] = std * (space.high.astype(np.float64) / 2 - space.low.astype(np.float64) / 2)
    return scale
