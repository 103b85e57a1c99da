"""Distributions of action sequences.

A sequence has L actions, each repeated for `dt` environment steps. The planner decides at every environment
step, so that with `dt` above 1 a decision may fall between the repetitions of an action. `num_repeated`
counts the repetitions of the first action before the decision, so that a sequence of the last decision goes
on as planned.

Letters: L actions of a sequence, H environment steps, K elites.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from planvec.errors import UnsupportedEnvError
from planvec.planners.root_actions import MAX_CATEGORIES, bounds_advice, box_actions
from planvec.rows import draw_legal, uniform_actions


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Distribution(ABC):
    """A distribution of action sequences, with the best sequences of the last iteration."""

    space: Space[Any]  # the space of one action
    dt: int  # environment steps for which an action is repeated
    num_repeated: int = 0  # those of the first action that were taken before the decision, below `dt`
    elites: NDArray[Any]  # `[K, L, *action shape]`, the best sequences of the last iteration, best first

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.num_actions} actions, {len(self.elites)} elites>"

    @property
    def num_actions(self) -> int:
        """Return L."""
        return int(self.elites.shape[1])

    def action_index(self, horizon: int) -> NDArray[np.int64]:
        """Return the index of the action at each environment step, `[H]`; the last action is repeated."""
        index = (np.arange(horizon) + self.num_repeated) // self.dt
        return np.minimum(index, self.num_actions - 1)

    def _shift(self, previous: Distribution) -> tuple[int, NDArray[np.int64]]:
        """Return `num_repeated` one step later, and the index `[L]` of each action in `previous`."""
        num_repeated = previous.num_repeated + 1
        is_next = num_repeated == previous.dt
        index = np.minimum(np.arange(self.num_actions) + is_next, previous.num_actions - 1)
        return 0 if is_next else num_repeated, index

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the fields, except the space, as arrays."""
        names = [field.name for field in fields(self) if field.name != "space"]
        return {name: np.asarray(getattr(self, name)) for name in names}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], action_space: Space[Any]) -> Self:
        """Return the distribution that `to_arrays` turned into arrays."""
        numbers = {"int": int, "float": float}  # annotations are text
        values: dict[str, Any] = {
            field.name: numbers.get(str(field.type), np.asarray)(arrays[field.name])
            for field in fields(cls)
            if field.name != "space"
        }
        made = cls(space=action_space, **values)
        if not made._fits():
            raise ValueError(f"expected the parameters of a distribution of sequences of {action_space}")
        return made

    def _fits(self) -> bool:
        """Return whether the fields, which may come from a file, are those of sequences of the space."""
        shape = (self.num_actions, *(self.space.shape or ()))
        parts = [getattr(self, name) for name in ("mean", "std", "probabilities") if hasattr(self, name)]
        is_right = self.elites.shape[1:] == shape and self.elites.dtype == self.space.dtype
        is_right = is_right and all(part.shape[: len(shape)] == shape for part in parts)
        return is_right and self.dt >= 1 and 0 <= self.num_repeated < self.dt

    @property
    def saved_states(self) -> NDArray[Any]:
        """No states."""
        return np.empty(0, object)

    @abstractmethod
    def shifted(self, previous: Self) -> Self:
        """Return this distribution with the parameters of another one, shifted by one environment step."""

    @abstractmethod
    def sample(self, generator: np.random.Generator, num_sequences: int) -> NDArray[Any]:
        """Draw sequences `[num_sequences, L, *action shape]` of the space's dtype, inside the space."""

    def sample_legal(
        self, generator: np.random.Generator, index: int, masks: NDArray[np.bool_]
    ) -> NDArray[Any]:
        """Draw an action of a sequence among the legal ones: `[B, *action shape]`, by default evenly."""
        # `masks`: `[B, M]`; see `planvec.rows.random_actions`.
        shape = (len(masks), *(self.space.shape or ()))
        return draw_legal(self.space, masks, generator.random(shape))

    def restricted(self, mask: NDArray[np.bool_]) -> Self:
        """Return this distribution with a first action that is legal by a mask `[M]`."""
        return self

    @abstractmethod
    def refit(self, elites: NDArray[Any], momentum: float) -> Self:
        """Return this distribution fitted to the best sequences."""
        # `elites`: `[K, L, *action shape]`.

    @abstractmethod
    def mode(self) -> NDArray[Any]:
        """Return the most likely sequence, `[L, *action shape]`."""


