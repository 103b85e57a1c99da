"""Categorical distributions of action sequences.

Letters: L actions of a sequence, K elites, C categories.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from planvec.errors import UnsupportedEnvError
from planvec.planners.root_actions import MAX_CATEGORIES
from planvec.planners.shooting.distributions import Distribution, no_elites

# share of the uniform distribution in the probabilities of a new decision: those of 0 would stay 0
_UNIFORM_SHARE = 0.5


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Categorical(Distribution):
    """Independent categorical distributions, one for every number of every action."""

    probabilities: NDArray[np.float64]  # `[L, *action shape, C]` float64; 0 beyond the categories of a number
    num_categories: NDArray[np.int64]  # `[*action shape]` int64
    start: NDArray[np.int64]  # `[*action shape]` int64, the number of the first category

    @classmethod
    def initial(cls, space: Space[Any], num_actions: int, dt: int) -> Categorical:
        """Return the uniform distribution over a Discrete, MultiDiscrete or MultiBinary space."""
        shape = space.shape or ()
        if isinstance(space, spaces.Discrete):
            num_categories, start = np.array(int(space.n)), np.array(int(space.start))
        elif isinstance(space, spaces.MultiDiscrete):
            num_categories, start = space.nvec.astype(np.int64), space.start.astype(np.int64)
        else:
            num_categories, start = np.full(shape, 2), np.zeros(shape, np.int64)
        if num_categories.max(initial=0) > MAX_CATEGORIES:
            raise UnsupportedEnvError(
                f"action_space: expected at most {MAX_CATEGORIES:,} actions or categories of a number, got "
                f"{space}; plan with Swarm, RandomShooting or MCTS"
            )
        exists = np.arange(num_categories.max()) < num_categories[..., None]
        return cls(
            space=space,
            dt=dt,
            elites=no_elites(space, num_actions),
            probabilities=np.repeat((exists / num_categories[..., None])[None], num_actions, axis=0),
            num_categories=num_categories,
            start=start,
        )

    def _fits(self) -> bool:
        fresh = self.initial(self.space, 1, self.dt)
        are_same = all(
            np.array_equal(getattr(self, name), getattr(fresh, name)) for name in ("num_categories", "start")
        )
        return are_same and self.probabilities.shape[1:] == fresh.probabilities.shape[1:] and super()._fits()

    def shifted(self, previous: Self) -> Self:
        """Return the probabilities of `previous`, shifted and mixed with uniform ones, and its elites."""
        num_repeated, index = self._shift(previous)
        mixed = _UNIFORM_SHARE * self.probabilities + (1 - _UNIFORM_SHARE) * previous.probabilities[index]
        return replace(self, num_repeated=num_repeated, probabilities=mixed, elites=previous.elites[:, index])

    def sample(self, generator: np.random.Generator, num_sequences: int) -> NDArray[Any]:
        """Draw sequences `[num_sequences, L, *action shape]`."""
        draws = generator.random((num_sequences, *self.probabilities.shape[:-1]))
        below = draws[..., None] >= np.cumsum(self.probabilities, axis=-1)
        # Rounded sums may end a little below 1.
        return self._actions(np.minimum(below.sum(axis=-1), self.num_categories - 1))

    def sample_legal(
        self, generator: np.random.Generator, index: int, masks: NDArray[np.bool_]
    ) -> NDArray[Any]:
        """Draw an action by the probabilities of the legal categories."""
        shares = np.cumsum(self._legal_probabilities(index, masks), axis=-1)
        draws = generator.random((len(masks), *self.num_categories.shape))
        categories = (draws[..., None] * shares[..., -1:] >= shares).sum(axis=-1)
        return self._actions(np.minimum(categories, self.num_categories - 1))

    def restricted(self, mask: NDArray[np.bool_]) -> Self:
        """Return the distribution whose first action has no probability of illegal categories."""
        first = self._legal_probabilities(0, mask[None])
        probabilities = np.concatenate([first / first.sum(axis=-1, keepdims=True), self.probabilities[1:]])
        return replace(self, probabilities=probabilities)

    def _legal_probabilities(self, index: int, masks: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the probabilities of an action `[B, *action shape, C]`, 0 for illegal categories."""
        # They are even where all legal ones have no probability. Their sum is not 1.
        sizes = self.num_categories.reshape(-1)
        legal = np.zeros((len(masks), len(sizes), self.probabilities.shape[-1]), np.bool_)
        legal[:, np.arange(legal.shape[-1]) < sizes[:, None]] = masks
        legal = legal.reshape(len(masks), *self.num_categories.shape, legal.shape[-1])
        weights = self.probabilities[index] * legal
        probabilities: NDArray[np.float64] = np.where(
            weights.any(axis=-1, keepdims=True), weights, legal * 1.0
        )
        return probabilities

    def refit(self, elites: NDArray[Any], momentum: float) -> Self:
        """Return how often the elites take each category, mixed with the present probabilities."""
        # Additive smoothing (one more elite that takes all categories equally) keeps every probability above
        # 0.
        categories = np.arange(self.probabilities.shape[-1])
        counts = ((elites - self.start)[..., None] == categories).sum(axis=0)
        exists = categories < self.num_categories[..., None]
        fitted = (counts + exists / self.num_categories[..., None]) / (len(elites) + 1)
        mixed = momentum * self.probabilities + (1 - momentum) * fitted
        return replace(self, elites=elites, probabilities=mixed)

    def mode(self) -> NDArray[Any]:
        """Return the most likely actions; of equals the first."""
        return self._actions(self.probabilities.argmax(axis=-1))

    def _actions(self, categories: NDArray[np.int64]) -> NDArray[Any]:
        """Return the actions of category indices."""
        actions: NDArray[Any] = (categories + self.start).astype(self.space.dtype)
        return actions
