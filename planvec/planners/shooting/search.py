"""The base class of shooting planners: draw action sequences, roll them out whole, draw better ones.

    Distribution --sample--> sequences [B, L] --rollout_batch--> returns [B]
         ^                                                          |
         +--------------------------- learn <-----------------------+

Sequences are drawn in this process, and each is rolled out by one worker. Letters: B sequences, L actions of
a sequence, H environment steps, K elites.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.planners.base import Planner, option
from planvec.planners.plan import Plan
from planvec.planners.root_actions import action_statistics
from planvec.planners.search import RolloutRequest, Search, Simulation
from planvec.planners.shooting.distributions import Distribution, take_legal
from planvec.rows import BatchStepper, action_masks

# standard deviation: a fraction of half the range of a Box, or `[*action shape]` in units of the action
Deviation = float | Sequence[Any] | NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Shooting(Planner):
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
        """Return the distribution that an episode begins with.

        Args:
            space: The space of one action.

        Raises:
            UnsupportedEnvError: The planner does not support the action space.
        """

    def propose(
        self, distribution: Distribution, generator: np.random.Generator, iteration: int
    ) -> NDArray[Any]:
        """Return the sequences `[B, L, *action shape]` to roll out.

        Args:
            distribution: The present distribution.
            generator: The source of every random choice.
            iteration: From 0 to `num_iterations - 1`.
        """
        return distribution.sample(generator, self.num_trajectories)

    @abstractmethod
    def learn(
        self, distribution: Distribution, sequences: NDArray[Any], returns: NDArray[np.float64]
    ) -> tuple[Distribution, float]:
        """Return a better distribution, and the return that it is expected to give.

        Args:
            distribution: The distribution of the sequences.
            sequences: `[B, L, *action shape]`.
            returns: `[B]`; -inf where a reward was NaN.
        """

    def choose(self, distribution: Distribution, best: NDArray[Any]) -> NDArray[Any]:
        """Return the sequence `[L, *action shape]` whose first action is taken: the best one.

        Args:
            distribution: The last distribution.
            best: `[L, *action shape]`, the sequence with the highest return.
        """
        return best

    def begin(
        self,
        env: BatchStepper,
        state: NDArray[Any],
        generator: np.random.Generator,
        *,
        previous: Plan | None = None,
        info: dict[str, Any] | None = None,
    ) -> Search:
        """Return a new search at a state; the arguments are those of `Planner.begin`.

        A `previous` plan of another kind of planner, with other actions or another `dt` is ignored.
        """
        distribution = self.initial_distribution(env.action_space)
        if previous is not None and distribution.can_continue(previous.search_data):
            distribution = distribution.shifted(previous.search_data)
        return ShootingSearch(self, env, state, generator, distribution)


class ShootingSearch(Search):
    """One decision of a shooting planner; every batch is one iteration."""

    def __init__(
        self,
        planner: Shooting,
        env: BatchStepper,
        state: NDArray[Any],
        generator: np.random.Generator,
        distribution: Distribution,
    ) -> None:
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
        if self._mask is None:
            actions = sequences[:, self._index]
            out = yield RolloutRequest(
                states, planner.horizon, actions, seeds=seeds, discount=planner.discount
            )
            # A NaN must not win, nor make the mean of other returns NaN.
            returns = np.where(np.isnan(out.returns), -np.inf, out.returns)
            self._record(sequences, returns, out.num_steps, None)
        else:
            returns, counts = yield from take_legal(
                *(self._env, self._distribution, self._generator, planner.discount),
                *(np.bincount(self._index, minlength=sequences.shape[1]), sequences, states, seeds),
            )
            self._record(sequences, returns, counts.sum(axis=1), counts)
        self._distribution, self._value = planner.learn(self._distribution, sequences, returns)
        self.num_simulations += num_rows
        self._num_iterations += 1
        if self._num_iterations == planner.num_iterations:
            self.stop_reason = "num_iterations"

    def _record(
        self,
        sequences: NDArray[Any],  # `[B, L, *action shape]`
        returns: NDArray[np.float64],  # `[B]`
        num_steps: NDArray[np.int64],  # `[B]`
        counts: NDArray[np.int64] | None,  # `[B, L]`, the environment steps of each action; None: as planned
    ) -> None:
        """Keep what `plan` needs of an iteration."""
        self._first_actions.append(sequences[:, 0])
        self._returns.append(returns)
        self._num_steps.append(num_steps)
        row = int(returns.argmax())
        if self._best is None or returns[row] > self._best_return:
            best_counts = np.bincount(self._index[: num_steps[row]]) if counts is None else counts[row]
            self._best = sequences[row].copy(), best_counts[: np.count_nonzero(best_counts)]
            self._best_return = float(returns[row])

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


def best_rows(returns: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Return the `count` rows with the highest returns, best first; of equals the first."""
    return np.argsort(-returns, kind="stable")[:count]
