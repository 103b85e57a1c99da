"""Planners that roll out whole action sequences: random shooting, CEM, iCEM and MPPI.

Letters: B sequences, L actions of a sequence, H environment steps of a sequence, K elites.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self, TypeVar, cast

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from planvec.errors import UnsupportedEnvError
from planvec.planners.base import Planner, SearchPlanner, option
from planvec.planners.plan import Plan
from planvec.planners.root_actions import (
    MAX_CATEGORIES,
    action_statistics,
    bounds_advice,
    box_actions,
    check_action_space,
    draw_action,
)
from planvec.planners.search import RolloutRequest, Search, Simulation, StepRequest
from planvec.rows import BatchStepper, action_masks, are_legal, draw_legal, uniform_actions

# -- Distributions of action sequences.
#
# A sequence has L actions, each repeated for `dt` environment steps. The planner decides at every environment
# step, so that with `dt` above 1 a decision may fall between the repetitions of an action. `num_repeated`
# counts the repetitions of the first action before the decision, so that a sequence of the last decision goes
# on as planned.


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Distribution(ABC):
    """A distribution of action sequences, with the best sequences of the last iteration."""

    space: Space[Any]  # the space of one action
    dt: int  # environment steps for which an action is repeated
    num_repeated: int = 0  # those of the first action that were taken before the decision, below `dt`
    elites: np.ndarray  # `[K, L, *action shape]`, the best sequences of the last iteration, best first

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

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the fields, except the space, as arrays."""
        names = [field.name for field in fields(self) if field.name != "space"]
        return {name: np.asarray(getattr(self, name)) for name in names}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], action_space: Space[object]) -> Self:
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
    def saved_states(self) -> np.ndarray:
        """No states."""
        return np.empty(0, object)

    @abstractmethod
    def shifted(self, previous: Self) -> Self:
        """Return this distribution with the parameters of another one, shifted by one environment step."""

    @abstractmethod
    def sample(self, generator: np.random.Generator, num_sequences: int) -> np.ndarray:
        """Draw sequences `[num_sequences, L, *action shape]` of the space's dtype, inside the space."""

    def sample_legal(
        self, generator: np.random.Generator, index: int, masks: NDArray[np.bool_]
    ) -> np.ndarray:
        """Draw an action of a sequence among the legal ones: `[B, *action shape]`, by default evenly."""
        # `masks`: `[B, M]`; see `planvec.rows.random_actions`.
        shape = (len(masks), *(self.space.shape or ()))
        return draw_legal(self.space, masks, generator.random(shape))

    def restricted(self, mask: NDArray[np.bool_]) -> Self:
        """Return this distribution with a first action that is legal by a mask `[M]`."""
        return self

    @abstractmethod
    def refit(self, elites: np.ndarray, momentum: float) -> Self:
        """Return this distribution fitted to the best sequences."""
        # `elites`: `[K, L, *action shape]`.

    @abstractmethod
    def mode(self) -> np.ndarray:
        """Return the most likely sequence, `[L, *action shape]`."""


def no_elites(space: Space[object], num_actions: int) -> np.ndarray:
    """Return an empty array of sequences, `[0, L, *action shape]`."""
    return np.empty((0, num_actions, *(space.shape or ())), space.dtype)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Uniform(Distribution):
    """The uniform distribution over a space, which does not change."""

    @classmethod
    def initial(cls, space: Space[object], num_actions: int, dt: int) -> Uniform:
        """Return the distribution over a space whose actions can be drawn uniformly."""
        return cls(space=space, dt=dt, elites=no_elites(space, num_actions))

    def shifted(self, previous: Self) -> Self:
        """Return this distribution."""
        return self

    def sample(self, generator: np.random.Generator, num_sequences: int) -> np.ndarray:
        """Draw uniform sequences, `[num_sequences, L, *action shape]`."""
        drawn = uniform_actions(self.space, generator, num_sequences * self.num_actions)
        return drawn.reshape(num_sequences, self.num_actions, *drawn.shape[1:])

    def refit(self, elites: np.ndarray, momentum: float) -> Self:
        """Return this distribution with new elites."""
        return replace(self, elites=elites)

    def mode(self) -> np.ndarray:
        """Return the best sequence, since all are equally likely."""
        best: np.ndarray = self.elites[0]
        return best


# -- Categorical distributions of action sequences. Letters: C categories ------------------------------------

