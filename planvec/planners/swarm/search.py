"""A swarm under way. Letters: B walkers, L actions of a branch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from planvec.planners.driver import Search, Simulation, StepRequest, ended_error
from planvec.planners.plan import Plan
from planvec.planners.root_actions import check_action_space, mean_action, standard_errors, tally, winner
from planvec.planners.swarm.cloning import clone_sources, elites, pick, relativize
from planvec.planners.swarm.distance import observation_features
from planvec.planners.swarm.samplers import draws
from planvec.planners.swarm.walkers import Walkers
from planvec.rows import BatchStepper

if TYPE_CHECKING:
    from planvec.planners.swarm.swarm import SwarmPlanner

__all__ = ["Branch", "SwarmSearch", "remainder"]

Branch = tuple[NDArray[Any], NDArray[np.int64]]
"""Actions `[L, *action shape]`, and for how many environment steps `[L]` each is held."""


def remainder(previous: Plan | None) -> Branch | None:
    """What is left of the best branch of the last decision after one environment step; None if nothing."""
    if previous is None or not len(previous.best_actions):
        return None
    num_steps = previous.best_num_steps.copy()
    num_steps[0] -= 1
    left = num_steps > 0
    return (previous.best_actions[left], num_steps[left]) if left.any() else None


class SwarmSearch(Search):
    """One decision of a swarm under way; one simulation is one iteration.

    Args:
        planner: The numbers.
        env: The stepper.
        state: `[1]`.
        generator: For every random choice.
        guide: What walker 0 does first.
    """

    def __init__(
        self,
        planner: SwarmPlanner,
        env: BatchStepper,
        state: NDArray[Any],
        generator: np.random.Generator,
        guide: Branch | None = None,
    ) -> None:
        check_action_space(env.action_space)
        self._planner = planner
        self._env = env
        self._guide = guide
        self._num_iterations = 0
        self._draws = draws(
            env.action_space, generator, planner.dt, planner.num_walkers, has_chance=env.is_stochastic
        )
        self.walkers = Walkers.at(state, planner.num_walkers, env.action_space)

    def simulate(self) -> Simulation:
        """As of `Search`."""
        draw = next(self._draws)
        guided = self._guided()
        if guided is not None:
            draw.actions[0], draw.dt[0] = guided
        out = yield StepRequest(draw.actions, self.walkers.states, draw.dt, draw.seeds)
        self.walkers.advance(draw.actions, out)
        if len(self.walkers.lineage) == 1:
            raise ended_error()
        self._num_iterations += 1
        self.num_simulations += len(draw.dt)
        self._clone(out.observations, draw.uniforms)
        if self.walkers.have_all_ended():
            self.stop_reason = "ended"
        elif self._num_iterations == self._planner.horizon:
            self.stop_reason = "horizon"

    def _guided(self) -> tuple[Any, Any] | None:
        """The next action of the guided walker and its number of steps."""
        if self._guide is None or self._num_iterations >= len(self._guide[0]):
            return None
        return self._guide[0][self._num_iterations], self._guide[1][self._num_iterations]

    def _clone(self, observations: Any, uniforms: NDArray[np.float64]) -> None:
        """Walkers continue as themselves or as others."""
        planner, num_walkers = self._planner, len(self.walkers.returns)
        values = self.walkers.values()
        dead = self.walkers.dead(values)
        living = np.flatnonzero(~dead)
        features = observation_features(self._env.observation_space, observations, num_walkers)
        distances = features.distances(pick(living, uniforms[0]), living)
        # Over the living only: what a crash cost must not blur the differences among them.
        rows = slice(None) if len(living) == num_walkers else living
        worth = np.zeros(num_walkers)
        worth[rows] = (
            relativize(distances[rows]) ** planner.distance_scale
            * relativize(values[rows]) ** planner.reward_scale
        )
        keep = elites(values, living, planner.num_elites)
        if dead[0]:
            self._guide = None  # it leads nowhere from where the walker is now
        elif self._guided() is not None:
            keep = np.append(keep, 0)
        self.walkers.take(clone_sources(uniforms[1:], worth, living, keep))

    def plan(self, elapsed: float) -> Plan:
        """As of `Search`."""
        assert self.stop_reason is not None
        walkers, space = self.walkers, self._env.action_space
        walkers.tips = walkers.lineage.prune(walkers.tips)
        values = walkers.values()
        first_moves, num_moves = walkers.lineage.origins(walkers.tips)
        first_actions = walkers.lineage.actions[first_moves]
        root_actions, visit_counts, means = tally(space, first_actions, values)
        best = int(values.argmax())
        best_actions, best_num_steps = walkers.lineage.branch(int(walkers.tips[best]))
        if self._planner.follows_best:
            action, value = best_actions[0], float(walkers.returns[best])
        elif isinstance(space, spaces.Box):
            action, value = mean_action(space, first_actions), float(values.mean())
        else:
            most = winner(visit_counts, means)
            action, value = root_actions[most], float(means[most])
        return Plan(
            action=action,
            value=value,
            root_actions=root_actions,
            visit_counts=visit_counts,
            action_values=means,
            standard_errors=standard_errors(space, first_actions, values),
            best_actions=best_actions,
            best_num_steps=best_num_steps,
            best_return=float(walkers.returns[best]),
            depth_histogram=np.bincount(num_moves),
            num_simulations=self.num_simulations,
            num_env_steps=self.num_env_steps,
            elapsed=elapsed,
            stop_reason=self.stop_reason,
            search=walkers,
        )
