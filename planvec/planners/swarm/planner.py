"""Swarm planners: Fractal Monte Carlo (Hernandez Cerezo and Duran Ballester 2018, arXiv 1803.05049)."""

from __future__ import annotations

from dataclasses import dataclass

from planvec.planners.base import option
from planvec.planners.search import Search
from planvec.planners.swarm.config import SwarmConfig


@dataclass(frozen=True)
class Swarm(SwarmConfig):
    """Plans with a swarm of walkers that clone each other, towards high returns and new observations.

    All walkers start at the state. In every iteration each walker takes a random action for a random number
    of steps. Its virtual reward is then
    `relativize(distance)**distance_scale * relativize(return)**reward_scale`, where `distance` is that of
    its observation to the one of a random living companion. A walker may become a clone of another one
    with a higher virtual reward. The plan's action is the first action of most walkers at the end, or the
    mean of their first actions in a Box.

    The planner differs from the paper in three points, each of which corrects a failure:

    - A terminated walker is only dead if its return is no better than that of the walkers that go on; see
      `find_dead`. Otherwise the swarm would avoid the flag of MountainCar.
    - Returns are compared at equal age and distances in standard deviations; see
      `extrapolate_returns` and `distances`.
    - One walker starts with the rest of the best action sequence of the `previous` decision, and the walker
      with the best return never becomes a clone. Otherwise successive decisions would pursue different
      sequences and complete none.

    Random environments are sampled anew in every step, never foreseen. But walkers with luck are cloned like
    walkers with good actions, so that a swarm is too optimistic in random environments such as FrozenLake.

    Raises:
        ValueError: A number is out of range.
    """

    def _search_class(self) -> type[Search]:
        from planvec.planners.swarm.search import SwarmSearch  # here, since numba takes long to import

        return SwarmSearch


@dataclass(frozen=True)
class SwarmWave(SwarmConfig):
    """Plans a whole episode with one swarm and takes the actions of its best walker.

    The walkers are those of `Swarm`, but go on until all of their episodes have ended, and the plan's action
    is the first one of the best walker, however many walkers began with another one. `plan(...)` returns
    the whole sequence in `best_actions`, `best_num_steps` and `best_return`.

    With a `previous` decision, as `run_episode` passes it, the planner does not search again but returns the
    rest of that sequence, after it has checked by one step that the sequence leads to the state. It searches
    again where the check fails, where the sequence is used up, and in every decision of an environment
    that may be random (`is_stochastic`), where the sequence is that of one future among many.

    Raises:
        ValueError: A number is out of range.
    """

    num_walkers: int = option(128, "Number of walkers, B.")
    num_iterations: int = option(1000, "Moves of each walker, at most.")

    def _search_class(self) -> type[Search]:
        from planvec.planners.swarm.search import WaveSearch  # here, since numba takes long to import

        return WaveSearch
