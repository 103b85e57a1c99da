"""What shooting planners draw action sequences from.

A sequence has L actions, each held for `dt` environment steps. Where `dt` is above 1, decisions are made
within the time that an action is held; `num_held` tells how much of it the first action has behind it, so
that a sequence of the last decision goes on as it was planned.

Letters: B sequences, L actions of one, H environment steps, K elites, C categories.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from planvec.errors import UnsupportedEnvError
from planvec.planners.shooting.noise import colored_noise
from planvec.rows.random_actions import uniform_actions

__all__ = ["Categorical", "Distribution", "Gaussian", "Uniform"]

_FRESH = 0.5
"""Share of the uniform distribution in the categories of a new decision: certain ones would never change."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Distribution(ABC):
    """What action sequences are drawn from, and the best that were.

    Attributes:
        space: The space of one action.
        dt: For how many environment steps an action is held.
        num_held: For how many of them the first action was held before the decision, below `dt`.
        elites: `[K, L, *action shape]`, the best sequences of the last iteration, best first.
    """

    space: Space[Any]
    dt: int
    num_held: int = 0
    elites: NDArray[Any]

    @property
    def num_actions(self) -> int:
        """L."""
        return int(self.elites.shape[1])

    def action_index(self, horizon: int) -> NDArray[np.int64]:
        """Which action of a sequence is taken at each environment step, `[H]`; the last one is held on."""
        index = (np.arange(horizon) + self.num_held) // self.dt
        return np.minimum(index, self.num_actions - 1)

    def follows(self, before: Any) -> bool:
        """Whether sequences of another distribution can be continued as some of this one."""
        return type(before) is type(self) and before.dt == self.dt and before.space == self.space

    def _carry(self, before: Distribution) -> tuple[int, NDArray[np.int64]]:
        """What an earlier distribution is one environment step later: `num_held`, and its actions `[L]`."""
        num_held = before.num_held + 1
        over = num_held == before.dt
        index = np.minimum(np.arange(self.num_actions) + over, before.num_actions - 1)
        return 0 if over else num_held, index

    @abstractmethod
    def following(self, before: Self) -> Self:
        """This distribution, about what another one (that it `follows`) knew one environment step ago."""

    @abstractmethod
    def sample(self, generator: np.random.Generator, num_sequences: int) -> NDArray[Any]:
        """Sequences `[num_sequences, L, *action shape]` of the space's dtype, inside the space."""

    @abstractmethod
    def refit(self, elites: NDArray[Any], momentum: float) -> Self:
        """Fit to sequences `[K, L, *action shape]`; `momentum` is the share of what was before."""

    @abstractmethod
    def center(self) -> NDArray[Any]:
        """The sequence `[L, *action shape]` in its middle: the mean, or the likeliest actions."""


