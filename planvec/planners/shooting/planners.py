"""Random shooting, CEM and iCEM. Letters: B sequences, H environment steps of a sequence, K elites."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from planvec.planners.base import Planner, SearchPlanner, option
from planvec.planners.plan import Plan
from planvec.planners.root_actions import action_statistics, check_action_space
from planvec.planners.search import RolloutRequest, Search, Simulation, StepRequest
from planvec.planners.shooting.distributions import MAX_BETA, Categorical, Distribution, Gaussian, Uniform
from planvec.rows import BatchStepper, action_masks, are_legal

# -- The base class of shooting planners: draw action sequences, roll them out whole, draw better ones.
#
#     Distribution --sample--> sequences [B, L] --rollout_batch--> returns [B]
#          ^                                                          |
#          +--------------------------- learn <-----------------------+
#
# Sequences are drawn in this process, and each is rolled out by one worker. Letters: B sequences, L actions
# of a sequence, H environment steps, K elites.

# standard deviation: a fraction of half the range of a Box, or `[*action shape]` in units of the action
Deviation = float | Sequence[Any] | NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Shooting(SearchPlanner):
    """The base class of shooting planners, which override a few methods; `ShootingSearch` owns the loop."""

    num_trajectories: int = option(128, "Number of sequences per iteration, B.")
    horizon: int = option(30, "Environment steps of a sequence, H.")
    discount: float = option(1.0, "Factor per environment step, in [0, 1].")
    dt: int = option(
        1,
        "Environment steps for which an action is repeated. The planner still decides at every step, so "
        "that the repetition of an action is planned again.",
    )

    num_iterations = 1  # planners that learn declare it as a field

    def __post_init__(self) -> None:
        """Check the fields."""
        super().__post_init__()
        self._check_integers(1, "num_trajectories", "num_iterations", "horizon", "dt", optional=False)
        self._check_numbers(0, 1, "discount")

    @property
    def num_actions(self) -> int:
        """Return L."""
        return -(-self.horizon // self.dt)

    @property
    def num_planned(self) -> int:
        """Sequences of a decision, at most."""
        return self.num_trajectories * self.num_iterations

    def check_space(self, action_space: Space[Any]) -> None:
        """Check that there is a distribution over actions of the space.

        Raises:
            UnsupportedEnvError: There is none.
        """
        self.initial_distribution(action_space)

    @abstractmethod
    def initial_distribution(self, space: Space[Any]) -> Distribution:
        """Return the distribution that an episode begins with; raise where the space is not supported."""

    def propose(
        self, distribution: Distribution, generator: np.random.Generator, iteration: int
    ) -> NDArray[Any]:
        """Return the sequences `[B, L, *action shape]` to roll out in an iteration, from 0 on."""
        return distribution.sample(generator, self.num_trajectories)

    @abstractmethod
    def learn(
        self, distribution: Distribution, sequences: NDArray[Any], returns: NDArray[np.float64]
    ) -> tuple[Distribution, float]:
        """Return a better distribution, and the return that it is expected to give."""
        # `sequences`: `[B, L, *action shape]`, drawn from `distribution`. `returns`: `[B]`; -inf where a
        # reward was NaN.

    def choose(self, distribution: Distribution, best: NDArray[Any]) -> NDArray[Any]:
        """Return the sequence `[L, *action shape]` whose first action is taken: that of the best return."""
        return best

    def _search_class(self) -> type[Search]:
        """Return the class of the search."""
        return ShootingSearch


class ShootingSearch(Search):
    """One decision of a shooting planner; every batch is one iteration."""

    def __init__(
        self,
        planner: Shooting,
        env: BatchStepper,
        state: NDArray[Any],
        generator: np.random.Generator,
        previous: Plan | None,
        info: dict[str, Any] | None,
    ) -> None:
        # A plan of another kind of planner, with other actions or another `dt`, is ignored.
        distribution = planner.initial_distribution(env.action_space)
        before: Any = None if previous is None else previous.search_data
        is_alike = type(before) is type(distribution)
        if is_alike and (before.dt, before.space) == (distribution.dt, distribution.space):
            distribution = distribution.shifted(before)
        self._planner = planner
        self._env = env
        self._state = state
        self._mask = action_masks(env.action_space, state)
        self._generator = generator
        self._distribution = distribution
        self._index = distribution.action_index(planner.horizon)
        self._num_iterations = 0
        self._first_actions: list[NDArray[Any]] = []
        self._returns: list[NDArray[np.float64]] = []
        self._num_steps: list[NDArray[np.int64]] = []
        self._best: tuple[NDArray[Any], NDArray[np.int64]] | None = None
        self._best_return = -math.inf
        self._value = math.nan

    def simulate(self) -> Simulation:
        """Draw sequences, roll them out, and fit the distribution to their returns."""
        planner = self._planner
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
                states, planner.horizon, actions, seeds=seeds, discount=planner.discount
            )
            # A NaN must not win, nor make the mean of other returns NaN.
            returns, num_steps = np.where(np.isnan(out.returns), -np.inf, out.returns), out.num_steps
        else:
            returns, counts = yield from self._take_legal(sequences, states, seeds)
            num_steps = counts.sum(axis=1)
        self._first_actions.append(sequences[:, 0])
        self._returns.append(returns)
        self._num_steps.append(num_steps)
        row = int(returns.argmax())
        if self._best is None or returns[row] > self._best_return:
            best_counts = np.bincount(self._index[: num_steps[row]]) if counts is None else counts[row]
            self._best = sequences[row].copy(), best_counts[: np.count_nonzero(best_counts)]
            self._best_return = float(returns[row])
        self._distribution, self._value = planner.learn(self._distribution, sequences, returns)
        self.num_simulations += num_rows
        self._num_iterations += 1
        if self._num_iterations == planner.num_iterations:
            self.stop_reason = "num_iterations"

    def _take_legal(
        self, sequences: NDArray[Any], states: NDArray[Any], seeds: NDArray[np.uint64] | None
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
        assert self._best is not None
        best, best_num_steps = self._best
        space, returns = self._env.action_space, np.concatenate(self._returns)
        first_actions = np.concatenate(self._first_actions)
        with np.errstate(invalid="ignore"):  # the standard error of infinite returns is NaN
            statistics = action_statistics(space, first_actions, returns)
        if self._mask is not None:
            self._distribution = self._distribution.restricted(self._mask[0])
        return Plan(
            action=self._planner.choose(self._distribution, best)[0],
            value=self._value,
            root_actions=statistics.actions,
            visit_counts=statistics.counts,
            action_values=statistics.means,
            standard_errors=statistics.standard_errors,
            best_actions=best[: len(best_num_steps)],
            best_num_steps=best_num_steps,
            best_return=self._best_return,
            depth_histogram=np.bincount(np.concatenate(self._num_steps)),
            search_data=self._distribution,
        )


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


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


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

    def initial_distribution(self, space: Space[Any]) -> Uniform:
        """Return the uniform distribution."""
        check_action_space(space)
        return Uniform.initial(space, self.num_actions, self.dt)

    def learn(
        self, distribution: Distribution, sequences: NDArray[Any], returns: NDArray[np.float64]
    ) -> tuple[Distribution, float]:
        """Return the distribution with the best sequence, and its return."""
        best = np.argsort(-returns, kind="stable")[:1]
        return distribution.refit(sequences[best], 0.0), float(returns[best[0]])


@dataclass(frozen=True)
class CrossEntropy(Shooting):
    """The base class of CEM and iCEM, which fit the distribution to the best sequences, the elites."""

    num_iterations: int = option(4, "Iterations per decision.")
    num_elites: int = option(8, "Number of the best sequences of an iteration that it learns from, K.")
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
        self._check_integers(2, "num_elites", optional=False)
        check_std(self, "initial_std")
        self._check_numbers(0, 1, "momentum")

    def learn(
        self, distribution: Distribution, sequences: NDArray[Any], returns: NDArray[np.float64]
    ) -> tuple[Distribution, float]:
        """Return the distribution fitted to the elites, and their mean return."""
        elites = np.argsort(-returns, kind="stable")[: self.num_elites]  # of equals the first
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

    num_trajectories: int = option(64, "Number of sequences per iteration, B.")
    num_elites: int = option(
        8, "Number of the best sequences of an iteration that it learns from, K: from 2 to B."
    )
    execute: Literal["mean", "best"] = option(
        "mean",
        '"mean" takes the first action of the mean (of the most likely sequence, where actions are '
        'discrete), "best" that of the best sequence.',
    )

    def __post_init__(self) -> None:
        """Check the fields."""
        super().__post_init__()
        if self.num_elites > self.num_trajectories:
            raise ValueError(
                f"num_elites: expected at most num_trajectories ({self.num_trajectories}), "
                f"got {self.num_elites}"
            )
        if self.execute not in ("mean", "best"):
            raise ValueError(f"execute: expected 'mean' or 'best', got {self.execute!r}")

    def initial_distribution(self, space: Space[Any]) -> Distribution:
        """Return normal distributions for a Box, else categorical ones."""
        if isinstance(space, spaces.Box):
            return Gaussian.initial(space, self.num_actions, self.dt, self.initial_std, 0.0, "initial_std")
        check_action_space(space)
        return Categorical.initial(space, self.num_actions, self.dt)

    def choose(self, distribution: Distribution, best: NDArray[Any]) -> NDArray[Any]:
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
    noise_beta: float = option(
        1.0,
        "Colour of the noise, from 0 to 10: 0 is white, 1 pink, 2 red (the paper: 0.25 for HalfCheetah, 2 "
        "to 4 for slower tasks).",
    )
    reuse: float = option(0.3, "Fraction of the elites that is rolled out again, in [0, 1].")

    def __post_init__(self) -> None:
        """Check the fields."""
        super().__post_init__()
        if 2 * self.num_elites > self.num_trajectories:
            raise ValueError(
                f"num_elites: expected at most half of num_trajectories ({self.num_trajectories}), "
                f"got {self.num_elites}"
            )
        self._check_numbers(0, 1, "reuse")
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
        "Standard deviation of the noise, as a fraction of half the range of a Box. "
        "Numbers `[*action shape]` are in units of the action, and need no bounds.",
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
            finite = returns[np.isfinite(returns)]
            # Where all returns are equal, so are the weights, at any temperature.
            temperature *= (float(finite.std()) if len(finite) else 0.0) or 1.0
        mean = mppi_update(sequences, returns, temperature)
        weights = mppi_weights(returns, temperature)
        counts = weights > 0  # 0 * -inf is NaN
        return replace(distribution, mean=mean), float((weights[counts] * returns[counts]).sum())

    def choose(self, distribution: Distribution, best: NDArray[Any]) -> NDArray[Any]:
        """Return the mean."""
        return distribution.mode()