# share of the uniform distribution in the probabilities of a new decision: those of 0 would stay 0
_UNIFORM_SHARE = 0.5


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Categorical(Distribution):
    """Independent categorical distributions, one for every number of every action."""

    probabilities: NDArray[np.float64]  # `[L, *action shape, C]` float64; 0 beyond the categories of a number
    num_categories: NDArray[np.int64]  # `[*action shape]` int64
    start: NDArray[np.int64]  # `[*action shape]` int64, the number of the first category

    @classmethod
    def initial(cls, space: Space[object], num_actions: int, dt: int) -> Categorical:
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

    def sample(self, generator: np.random.Generator, num_sequences: int) -> np.ndarray:
        """Draw sequences `[num_sequences, L, *action shape]`."""
        draws = generator.random((num_sequences, *self.probabilities.shape[:-1]))
        below = draws[..., None] >= np.cumsum(self.probabilities, axis=-1)
        # Rounded sums may end a little below 1.
        return self._actions(np.minimum(below.sum(axis=-1), self.num_categories - 1))

    def sample_legal(
        self, generator: np.random.Generator, index: int, masks: NDArray[np.bool_]
    ) -> np.ndarray:
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

    def refit(self, elites: np.ndarray, momentum: float) -> Self:
        """Return how often the elites take each category, mixed with the present probabilities."""
        # Additive smoothing (one more elite that takes all categories equally) keeps every probability above
        # 0.
        categories = np.arange(self.probabilities.shape[-1])
        counts = ((elites - self.start)[..., None] == categories).sum(axis=0)
        exists = categories < self.num_categories[..., None]
        fitted = (counts + exists / self.num_categories[..., None]) / (len(elites) + 1)
        mixed = momentum * self.probabilities + (1 - momentum) * fitted
        return replace(self, elites=elites, probabilities=mixed)

    def mode(self) -> np.ndarray:
        """Return the most likely actions; of equals the first."""
        return self._actions(self.probabilities.argmax(axis=-1))

    def _actions(self, categories: NDArray[np.int64]) -> np.ndarray:
        """Return the actions of category indices."""
        actions: np.ndarray = (categories + self.start).astype(self.space.dtype)
        return actions


# -- Coloured noise: random sequences that change slowly -----------------------------------------------------

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