def _no_elites(space: Space[Any], num_actions: int) -> NDArray[Any]:
    return np.empty((0, num_actions, *(space.shape or ())), space.dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class Uniform(Distribution):
    """All sequences are as likely, and it learns nothing."""

    @classmethod
    def first(cls, space: Space[Any], num_actions: int, dt: int) -> Uniform:
        """Over a space that `is_uniform`."""
        return cls(space=space, dt=dt, elites=_no_elites(space, num_actions))

    def following(self, before: Self) -> Self:
        """Itself: it remembers nothing."""
        return self

    def sample(self, generator: np.random.Generator, num_sequences: int) -> NDArray[Any]:
        """As of `Distribution`."""
        drawn = uniform_actions(self.space, generator, num_sequences * self.num_actions)
        return drawn.reshape(num_sequences, self.num_actions, *drawn.shape[1:])

    def refit(self, elites: NDArray[Any], momentum: float) -> Self:
        """Keep the elites."""
        return replace(self, elites=elites)

    def center(self) -> NDArray[Any]:
        """The best sequence."""
        best: NDArray[Any] = self.elites[0]
        return best


@dataclass(frozen=True, kw_only=True, eq=False)
class Gaussian(Distribution):
    """Normal actions, clipped to the bounds of their Box.

    Attributes:
        mean: `[L, *action shape]` float64, in units of the action.
        std: `[L, *action shape]` float64, in units of the action.
        noise_beta: Colour of the noise along a sequence; see `colored_noise`.
    """

    space: spaces.Box
    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    noise_beta: float = 0.0

    @classmethod
    def first(
        cls, space: Space[Any], num_actions: int, dt: int, std: Any, noise_beta: float, name: str
    ) -> Gaussian:
        """About the middle of a Box; about 0 where it has none.

        Args:
            space: The space of one action.
            num_actions: L.
            dt: For how many environment steps an action is held.
            std: A number, as a fraction of half the range; or an array `[*action shape]`, in units of the
                action.
            noise_beta: Colour of the noise.
            name: What the planner calls `std`, for errors.

        Raises:
            UnsupportedEnvError: Not a Box; or one without bounds, and `std` is a fraction.
            ValueError: `std` of another shape than the action.
        """
        if not isinstance(space, spaces.Box):
            raise UnsupportedEnvError(
                f"action_space: expected a Box, got {space}; plan discrete actions with CEM, "
                "RandomShooting, Swarm or MCTS, or wrap the environment so that its actions are one array"
            )
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        if np.ndim(std):
            if np.shape(std) != space.shape:
                raise ValueError(
                    f"{name}: expected a number or shape {space.shape}, got shape {np.shape(std)}"
                )
            spread = np.array(std, np.float64)
        elif space.is_bounded("both"):
            spread = std * (high / 2 - low / 2)
        else:
            raise UnsupportedEnvError(
                f"action_space: expected a Box with finite bounds, got {space}; give {name} as an array "
                f"of shape {space.shape} in units of the action, or wrap the environment in "
                "gymnasium.wrappers.RescaleAction or TransformAction"
            )
        finite = np.isfinite(low) & np.isfinite(high)
        middle = np.zeros(space.shape)
        middle[finite] = low[finite] / 2 + high[finite] / 2
        return cls(
            space=space,
            dt=dt,
            elites=_no_elites(space, num_actions),
            mean=np.repeat(np.clip(middle, low, high)[None], num_actions, axis=0),
            std=np.repeat(spread[None], num_actions, axis=0),
            noise_beta=noise_beta,
        )

    def following(self, before: Self) -> Self:
        """The mean and the elites go on; the last action is repeated. The std begins anew."""
        num_held, index = self._carry(before)
        return replace(self, num_held=num_held, mean=before.mean[index], elites=before.elites[:, index])

    def sample(self, generator: np.random.Generator, num_sequences: int) -> NDArray[Any]:
        """As of `Distribution`."""
        shape = (num_sequences, *self.space.shape)
        noise = np.moveaxis(colored_noise(generator, self.noise_beta, shape, self.num_actions), -1, 1)
        return self._actions(self.mean + self.std * noise)

    def refit(self, elites: NDArray[Any], momentum: float) -> Self:
        """Mean and std of the elites."""
        mean = elites.mean(axis=0, dtype=np.float64)
        std = elites.std(axis=0, dtype=np.float64)
        return replace(
            self,
            elites=elites,
            mean=momentum * self.mean + (1 - momentum) * mean,
            std=momentum * self.std + (1 - momentum) * std,
        )

    def center(self) -> NDArray[Any]:
        """The mean."""
        return self._actions(self.mean)

    def _actions(self, numbers: NDArray[np.float64]) -> NDArray[Any]:
        if self.space.dtype.kind != "f":
            numbers = np.rint(numbers)
        inside: NDArray[Any] = np.clip(numbers, self.space.low, self.space.high).astype(self.space.dtype)
        return inside


@dataclass(frozen=True, kw_only=True, eq=False)
class Categorical(Distribution):
    """Every number of every action is drawn by itself from its own categories.

    Attributes:
        probabilities: `[L, *action shape, C]` float64; 0 beyond the categories that a number has.
        num_categories: `[*action shape]` int64.
        start: `[*action shape]` int64, the number of the first category.
    """

    probabilities: NDArray[np.float64]
    num_categories: NDArray[np.int64]
    start: NDArray[np.int64]

    @classmethod
    def first(cls, space: Space[Any], num_actions: int, dt: int) -> Categorical:
        """Uniform over a Discrete, MultiDiscrete or MultiBinary space."""
        shape = space.shape or ()
        if isinstance(space, spaces.Discrete):
            num_categories, start = np.array(int(space.n)), np.array(int(space.start))
        elif isinstance(space, spaces.MultiDiscrete):
            num_categories, start = space.nvec.astype(np.int64), space.start.astype(np.int64)
        else:
            num_categories, start = np.full(shape, 2), np.zeros(shape, np.int64)
        exists = np.arange(num_categories.max()) < num_categories[..., None]
        return cls(
            space=space,
            dt=dt,
            elites=_no_elites(space, num_actions),
            probabilities=np.repeat((exists / num_categories[..., None])[None], num_actions, axis=0),
            num_categories=num_categories,
            start=start,
        )

    def following(self, before: Self) -> Self:
        """What was likely goes on, mixed with fresh categories; the last action is repeated."""
        num_held, index = self._carry(before)
        mixed = _FRESH * self.probabilities + (1 - _FRESH) * before.probabilities[index]
        return replace(self, num_held=num_held, probabilities=mixed, elites=before.elites[:, index])

    def sample(self, generator: np.random.Generator, num_sequences: int) -> NDArray[Any]:
        """As of `Distribution`."""
        draws = generator.random((num_sequences, *self.probabilities.shape[:-1]))
        below = draws[..., None] >= np.cumsum(self.probabilities, axis=-1)
        # Rounded sums may end a little below 1.
        return self._actions(np.minimum(below.sum(axis=-1), self.num_categories - 1))

    def refit(self, elites: NDArray[Any], momentum: float) -> Self:
        """How often the elites take each category, one more elite taking all of them alike.

        With that one (additive smoothing) no category is ever ruled out.
        """
        categories = np.arange(self.probabilities.shape[-1])
        counts = ((elites - self.start)[..., None] == categories).sum(axis=0)
        exists = categories < self.num_categories[..., None]
        fitted = (counts + exists / self.num_categories[..., None]) / (len(elites) + 1)
        mixed = momentum * self.probabilities + (1 - momentum) * fitted
        return replace(self, elites=elites, probabilities=mixed)

    def center(self) -> NDArray[Any]:
        """The likeliest actions; of equals the first."""
        return self._actions(self.probabilities.argmax(axis=-1))

    def _actions(self, categories: NDArray[np.int64]) -> NDArray[Any]:
        actions: NDArray[Any] = (categories + self.start).astype(self.space.dtype)
        return actions
