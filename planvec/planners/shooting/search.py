"""What shooting planners share: draw action sequences, roll them out whole, draw better ones.

    Distribution --sample--> sequences [B, L] --rollout_batch--> returns [B]
         ^                                                          |
         +--------------------------- learn <-----------------------+

Everything is drawn in this process, and every sequence is rolled out by one worker. Letters: B sequences,
L actions of one, H environment steps, K elites.
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

from planvec.planners.base import Planner
from planvec.planners.driver import RolloutRequest, Search, Simulation
from planvec.planners.plan import Plan
from planvec.planners.root_actions import standard_errors, tally
from planvec.planners.shooting.distributions import Distribution
from planvec.rows import BatchStepper

__all__ = ["Deviation", "Shooting", "ShootingSearch", "best_rows", "fixed_std"]

Deviation = float | Sequence[Any] | NDArray[np.floating[Any]]
"""Of the noise: a fraction of half the range of a Box, or one per number of the action in its own units."""


@dataclass(frozen=True)
class Shooting(Planner):
    """What shooting planners share: a small set of methods to override; `ShootingSearch` owns the loop.

    Args:
        num_trajectories: B, sequences per iteration.
        horizon: H, environment steps of a sequence.
        discount: Factor per environment step.
        dt: For how many environment steps an action is held. The planner still decides at every step:
            the rest of the time of an action is planned anew.
    """

    num_trajectories: int = 128
    horizon: int = 30
    discount: float = 1.0
    dt: int = 1

    num_iterations = 1  # a field of those that learn

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        self._at_least(1, "num_trajectories", "num_iterations", "horizon", "dt", optional=False)
        self._in_range(0, 1, "discount")

    @property
    def num_actions(self) -> int:
        """L."""
        return -(-self.horizon // self.dt)

    @abstractmethod
    def first(self, space: Space[Any]) -> Distribution:
        """What an episode begins with.

        Raises:
            UnsupportedEnvError: The planner cannot plan with these actions.
        """

    def propose(
        self, distribution: Distribution, generator: np.random.Generator, iteration: int
    ) -> NDArray[Any]:
        """Sequences `[B, L, *action shape]` to roll out."""
        return distribution.sample(generator, self.num_trajectories)

    @abstractmethod
    def learn(
        self, distribution: Distribution, sequences: NDArray[Any], returns: NDArray[np.float64]
    ) -> tuple[Distribution, float]:
        """A better distribution, and the return to expect of it.

        Args:
            distribution: What the sequences were drawn from.
            sequences: `[B, L, *action shape]`.
            returns: `[B]`; -inf where a reward was no number.
        """

    def choose(self, distribution: Distribution, best: NDArray[Any]) -> NDArray[Any]:
        """The sequence `[L, *action shape]` whose first action is taken: the best that was rolled out."""
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
        """As of `Planner`. A plan of a planner with other actions or another `dt` is not built on."""
        distribution = self.first(env.action_space)
        if previous is not None and distribution.follows(previous.search):
            distribution = distribution.following(previous.search)
        return ShootingSearch(self, env, state, generator, distribution)


class ShootingSearch(Search):
    """One decision: an iteration per batch.

    Args:
        planner: What to draw, and what to make of it.
        env: The stepper.
        state: `[1]`.
        generator: For every random choice.
        distribution: What the first iteration draws from.
    """

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
        self._generator = generator
        self._distribution = distribution
        self._index = distribution.action_index(planner.horizon)
        self._num_iterations = 0
        self._first_actions: list[NDArray[Any]] = []
        self._returns: list[NDArray[np.float64]] = []
        self._num_steps: list[NDArray[np.int64]] = []
        self._best: tuple[NDArray[Any], int] | None = None
        self._best_return = -math.inf
        self._value = math.nan

    def simulate(self) -> Simulation:
        """Draw sequences, roll them out, and learn from what they earn."""
        planner = self._planner
        sequences = planner.propose(self._distribution, self._generator, self._num_iterations)
        num_rows, seeds = len(sequences), None
        if self._env.is_stochastic:
            # Chance of its own for each: it is sampled, and never foreseen.
            seeds = self._generator.integers(0, 2**64, num_rows, dtype=np.uint64)
        states = np.repeat(self._state, num_rows)
        actions = sequences[:, self._index]
        out = yield RolloutRequest(states, planner.horizon, actions, None, seeds, planner.discount)
        # A reward that is no number must not win, nor make a mean of others no number.
        returns = np.where(np.isnan(out.returns), -np.inf, out.returns)
        self._note(sequences, returns, out.num_steps)
        self._distribution, self._value = planner.learn(self._distribution, sequences, returns)
        self.num_simulations += num_rows
        self._num_iterations += 1
        if self._num_iterations == planner.num_iterations:
            self.stop_reason = "num_iterations"

    def _note(
        self, sequences: NDArray[Any], returns: NDArray[np.float64], num_steps: NDArray[np.int64]
    ) -> None:
        self._first_actions.append(sequences[:, 0])
        self._returns.append(returns)
        self._num_steps.append(num_steps)
        row = int(returns.argmax())
        if self._best is None or returns[row] > self._best_return:
            self._best = sequences[row].copy(), int(num_steps[row])
            self._best_return = float(returns[row])

    def plan(self, elapsed: float) -> Plan:
        """As of `Search`."""
        assert self._best is not None
        assert self.stop_reason is not None
        best, num_steps = self._best
        space, returns = self._env.action_space, np.concatenate(self._returns)
        first_actions = np.concatenate(self._first_actions)
        root_actions, visit_counts, means = tally(space, first_actions, returns)
        with np.errstate(invalid="ignore"):  # the spread of infinite returns is no number
            errors = standard_errors(space, first_actions, returns)
        best_num_steps = np.bincount(self._index[:num_steps])
        return Plan(
            action=self._planner.choose(self._distribution, best)[0],
            value=self._value,
            root_actions=root_actions,
            visit_counts=visit_counts,
            action_values=means,
            standard_errors=errors,
            best_actions=best[: len(best_num_steps)],
            best_num_steps=best_num_steps,
            best_return=self._best_return,
            depth_histogram=np.bincount(np.concatenate(self._num_steps)),
            num_simulations=self.num_simulations,
            num_env_steps=self.num_env_steps,
            elapsed=elapsed,
            stop_reason=self.stop_reason,
            search=self._distribution,
        )


def fixed_std(planner: Planner, name: str) -> None:
    """Check a standard deviation (a number or an array) and keep it as one that can be compared.

    Args:
        planner: A frozen planner under construction.
        name: The field.

    Raises:
        ValueError: Not numbers above 0.
    """
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
    """The rows with the highest returns, best first; of equals the first."""
    return np.argsort(-returns, kind="stable")[:count]