def no_elites(space: Space[Any], num_actions: int) -> NDArray[Any]:
    """Return an empty array of sequences, `[0, L, *action shape]`."""
    return np.empty((0, num_actions, *(space.shape or ())), space.dtype)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Uniform(Distribution):
    """The uniform distribution over a space, which does not change."""

    @classmethod
    def initial(cls, space: Space[Any], num_actions: int, dt: int) -> Uniform:
        """Return the distribution over a space whose actions can be drawn uniformly."""
        return cls(space=space, dt=dt, elites=no_elites(space, num_actions))

    def shifted(self, previous: Self) -> Self:
        """Return this distribution."""
        return self

    def sample(self, generator: np.random.Generator, num_sequences: int) -> NDArray[Any]:
        """Draw uniform sequences, `[num_sequences, L, *action shape]`."""
        drawn = uniform_actions(self.space, generator, num_sequences * self.num_actions)
        return drawn.reshape(num_sequences, self.num_actions, *drawn.shape[1:])

    def refit(self, elites: NDArray[Any], momentum: float) -> Self:
        """Return this distribution with new elites."""
        return replace(self, elites=elites)

    def mode(self) -> NDArray[Any]:
        """Return the best sequence, since all are equally likely."""
        best: NDArray[Any] = self.elites[0]
        return best


# -- Categorical distributions of action sequences.
#
# Letters: L actions of a sequence, K elites, C categories.

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


# -- Coloured noise: random sequences that change slowly. Letters: L numbers of a sequence -------------------

MAX_BETA = 10.0  # highest exponent: beyond it all power is in the lowest frequency, and only rounding differs


def colored_noise(
    generator: np.random.Generator, beta: float, shape: tuple[int, ...], num_numbers: int
) -> NDArray[np.float64]:
    """Draw Gaussian sequences whose power falls with the frequency `f` as `f**-beta`."""
    # Every number is normal with mean 0 and variance 1, whatever `beta`; only the correlations differ.
    # Independent noise (`beta` 0) cancels out before a slow system has moved; noise of 1 (pink) or 2 (red, a
    # random walk) pushes in one direction for a while.
    # It is drawn in the frequency domain (Timmer and König 1995, "On generating power law noise"), as iCEM
    # does (Pinneri et al. 2020, section 3.1); the constant part has the power of the lowest frequency.
    # Sequences are periodic: the end of one is as close to its beginning as two neighbours are.
    # `shape`: Shape of the batch of sequences.
    # Returns `[*shape, L]`.
    if beta == 0:
        return generator.standard_normal((*shape, num_numbers))
    frequencies = np.fft.rfftfreq(num_numbers)
    frequencies[0] = 1.0 / num_numbers
    scale = frequencies ** (-beta / 2.0)
    parts = generator.standard_normal((2, *shape, len(scale)))
    # The constant part and, for an even length, the alternating part are real: all power is in one number.
    real = [0, -1] if num_numbers % 2 == 0 else [0]
    parts[0][..., real] *= np.sqrt(2.0)
    parts[1][..., real] = 0.0
    power = 4.0 * scale**2
    power[real] = 2.0 * scale[real] ** 2
    spectrum = (parts[0] + 1j * parts[1]) * scale
    noise: NDArray[np.float64] = np.fft.irfft(spectrum, num_numbers) * (num_numbers / np.sqrt(power.sum()))
    return noise


# -- Normal distributions of action sequences. Letters: L actions of a sequence, K elites --------------------


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
        if np.ndim(std):
            if np.shape(std) != space.shape:
                raise ValueError(
                    f"{name}: expected a number or shape {space.shape}, got shape {np.shape(std)}"
                )
            scale = np.array(std, np.float64)
        elif space.is_bounded("both"):
            scale = std * (high / 2 - low / 2)
        else:
            raise UnsupportedEnvError(
                f"action_space: expected a Box with finite bounds, got {space}; give {name} as an array "
                f"of shape {space.shape} in units of the action, or {bounds_advice(space)}"
            )
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
            return box_actions(self.space, self.mean + self.std * noise)

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
        return box_actions(self.space, self.mean)