# -- Normal distributions of action sequences ----------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Gaussian(Distribution):
    """Normal distributions, clipped to the bounds of a Box."""

    space: spaces.Box
    mean: NDArray[np.float64]  # `[L, *action shape]` float64, in units of the action
    std: NDArray[np.float64]  # `[L, *action shape]` float64, in units of the action
    noise_beta: float = 0.0  # colour of the noise along a sequence; see `colored_noise`

    @classmethod
    def initial(
        cls, space: Space[object], num_actions: int, dt: int, std: Any, noise_beta: float, name: str
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

    def sample(self, generator: np.random.Generator, num_sequences: int) -> np.ndarray:
        """Draw sequences `[num_sequences, L, *action shape]` with coloured noise."""
        shape = (num_sequences, *self.space.shape)
        noise = np.moveaxis(colored_noise(generator, self.noise_beta, shape, self.num_actions), -1, 1)
        with np.errstate(over="ignore"):  # infinity is clipped
            return box_actions(self.space, self.mean + self.std * noise)

    def refit(self, elites: np.ndarray, momentum: float) -> Self:
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

    def mode(self) -> np.ndarray:
        """Return the mean."""
        return box_actions(self.space, self.mean)


# -- The base class of shooting planners: draw action sequences, roll them out whole, draw better ones.
#
#     Distribution --sample--> sequences [B, L] --rollout_batch--> returns [B]
#          ^                                                          |
#          +--------------------------- learn <-----------------------+
#
# Sequences are drawn in this process, and each is rolled out by one worker.

# standard deviation: a fraction of half the range of a Box, or `[*action shape]` in units of the action
Deviation = float | Sequence[Any] | NDArray[np.floating]

# What is left open is chosen by the time scale of the observations, in steps: the horizon, and its least
# value; the time for which an action is held; and the colour of the noise, at 0 and for each step
_HORIZON_SCALE, _MIN_HORIZON = 8, 20
_DT_SCALE = 1 / 4
_BETA_START, _BETA_SCALE = 0.5, 1 / 8
_UNLIMITED = 1_000_000  # iterations of a decision that goes on until its budget is spent
# A look at the environment: walks, their steps, and the part of the budget that they may take
_NUM_WALKS, _WALK_STEPS, _WALK_SHARE = 8, 48, 1 / 3
_MAX_NUMBERS = 1024  # numbers of an observation that a look compares


def timescale_of(observations: NDArray[np.floating]) -> float:
    """Return after how many steps the numbers of an observation have moved as far as they differ at all."""
    # The square of what a number moves within k steps, on average, grows with k until it is twice the
    # variance. The time scale of a number is the k at which it is the variance: its autocorrelation is a half
    # then. That of the observation is the median over all numbers that change.
    # `observations`: `[T + 1, W, D]`, those of W walks; NaN after their end.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        is_seen = np.isfinite(observations)
        counts = is_seen.sum(axis=(0, 1))
        numbers = np.where(is_seen, observations, 0.0)
        means = numbers.sum(axis=(0, 1)) / counts
        variances = (np.where(is_seen, observations - means, 0.0) ** 2).sum(axis=(0, 1)) / counts
        changes = (variances > 0) & np.isfinite(variances)
        if not changes.any():
            return 1.0
        numbers, is_seen, variances = numbers[..., changes], is_seen[..., changes], variances[changes]
        moved = np.zeros((len(numbers), len(variances)))  # within k steps, in units of the spread
        for lag in range(1, len(numbers)):
            both = is_seen[lag:] & is_seen[:-lag]
            squares = np.where(both, numbers[lag:] - numbers[:-lag], 0.0) ** 2
            means = squares.sum(axis=(0, 1)) / np.maximum(both.sum(axis=(0, 1)), 1)
            moved[lag] = np.sqrt(means / variances)
        is_far, columns = moved >= 1, np.arange(len(variances))
        lags = is_far.argmax(axis=0)
        after, before = moved[lags, columns], moved[lags - 1, columns]
        times = np.where(is_far.any(axis=0), lags - (after - 1) / (after - before), len(numbers))
    return float(np.median(times))


_TRAJECTORIES = (
    "Number of sequences per iteration, B. None: those that `max_env_steps` pays for, in two iterations or "
    "more (in one: RandomShooting and MPPI)."
)
_HORIZON = "Environment steps of a sequence, H. None: 8 time scales of the observations, and at least 20."
_DT = (
    "Environment steps for which an action is repeated. The planner still decides at every step, so that the "
    "repetition of an action is planned again. None: a quarter of the time scale of the observations."
)
_BETA = (
    "Colour of the noise, from 0 to 10: 0 is white (MPPI's paper), 1 pink, 2 red (iCEM's paper: 0.25 for "
    "HalfCheetah, 2 to 4 for slower tasks). None: 0.5, and 1 more for each 8 steps of the time scale."
)
_ITERATIONS = "Iterations per decision. None: as many as a budget allows."


Number = TypeVar("Number", int, float)


def _settled(number: Number | None) -> Number:
    """Return a number that a settled planner has."""
    assert number is not None
    return number


@dataclass(frozen=True)
class Shooting(SearchPlanner):
    """The base class of shooting planners, which override a few methods; `ShootingSearch` owns the loop."""

    num_trajectories: int | None = option(128, _TRAJECTORIES)
    horizon: int | None = option(30, _HORIZON)
    discount: float = option(1.0, "Factor per environment step, in [0, 1].")
    dt: int | None = option(1, _DT)

    # Some planners declare these as fields.
    num_iterations = cast("int | None", 1)
    noise_beta = cast("float | None", 0.0)

    # what `num_trajectories` and `num_iterations` are without a budget, where they are left open
    _open_counts: ClassVar[tuple[int, int]] = (128, 1)

    def __post_init__(self) -> None:
        """Check the fields."""
        super().__post_init__()
        self._check_integers(1, "num_trajectories", "num_iterations", "horizon", "dt")
        self._check_numbers(0, 1, "discount")
        if self.noise_beta is not None:
            self._check_numbers(0, MAX_BETA, "noise_beta")

    @property
    def num_actions(self) -> int:
        """Return L."""
        horizon, dt = _settled(self.horizon), _settled(self.dt)
        return -(-horizon // dt)

    @property
    def num_planned(self) -> int | None:
        """Sequences of a decision, at most; None if a budget ends it."""
        planner = self.settled()
        planned = _settled(planner.num_trajectories) * _settled(planner.num_iterations)
        return None if planned >= _UNLIMITED else planned

    def settled(self, timescale: float = 1.0, before: Distribution | None = None) -> Self:
        """Return the planner with numbers for all fields that are left open."""
        # `timescale`: See `timescale_of`. `before`: The distribution of the last decision, which has the
        # numbers that a look has chosen.
        changes: dict[str, Any] = {}
        dt, horizon = self.dt, self.horizon
        if dt is None:
            chosen = max(1, int(timescale * _DT_SCALE))
            changes["dt"] = dt = chosen if before is None else before.dt
        if horizon is None:
            num_actions = math.ceil(max(timescale * _HORIZON_SCALE, _MIN_HORIZON) / dt)
            changes["horizon"] = horizon = dt * (num_actions if before is None else before.num_actions)
        if self.noise_beta is None:
            chosen_beta = min(_BETA_START + timescale * _BETA_SCALE, MAX_BETA)
            changes["noise_beta"] = getattr(before, "noise_beta", chosen_beta)
        if self.num_trajectories is None:
            affordable = None if self.max_env_steps is None else self.max_env_steps // horizon
            changes["num_trajectories"] = self._num_of_first(affordable)
        if self.num_iterations is None:
            has_budget = self.max_env_steps is not None or self.max_seconds is not None
            changes["num_iterations"] = _UNLIMITED if has_budget else self._open_counts[1]
        return replace(self, **changes) if changes else self

    def _num_of_first(self, affordable: int | None) -> int:
        """Return how many sequences the first iteration has, of those that a budget pays for (None: all)."""
        return self._open_counts[0] if affordable is None else max(affordable, 2)

    def check_space(self, action_space: Space[object]) -> None:
        """Check that there is a distribution over actions of the space.

        Raises:
            UnsupportedEnvError: There is none.
        """
        self.settled().initial_distribution(action_space)

    @abstractmethod
    def initial_distribution(self, space: Space[Any]) -> Distribution:
        """Return the distribution that an episode begins with; raise where the space is not supported."""
        # The planner is settled, as for all methods below.

    def propose(
        self, distribution: Distribution, generator: np.random.Generator, iteration: int
    ) -> np.ndarray:
        """Return the sequences `[B, L, *action shape]` to roll out in an iteration, from 0 on."""
        return distribution.sample(generator, _settled(self.num_trajectories))

    @abstractmethod
    def learn(
        self, distribution: Distribution, sequences: np.ndarray, returns: NDArray[np.float64]
    ) -> tuple[Distribution, float]:
        """Return a better distribution, and the return that it is expected to give."""
        # `sequences`: `[B, L, *action shape]`, drawn from `distribution`. `returns`: `[B]`; -inf where a
        # reward was NaN.

    def choose(self, distribution: Distribution, best: np.ndarray) -> np.ndarray:
        """Return the sequence `[L, *action shape]` whose first action is taken: that of the best return."""
        return best

    def final(self, distribution: Distribution, best: np.ndarray) -> Distribution:
        """Return the distribution that a plan holds, given the best sequence of all iterations."""
        return distribution

    def _search_class(self) -> type[Search]:
        return ShootingSearch


class ShootingSearch(Search):
    """One decision of a shooting planner; every batch is one iteration."""

    may_be_cut = takes_parts = True

    def __init__(
        self,
        planner: Shooting,
        env: BatchStepper,
        state: np.ndarray,
        generator: np.random.Generator,
        previous: Plan | None = None,
        info: dict[str, Any] | None = None,
    ) -> None:
        self._env = env
        self._state = state
        self._mask = action_masks(env.action_space, state)
        self._generator = generator
        self._num_iterations = 0
        self._num_rolled_out = 0  # environment steps of all sequences
        self._open = planner  # with what it leaves open; `_planner` is settled
        # A plan of another kind of planner, with other actions or another `dt`, is ignored. What a look has
        # chosen is in the last distribution.
        before: Any = None if previous is None else previous.search_data
        is_usable = isinstance(before, Distribution) and before.space == env.action_space
        if not (is_usable and planner.dt in (None, before.dt) and self._settle(before)):
            self._settle(None)
        is_open = None in (planner.dt, planner.horizon, planner.noise_beta)
        self._needs_look = is_open and not self._is_warm and self._mask is None
        self._first_actions: list[np.ndarray] = []
        self._returns: list[NDArray[np.float64]] = []
        self._num_steps: list[NDArray[np.int64]] = []
        self._best: tuple[np.ndarray, NDArray[np.int64]] | None = None
        self._best_return = -math.inf
        self._value = math.nan

    def _settle(self, before: Any, timescale: float = 1.0) -> bool:
        """Settle the planner, and go on with the last distribution; return whether it is of the same kind."""
        planner = self._planner = self._open.settled(timescale, before)
        first = planner.initial_distribution(self._env.action_space)
        self._is_warm = type(before) is type(first)
        self._distribution: Distribution = first.shifted(before) if self._is_warm else first
        self._index = self._distribution.action_index(_settled(planner.horizon))
        return self._is_warm

    def _look(self) -> Generator[StepRequest, Any, float]:
        """Take random walks, and return the time scale of the observations; a generator."""
        planner, env, num_steps = self._planner, self._env, _WALK_STEPS
        if planner.max_env_steps is not None:
            num_steps = min(num_steps, int(planner.max_env_steps * _WALK_SHARE) // _NUM_WALKS)
        if num_steps < 2 or not isinstance(env.observation_space, spaces.Box):
            return 1.0
        end = time.perf_counter() + _WALK_SHARE * (planner.max_seconds or math.inf)
        generator = self._generator.spawn(1)[0]
        walks = replace(planner, dt=1, horizon=num_steps).initial_distribution(env.action_space)
        actions = walks.sample(generator, _NUM_WALKS)
        states, rows = np.repeat(self._state, _NUM_WALKS), np.arange(_NUM_WALKS)
        size = math.prod(env.observation_space.shape)
        numbers = slice(None, None, -(-size // _MAX_NUMBERS) or None)
        first = np.asarray(env.observe(self._state)).reshape(-1)[numbers]
        seen = np.full((num_steps + 1, _NUM_WALKS, len(first)), np.nan)
        seen[0] = first
        for step in range(num_steps):
            seeds = None
            if env.is_stochastic:
                seeds = generator.integers(0, 2**64, len(rows), dtype=np.uint64)
            out = yield StepRequest(actions[rows, step], states, 1, seeds)
            seen[step + 1, rows] = np.asarray(out.observations).reshape(len(rows), -1)[:, numbers]
            going_on = ~(out.terminated | out.truncated)
            rows, states = rows[going_on], out.new_states[going_on]
            if not len(rows) or time.perf_counter() > end:
                break
        return timescale_of(seen[: step + 2])

    def simulate(self) -> Simulation:
        """Draw sequences, roll them out, and fit the distribution to their returns."""
        if self._needs_look:
            self._settle(None, (yield from self._look()))
            self._needs_look = False
        planner, limit = self._planner, self._open.max_env_steps
        if self._open.num_iterations is None and limit is not None and self.num_simulations:
            # Where less than half of an iteration is left, it would cost more than it may.
            each = self._num_rolled_out / self.num_simulations
            if limit - self.num_env_steps < each * _settled(planner.num_trajectories) / 2:
                self.stop_reason = "max_env_steps"
                return
        if self._mask is not None:
            self._distribution = self._distribution.restricted(self._mask[0])
        sequences = planner.propose(self._distribution, self._generator, self._num_iterations)
        num_rows, seeds = len(sequences), None
        if self._env.is_stochastic:
            # A seed for each sequence, so that chance is sampled and never foreseen.
            seeds = self._generator.integers(0, 2**64, num_rows, dtype=np.uint64)
        states = np.repeat(self._state, num_rows)
        counts = None  # `[B, L]`, the environment steps of each action; None: as planned
        if self._mask is None:
            actions = sequences[:, self._index]
            out = yield RolloutRequest(
                states, _settled(planner.horizon), actions, seeds=seeds, discount=planner.discount
            )
            # A NaN must not win, nor make the mean of other returns NaN.
            returns, num_steps = np.where(np.isnan(out.returns), -np.inf, out.returns), out.num_steps
            if num_steps.min() < 0:  # time was up: those that were rolled out count
                is_complete = num_steps >= 0
                parts = sequences, returns, num_steps
                sequences, returns, num_steps = (part[is_complete] for part in parts)
                if not len(sequences):
                    return
        else:
            returns, counts = yield from self._take_legal(sequences, states, seeds)
            num_steps = counts.sum(axis=1)
        self._first_actions.append(sequences[:, 0])
        self._returns.append(returns)
        self._num_steps.append(num_steps)
        self._num_rolled_out += int(num_steps.sum())
        row = int(returns.argmax())
        if self._best is None or returns[row] > self._best_return:
            best_counts = np.bincount(self._index[: num_steps[row]]) if counts is None else counts[row]
            self._best = sequences[row].copy(), best_counts[: np.count_nonzero(best_counts)]
            self._best_return = float(returns[row])
        if 2 * len(sequences) >= num_rows:  # a few of them, which chance has chosen, would lead astray
            self._distribution, self._value = planner.learn(self._distribution, sequences, returns)
        self.num_simulations += len(sequences)
        self._num_iterations += 1
        if self._num_iterations == planner.num_iterations:
            self.stop_reason = self.stop_reason or "num_iterations"

    def _take_legal(
        self, sequences: np.ndarray, states: np.ndarray, seeds: NDArray[np.uint64] | None
    ) -> Generator[StepRequest, Any, tuple[NDArray[np.float64], NDArray[np.int64]]]:
        """Take the actions of sequences one after another, and replace illegal ones by legal ones."""
        # What is legal is known only where a sequence has led. Rewards within the steps of one action are not
        # discounted against each other.
        # `sequences`: `[B, L, *action shape]`, written. `seeds`: `[B]`, of the first steps.
        # Returns the returns `[B]`, and the environment steps of each action, `[B, L]`.
        space, num_rows = self._env.action_space, len(sequences)
        returns, counts = np.zeros(num_rows), np.zeros(sequences.shape[:2], np.int64)
        weights, ended = np.ones(num_rows), np.zeros(num_rows, np.bool_)
        num_repeats = np.bincount(self._index, minlength=sequences.shape[1])  # as long as it is legal
        for index in np.flatnonzero(num_repeats).tolist():
            masks = action_masks(space, states)
            if masks is not None:
                drawn = self._distribution.sample_legal(self._generator, index, masks)
                illegal = ~(ended | are_legal(space, masks, sequences[:, index]))
                sequences[illegal, index] = drawn[illegal]
            out = yield StepRequest(sequences[:, index], states, int(num_repeats[index]), seeds)
            returns += weights * out.rewards
            counts[:, index] = out.infos["num_steps"]
            weights *= float(self._planner.discount) ** counts[:, index]
            states, ended = out.new_states, out.terminated | out.truncated
            if ended.all():
                break
            if seeds is not None:
                seeds = self._generator.integers(0, 2**64, num_rows, dtype=np.uint64)
        return returns, counts

    def plan(self) -> Plan:
        """Return the decision, with the statistics of all iterations."""
        if self._best is None:
            return self._plan_without()
        best, best_num_steps = self._best
        space, returns = self._env.action_space, np.concatenate(self._returns)
        first_actions = np.concatenate(self._first_actions)
        with np.errstate(invalid="ignore"):  # the standard error of infinite returns is NaN
            statistics = action_statistics(space, first_actions, returns)
        if self._mask is not None:
            self._distribution = self._distribution.restricted(self._mask[0])
        has_learned = not math.isnan(self._value)
        chosen = self._planner.choose(self._distribution, best) if has_learned or self._is_warm else best
        return Plan(
            action=chosen[0],
            value=self._value if has_learned else self._best_return,
            root_actions=statistics.actions,
            visit_counts=statistics.counts,
            action_values=statistics.means,
            standard_errors=statistics.standard_errors,
            best_actions=best[: len(best_num_steps)],
            best_num_steps=best_num_steps,
            best_return=self._best_return,
            depth_histogram=np.bincount(np.concatenate(self._num_steps)),
            search_data=self._planner.final(self._distribution, best),
        )

    def _plan_without(self) -> Plan:
        """Return the decision where no sequence was complete in time: the last one goes on."""
        distribution = self._distribution
        if isinstance(distribution, Uniform):
            return Plan(draw_action(self._env, self._state, self._generator), math.nan)
        if self._mask is not None:
            distribution = distribution.restricted(self._mask[0])
        # Without a complete look, its numbers are chosen by none: the next decision looks again.
        kept = None if self._needs_look else distribution
        return Plan(distribution.mode()[0], math.nan, search_data=kept)


def check_std(planner: Planner, name: str) -> None:
    """Check a standard deviation (a number or an array), and store it as a number or as tuples."""
    # Numbers and tuples can be hashed and compared.
    value = getattr(planner, name)
    try:
        std = np.array(value, np.float64)
    except (TypeError, ValueError):
        std = np.array(np.nan)
    if isinstance(value, bool) or not (std.size and (std > 0).all() and np.isfinite(std).all()):
        raise ValueError(f"{name}: expected a number above 0, or an array of them, got {value!r}")
    object.__setattr__(planner, name, _as_tuples(std.tolist()))


def _as_tuples(value: object) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


_FIRST_PART = 64  # sequences that RandomShooting draws first, if time is limited
_DECAY = 1.25  # factor by which iCEM reduces the number of sequences after each iteration, as in the paper


# -- Random shooting, CEM and iCEM ---------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomShooting(Shooting):
    """Takes the first action of the best of many uniformly random sequences.

    It reuses nothing of the last decision. In a random environment the best sequence may be one that was
    lucky.

    Raises:
        ValueError: A number is out of range.
    """

    # With `max_seconds`, the sequences are drawn and rolled out in parts, each twice as large as the one
    # before: to draw thousands of them takes milliseconds, which are lost where only a few are rolled out.
    # Where steps are not random and the time suffices, the plan is that without a limit.

    @property
    def num_iterations(self) -> int:  # type: ignore[override] # a constant of the base class
        """Number of parts."""
        if self.max_seconds is None:
            return 1
        return max(1, (int(_settled(self.num_trajectories)) // _FIRST_PART).bit_length())

    @property
    def num_planned(self) -> int | None:
        """Sequences of a decision, at most."""
        return self.settled().num_trajectories

    def initial_distribution(self, space: Space[object]) -> Uniform:
        """Return the uniform distribution."""
        check_action_space(space)
        return Uniform.initial(space, self.num_actions, _settled(self.dt))

    def propose(
        self, distribution: Distribution, generator: np.random.Generator, iteration: int
    ) -> np.ndarray:
        """Return the sequences of a part; the last one has all that are left."""
        num_rows = _settled(self.num_trajectories) - _FIRST_PART * (2**iteration - 1)
        if iteration < self.num_iterations - 1:
            num_rows = _FIRST_PART << iteration
        return distribution.sample(generator, num_rows)

    def learn(
        self, distribution: Distribution, sequences: np.ndarray, returns: NDArray[np.float64]
    ) -> tuple[Distribution, float]:
        """Return the distribution: there is nothing to learn. The best sequence gives its own return."""
        return distribution, math.nan

    def final(self, distribution: Distribution, best: np.ndarray) -> Distribution:
        """Return the distribution with the best sequence."""
        return distribution.refit(best[None], 0.0)


_ELITES = "Number of the best sequences of an iteration that it learns from, K. None: a quarter of them."


@dataclass(frozen=True)
class CrossEntropy(Shooting):
    """The base class of CEM and iCEM, which fit the distribution to the best sequences, the elites."""

    num_iterations: int | None = option(4, _ITERATIONS)
    num_elites: int | None = option(8, _ELITES)
    initial_std: Deviation = option(
        0.5,
        "Standard deviation at the beginning of a decision, as a fraction of half the range of a Box. "
        "Numbers `[*action shape]` are in units of the action, and need no bounds.",
    )
    momentum: float = option(
        0.1, "Share of the old mean and standard deviation (or probabilities) in the new ones, in [0, 1]."
    )

    def __post_init__(self) -> None:
        """Check the fields."""
        super().__post_init__()
        self._check_integers(2, "num_elites")
        check_std(self, "initial_std")
        self._check_numbers(0, 1, "momentum")

    def _check_elites(self, factor: int) -> None:
        """Check that an iteration has at least so many times the number of elites, if both are given."""
        num_trajectories, num_elites = self.num_trajectories, self.num_elites
        if num_trajectories is None or num_elites is None:
            return
        if factor * num_elites > num_trajectories:
            at_most = "at most" if factor == 1 else "at most half of"
            raise ValueError(
                f"num_elites: expected {at_most} num_trajectories ({num_trajectories}), got {num_elites}"
            )

    def _num_of_first(self, affordable: int | None) -> int:
        wanted = self._open_counts[0]
        if affordable is not None:  # two iterations at least; of many sequences, most serve to repeat it
            wanted = min(affordable // 2, math.isqrt(10 * affordable))
        return max(wanted, 2 * (self.num_elites or 2))

    def settled(self, timescale: float = 1.0, before: Distribution | None = None) -> Self:
        """Return the planner with numbers for all fields that are left open."""
        planner = super().settled(timescale, before)
        if planner.num_elites is not None:
            return planner
        return replace(planner, num_elites=max(2, _settled(planner.num_trajectories) // 4))

    def learn(
        self, distribution: Distribution, sequences: np.ndarray, returns: NDArray[np.float64]
    ) -> tuple[Distribution, float]:
        """Return the distribution fitted to the elites, and their mean return."""
        elites = np.argsort(-returns, kind="stable")[: _settled(self.num_elites)]  # of equals the first
        return distribution.refit(sequences[elites], self.momentum), float(returns[elites].mean())


@dataclass(frozen=True)
class CEM(CrossEntropy):
    """The cross-entropy method (Rubinstein and Kroese 2004; with categories too, Botev et al. 2013).

    In each iteration it draws sequences and fits the distribution to the best of them. Box actions are
    normal, with a mean and a standard deviation per step and number; those of Discrete, MultiDiscrete
    and MultiBinary spaces have a probability per step and category. The next decision begins with the
    mean shifted by one step, and with the initial standard deviation again.

    Raises:
        ValueError: A number is out of range.
    """

    num_trajectories: int | None = option(64, _TRAJECTORIES)
    execute: Literal["mean", "best"] = option(
        "mean",
        '"mean" takes the first action of the mean (of the most likely sequence, where actions are '
        'discrete), "best" that of the best sequence.',
    )

    _open_counts = 64, 4

    def __post_init__(self) -> None:
        """Check the fields."""
        super().__post_init__()
        self._check_elites(1)
        if self.execute not in ("mean", "best"):
            raise ValueError(f"execute: expected 'mean' or 'best', got {self.execute!r}")

    def initial_distribution(self, space: Space[object]) -> Distribution:
        """Return normal distributions for a Box, else categorical ones."""
        if isinstance(space, spaces.Box):
            dt = _settled(self.dt)
            return Gaussian.initial(space, self.num_actions, dt, self.initial_std, 0.0, "initial_std")
        check_action_space(space)
        return Categorical.initial(space, self.num_actions, _settled(self.dt))

    def choose(self, distribution: Distribution, best: np.ndarray) -> np.ndarray:
        """Return the sequence that `execute` asks for."""
        return best if self.execute == "best" else distribution.mode()


@dataclass(frozen=True)
class ICEM(CrossEntropy):
    """iCEM (Pinneri et al. 2020, "Sample-efficient Cross-Entropy Method for Real-time Planning").

    It differs from CEM on a Box in five points: the noise is coloured, so that sequences push in one
    direction for a while; elites are rolled out again in the next iteration and, shifted by one step, in the
    next decision; later iterations have fewer sequences (each 1.25 times fewer than the one before, but
    at least 2 K); the mean is one of the sequences of the last iteration; and the first action of the
    best sequence is taken, not that of the mean.

    What is left open is chosen at the first decision of an episode, by a look: eight random walks of at most
    48 steps, which show how fast observations change. The next decisions go on with it.

    Repeated elites and the mean count as sequences of an iteration. Elites are rolled out again because in a
    random environment their return is partly luck. There the best sequence may still be one that was lucky;
    the mean, which `CEM` takes, depends less on luck.

    Raises:
        ValueError: A number is out of range.
    """

    num_trajectories: int | None = option(None, _TRAJECTORIES)
    horizon: int | None = option(None, _HORIZON)
    dt: int | None = option(None, _DT)
    num_iterations: int | None = option(None, _ITERATIONS)
    num_elites: int | None = option(None, _ELITES)
    noise_beta: float | None = option(None, _BETA)
    reuse: float = option(0.3, "Fraction of the elites that is rolled out again, in [0, 1].")

    _open_counts = 40, 3

    def __post_init__(self) -> None:
        """Check the fields."""
        super().__post_init__()
        self._check_elites(2)
        self._check_numbers(0, 1, "reuse")

    def initial_distribution(self, space: Space[object]) -> Gaussian:
        """Return normal distributions with coloured noise."""
        return Gaussian.initial(
            space,
            self.num_actions,
            _settled(self.dt),
            self.initial_std,
            _settled(self.noise_beta),
            "initial_std",
        )

    def propose(
        self, distribution: Distribution, generator: np.random.Generator, iteration: int
    ) -> np.ndarray:
        """Return the reused elites, in the last iteration the mean, and newly drawn sequences."""
        num_trajectories, num_elites = _settled(self.num_trajectories), _settled(self.num_elites)
        num_iterations = _settled(self.num_iterations)
        known = [distribution.elites[: round(self.reuse * num_elites)]]
        # Which one is the last is not known where a budget ends the decision: all after the first have it.
        if iteration == num_iterations - 1 or (iteration and num_iterations == _UNLIMITED):
            known.append(distribution.mode()[None])
        total = max(round(num_trajectories / _DECAY ** min(iteration, 100)), 2 * num_elites)
        drawn = distribution.sample(generator, total - sum(map(len, known)))
        return np.concatenate([*known, drawn])


# -- MPPI: sequences weighted by the exponential of their return ---------------------------------------------


def mppi_weights(returns: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    """Return weights in proportion to `exp(return / temperature)`, with a sum of 1."""
    # `returns`: `[B]`.
    best = returns.max()
    # inf - inf is NaN: where the best return is infinite, the rows with that return share the weight.
    weights = np.exp((returns - best) / temperature) if np.isfinite(best) else (returns == best) * 1.0
    normalised: NDArray[np.float64] = weights / weights.sum()
    return normalised


def weighted_mean(samples: np.ndarray, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of samples `[B, ...]`."""
    # With the weights of MPPI, a cost `J = u'Hu/2 + g'u` (the return is -J) and samples of N(mu, Sigma) it
    # converges to `(Sigma^-1 + H / temperature)^-1 (Sigma^-1 mu - g / temperature)`.
    mean: NDArray[np.float64] = np.einsum("b,b...->...", weights, samples.astype(np.float64))
    return mean


@dataclass(frozen=True)
class MPPI(Shooting):
    """Model predictive path integral control (Williams et al. 2017, "Information Theoretic MPC").

    In each iteration it draws sequences about its mean, always with the same standard deviation, and moves
    the mean to their average, weighted by `exp(return / temperature)`. It takes the first action of the mean;
    the next decision begins with the mean shifted by one step. It supports Box actions.

    What is left open is chosen by a look, as by `ICEM`.

    Raises:
        ValueError: A number is out of range.
    """

    num_trajectories: int | None = option(None, _TRAJECTORIES)
    horizon: int | None = option(None, _HORIZON)
    dt: int | None = option(None, _DT)
    num_iterations: int | None = option(None, _ITERATIONS)
    temperature: float = option(0.15, "Above 0; with a lower one, fewer sequences determine the mean.")
    relative_temperature: bool = option(
        True,
        "Whether the temperature is in units of the standard deviation of the returns of the iteration, so "
        "that it does not depend on the scale of the rewards; else it is in units of the return, as in the "
        "paper (lambda).",
    )
    std: Deviation = option(
        0.6,
        "Standard deviation of the noise, as a fraction of half the range of a Box. "
        "Numbers `[*action shape]` are in units of the action, and need no bounds.",
    )
    noise_beta: float | None = option(None, _BETA)
    fine: float = option(
        1 / 3,
        "Part of the sequences that are drawn with a quarter of `std`, for small corrections, in [0, 1]. "
        "0: the paper, which moves the mean farther in an iteration.",
    )

    _open_counts = 64, 1

    def __post_init__(self) -> None:
        """Check the fields."""
        super().__post_init__()
        self._check_numbers(0, math.inf, "temperature")
        self._check_numbers(0, 1, "fine")
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature: expected a number above 0, got {self.temperature!r}")
        check_std(self, "std")

    def initial_distribution(self, space: Space[object]) -> Gaussian:
        """Return normal distributions, whose standard deviation does not change."""
        dt = _settled(self.dt)
        return Gaussian.initial(space, self.num_actions, dt, self.std, _settled(self.noise_beta), "std")

    def propose(
        self, distribution: Distribution, generator: np.random.Generator, iteration: int
    ) -> np.ndarray:
        """Return sequences about the mean, some of them near to it."""
        assert isinstance(distribution, Gaussian)
        num_rows = _settled(self.num_trajectories)
        num_fine = int(self.fine * num_rows)
        near = replace(distribution, std=distribution.std / 4)
        drawn = distribution.sample(generator, num_rows - num_fine)
        return np.concatenate([near.sample(generator, num_fine), drawn]) if num_fine else drawn

    def learn(
        self, distribution: Distribution, sequences: np.ndarray, returns: NDArray[np.float64]
    ) -> tuple[Distribution, float]:
        """Return the distribution with the weighted mean, and the weighted mean return."""
        assert isinstance(distribution, Gaussian)
        temperature = self.temperature
        if self.relative_temperature:
            finite = returns[np.isfinite(returns)]
            # Where all returns are equal, so are the weights, at any temperature.
            temperature *= (float(finite.std()) if len(finite) else 0.0) or 1.0
        weights = mppi_weights(returns, temperature)
        counts = weights > 0  # 0 * -inf is NaN
        value = float((weights[counts] * returns[counts]).sum())
        return replace(distribution, mean=weighted_mean(sequences, weights)), value

    def choose(self, distribution: Distribution, best: np.ndarray) -> np.ndarray:
        """Return the mean."""
        return distribution.mode()
