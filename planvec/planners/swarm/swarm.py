"""Swarm: Fractal Monte Carlo (Hernandez Cerezo and Duran Ballester 2018, arXiv 1803.05049).

Letters: B walkers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from planvec.planners.base import Planner
from planvec.planners.plan import Plan
from planvec.planners.swarm.samplers import Dt, check_dt
from planvec.planners.swarm.search import SwarmSearch, remainder
from planvec.planners.swarm.wave import WaveSearch
from planvec.rows import BatchStepper

__all__ = ["Swarm", "SwarmPlanner", "SwarmWave"]


@dataclass(frozen=True)
class SwarmPlanner(Planner):
    """The numbers of a swarm; see `Swarm`."""

    num_walkers: int = 48
    horizon: int = 30
    dt: Dt = (1, 8)
    reward_scale: float = 1.0
    distance_scale: float = 1.0
    num_elites: int = 1

    follows_best: ClassVar[bool] = False
    """Whether the action is that of the best branch, whatever the other walkers carry."""

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            ValueError: Naming the argument.
        """
        super().__post_init__()
        self._at_least(1, "num_walkers", "horizon", optional=False)
        self._at_least(0, "num_elites", optional=False)
        self._in_range(0.0, np.inf, "reward_scale", "distance_scale")
        check_dt(self.dt)


@dataclass(frozen=True)
class Swarm(SwarmPlanner):
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
            highest of a uniform draw, or a sampler such as `NormalDt`: `sampler(generator, num_draws)`
            gives `[num_draws]` integers.
        reward_scale: Exponent of the return (the paper's alpha). The balance of the two exponents is that
            of exploiting and exploring.
        distance_scale: Exponent of the distance (its beta).
        num_elites: How many of the walkers with the best returns are never cloned over.
        max_env_steps: No iteration begins once so many were simulated; None: no limit.
        max_seconds: No iteration begins once they are over; None: no limit.

    Raises:
        ValueError: A number out of range.
    """

    def begin(
        self,
        env: BatchStepper,
        state: NDArray[Any],
        generator: np.random.Generator,
        *,
        previous: Plan | None = None,
        info: dict[str, Any] | None = None,
    ) -> SwarmSearch:
        """As of `Planner`.

        Raises:
            UnsupportedEnvError: Actions of this space cannot be drawn uniformly.
        """
        return SwarmSearch(self, env, state, generator, remainder(previous))


@dataclass(frozen=True)
class SwarmWave(SwarmPlanner):
    """Plans a whole episode with one swarm, and takes the way of its best walker.

    The walkers are those of `Swarm`, but go on until all of their episodes have ended, and the action is
    the first one of the best branch, however many walkers carry another. `plan(...)` returns the whole
    branch in `best_actions`, `best_num_steps` and `best_return`.

    Given the `previous` decision, as `run_episode` does, it plans no more but follows that branch, after
    it has checked by one step that the branch leads to the state. It plans anew where it does not, where
    the branch is over, and at every step of an environment that may be random (`is_stochastic`): there
    the branch is one future among many, and following it would rely on luck.

    Args:
        num_walkers: B.
        horizon: Iterations at most.
        dt: For how many environment steps a walker holds an action: a number, the lowest and the highest
            of a uniform draw, or a sampler.
        reward_scale: Exponent of the return.
        distance_scale: Exponent of the distance.
        num_elites: How many of the walkers with the best returns are never cloned over.
        max_env_steps: No iteration begins once so many were simulated; None: no limit.
        max_seconds: No iteration begins once they are over; None: no limit.

    Raises:
        ValueError: A number out of range.
    """

    num_walkers: int = 128
    horizon: int = 1000

    follows_best: ClassVar[bool] = True

    def begin(
        self,
        env: BatchStepper,
        state: NDArray[Any],
        generator: np.random.Generator,
        *,
        previous: Plan | None = None,
        info: dict[str, Any] | None = None,
    ) -> WaveSearch:
        """As of `Planner`.

        Raises:
            UnsupportedEnvError: Actions of this space cannot be drawn uniformly.
        """
        return WaveSearch(self, env, state, generator, previous)
