"""Swarm: Fractal Monte Carlo (Hernandez Cerezo and Duran Ballester 2018, arXiv 1803.05049).

Letters: B walkers.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners.distance import observation_features
from planvec.planners.plan import Plan, PlanCallback, one_state
from planvec.planners.root_actions import (
    check_action_space,
    mean_action,
    tally,
    winner,
)
from planvec.planners.walkers import Lineage, Walkers
from planvec.random_actions import uniform_actions
from planvec.transitions import BatchStepper

__all__ = ["Swarm", "clone_sources", "relativize"]

_ROUNDING = 1e-12
"""Relative spread below which values count as equal."""


def relativize(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bring values `[B]` of any scale to positive ones about 1 (the paper's "relativize").

    With `z = (x - mean) / std`: `1 + ln(1 + z)` where `z > 0`, else `exp(z)`. Values that are all
    equal, up to rounding, become ones.
    """
    spread = values.std()
    if not spread > _ROUNDING * np.abs(values).max():
        return np.ones(len(values))
    z = (values - values.mean()) / spread
    above = 1.0 + np.log1p(np.maximum(z, 0.0))
    positive: NDArray[np.float64] = np.where(z > 0, above, np.exp(np.minimum(z, 0.0)))
    return positive


def clone_sources(
    generator: np.random.Generator,
    virtual_rewards: NDArray[np.float64],
    dead: NDArray[np.bool_],
    keep: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Which walker each walker continues as: itself, or a random living companion.

    Walker `i` clones companion `k` with probability `(VR_k - VR_i) / VR_i`, and always if it is
    dead. Each walker has a uniform draw of its own.

    Args:
        generator: What companions and draws come from.
        virtual_rewards: `[B]`; those of the dead are not looked at.
        dead: `[B]`, at least one of them False.
        keep: Walkers that do not clone unless they are dead.

    Returns:
        `[B]` int64.
    """
    living = np.flatnonzero(~dead)
    companions = living[generator.integers(len(living), size=len(dead))]
    own = np.maximum(virtual_rewards, np.finfo(np.float64).tiny)
    draws = generator.random(len(dead))
    clones = virtual_rewards[companions] - own > draws * own
    clones[keep] = False
    return np.where(clones | dead, companions, np.arange(len(dead)))


@dataclass(frozen=True, slots=True)
class Swarm:
    """Plans with a swarm of walkers that clone each other towards high returns and new places.

    All walkers start at the state; the first action of each is its root action. In every iteration
    each walker takes a random action for a random number of steps. It is then worth
    `relativize(distance)**distance_scale * relativize(return)**reward_scale` (its "virtual reward"),
    where `distance` is how far its observation is from that of a random living companion, and may
    continue as a copy of another one that is worth more. The action is the root action that most
    walkers carry at the end, or their mean in a Box.

    Three choices go beyond the paper, each for a fault that was seen without it:

    - A walker that terminated is only dead if its return is no better than that of the walkers that
      go on; see `Walkers.dead`. Else the swarm would flee the flag of MountainCar.
    - Returns are compared at equal age and distances in standard deviations; see `Walkers.values`
      and `Features.distances`.
    - One walker follows what is left of the best branch of the `previous` decision, and the walker
      with the best return is never cloned over. Else every decision finds another way to a goal, and
      none is followed to its end.

    Chance is sampled anew in every step, never foreseen. But walkers that were lucky are cloned as
    those that chose well are, so that a swarm is too hopeful where chance decides, as in FrozenLake.

    Args:
        num_walkers: B.
        horizon: Iterations.
        dt: For how many environment steps a walker holds an action: a number, or the lowest and the
            highest of a uniform draw.
        reward_scale: Exponent of the return (the paper's alpha).
        distance_scale: Exponent of the distance (its beta).

    Raises:
        ValueError: A number out of range.
    """

    num_walkers: int = 48
    horizon: int = 30
    dt: int | tuple[int, int] = (1, 8)
    reward_scale: float = 1.0
    distance_scale: float = 1.0

    def __post_init__(self) -> None:
        for name in ("num_walkers", "horizon"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}: expected an integer of at least 1, got {value!r}")
        low, high = self.dt_range
        if not 1 <= low <= high:
            raise ValueError(f"dt: expected a number or (low, high), 1 <= low <= high, got {self.dt}")
        for name in ("reward_scale", "distance_scale"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name}: expected at least 0, got {getattr(self, name)}")

    @property
    def dt_range(self) -> tuple[int, int]:
        """The lowest and the highest number of steps that an action is held."""
        return (self.dt, self.dt) if isinstance(self.dt, int) else (self.dt[0], self.dt[1])

    def plan(
        self,
        env: BatchStepper,
        state: Any = None,
        *,
        seed: int | None = None,
        previous: Plan | None = None,
        callback: PlanCallback | None = None,
    ) -> Plan:
        """Plan at a state.

        Args:
            env: The stepper; its base state is left as it is.
            state: One state; None takes the base state of `env`.
            seed: Fixes every random choice, for any number of workers; None takes a fresh one.
            previous: The decision one environment step ago, whose best branch is followed on.
            callback: `callback(num_iterations, num_env_steps)` after each iteration; True stops.

        Raises:
            InvalidBatchError: Not one state, or one whose episode has ended.
            UnsupportedEnvError: Actions of this space cannot be drawn uniformly.
        """
        started = time.perf_counter()
        check_action_space(env.action_space)
        states = np.repeat(one_state(env, state), self.num_walkers)
        search = _Search(self, env, np.random.default_rng(seed), _remainder(previous))
        stop_reason = "horizon"
        for iteration in range(self.horizon):
            search.step(states if iteration == 0 else search.walkers.states)
            search.clone()
            if callback is not None and callback(iteration + 1, search.num_env_steps):
                stop_reason = "callback"
                break
            if (search.walkers.terminated | search.walkers.truncated).all():
                stop_reason = "ended"
                break
        return search.decide(stop_reason, started)


def _remainder(previous: Plan | None) -> tuple[NDArray[Any], NDArray[np.int64]] | None:
    """The best branch of the last decision without its first environment step."""
    if previous is None or not len(previous.best_actions):
        return None
    num_steps = previous.best_num_steps.copy()
    num_steps[0] -= 1
    return previous.best_actions[num_steps > 0], num_steps[num_steps > 0]


class _Search:
    """One decision under way.

    Args:
        config: The numbers.
        env: The stepper.
        generator: Every random choice, drawn in this process.
        guide: Actions and their steps that walker 0 takes first.
    """

    walkers: Walkers

    def __init__(
        self,
        config: Swarm,
        env: BatchStepper,
        generator: np.random.Generator,
        guide: tuple[NDArray[Any], NDArray[np.int64]] | None,
    ) -> None:
        self._config = config
        self._env = env
        self._generator = generator
        self._guide = guide
        self._lineage = Lineage()
        self.num_env_steps = 0
        self._num_iterations = 0

    def step(self, states: NDArray[Any]) -> None:
        """Every walker takes a random action, but for the one that is guided."""
        num_walkers = self._config.num_walkers
        low, high = self._config.dt_range
        actions = uniform_actions(self._env.action_space, self._generator, num_walkers)
        dt = self._generator.integers(low, high, num_walkers, endpoint=True)
        seeds = self._generator.integers(0, 2**64, num_walkers, dtype=np.uint64)
        guided = self._guided()
        if guided is not None:
            actions[0], dt[0] = guided
        out = self._env.step_batch(actions, states, dt, seeds=seeds, blocking=True)
        features = observation_features(self._env.observation_space, out.observations, num_walkers)
        if self._num_iterations:
            self.walkers.advance(out, features)
        elif not out.infos["num_steps"].any():
            raise InvalidBatchError(
                "state: expected one whose episode goes on, got one that has ended; start another "
                "one with env.reset()"
            )
        else:
            self.walkers = Walkers.first(actions, out, features)
        self._num_iterations += 1
        self.num_env_steps += int(out.infos["num_steps"].sum())
        self._taken = actions, out.infos["num_steps"]

    def _guided(self) -> tuple[Any, Any] | None:
        """The next action of the guided walker and its number of steps."""
        if self._guide is None or self._num_iterations >= len(self._guide[0]):
            return None
        return self._guide[0][self._num_iterations], self._guide[1][self._num_iterations]

    def clone(self) -> None:
        """Walkers continue as themselves or as others."""
        values = self.walkers.values()
        dead = self.walkers.dead(values)
        living = np.flatnonzero(~dead)
        companions = living[self._generator.integers(len(living), size=len(dead))]
        distances = self.walkers.features.distances(companions, living)
        worth = np.zeros(len(dead))
        # Over the living only: what a crash cost must not blur the differences among them.
        worth[living] = (
            relativize(distances[living]) ** self._config.distance_scale
            * relativize(values[living]) ** self._config.reward_scale
        )
        keep = [int(living[np.argmax(values[living])])]
        if dead[0]:
            self._guide = None  # it leads nowhere from where the walker is now
        elif self._guided() is not None:
            keep.append(0)
        sources = clone_sources(self._generator, worth, dead, np.array(keep))
        self.walkers.take(sources)
        self._lineage.append(*self._taken, sources)

    def decide(self, stop_reason: str, started: float) -> Plan:
        """Choose the action.

        Args:
            stop_reason: For the plan.
            started: `time.perf_counter()` at the beginning.
        """
        space = self._env.action_space
        values = self.walkers.values()
        root_actions, visit_counts, means = tally(space, self.walkers.root_actions, values)
        if isinstance(space, spaces.Box):
            action = mean_action(space, self.walkers.root_actions)
        else:
            action = root_actions[winner(visit_counts, means)]
        best = int(np.argmax(values))
        best_actions, best_num_steps = self._lineage.branch(best)
        return Plan(
            action=action,
            root_actions=root_actions,
            visit_counts=visit_counts,
            action_values=means,
            best_actions=best_actions,
            best_num_steps=best_num_steps,
            best_return=float(self.walkers.returns[best]),
            num_iterations=self._num_iterations,
            num_env_steps=self.num_env_steps,
            elapsed=time.perf_counter() - started,
            stop_reason=stop_reason,
        )
