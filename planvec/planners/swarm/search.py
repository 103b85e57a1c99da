"""One decision of a swarm in progress. Letters: B walkers, L actions of a sequence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from planvec.planners.novelty.features import NewFeatures, features_for
from planvec.planners.plan import Plan
from planvec.planners.root_actions import (
    action_statistics,
    mean_action,
    most_visited,
)
from planvec.planners.search import Search, Simulation, StepRequest, ended_error
from planvec.planners.swarm.config import SwarmConfig, draws
from planvec.planners.swarm.iteration import Rules, observation_features
from planvec.planners.swarm.walkers import Walkers
from planvec.rows import BatchStepper, action_masks, are_legal, draw_legal

_NO_NUMBERS = np.empty(0)

# actions `[L, *action shape]`, and the environment steps `[L]` for which each is repeated
ActionSequence = tuple[NDArray[Any], NDArray[np.int64]]


def remaining_sequence(previous: Plan | None) -> ActionSequence | None:
    """Return the best action sequence of the last decision without its first environment step."""
    if previous is None or not len(previous.best_actions):
        return None
    num_steps = previous.best_num_steps.copy()
    num_steps[0] -= 1
    remains = num_steps > 0
    return (previous.best_actions[remains], num_steps[remains]) if remains.any() else None


class SwarmSearch(Search):
    """One decision of a swarm; every simulation is one iteration of all walkers."""

    def __init__(
        self,
        config: SwarmConfig,
        env: BatchStepper,
        state: NDArray[Any],
        generator: np.random.Generator,
        previous: Plan | None,
        info: dict[str, Any] | None,
    ) -> None:
        config.check_space(env.action_space)
        self._config = config
        self._env = env
        self._observation_space = env.observation_space
        self._rules = Rules(
            float(config.reward_scale),
            float(config.distance_scale),
            float(config.novelty_scale),
            min(int(config.num_elites), config.num_walkers),
        )
        self._generator = generator
        self._guide = remaining_sequence(previous)
        self._new_features: NewFeatures | None = None
        if config.novelty_scale:
            self._new_features = NewFeatures(features_for(env.observation_space, config.features))
        self._codes: NDArray[Any] | None = None  # of the observations where the walkers are
        self._num_iterations = 0
        self._draws = draws(
            env.action_space, generator, config.dt, config.num_walkers, needs_seeds=env.is_stochastic
        )
        self.walkers = Walkers.initial(state, config.num_walkers, env.action_space)

    def simulate(self) -> Simulation:
        """Move every walker once, then clone."""
        draw = next(self._draws)
        masks = action_masks(self._env.action_space, self.walkers.states)
        if masks is not None:
            uniforms = self._generator.random(draw.actions.shape)
            draw.actions[:] = draw_legal(self._env.action_space, masks, uniforms)
        guided = self._guided_action()
        if guided is not None and (
            masks is None or are_legal(self._env.action_space, masks[0], np.asarray(guided[0]))
        ):
            draw.actions[0], draw.dt[0] = guided
        else:  # chance has led to a state where the action is illegal
            self._guide = None
        out = yield StepRequest(draw.actions, self.walkers.states, draw.dt, draw.seeds)
        self._num_iterations += 1
        self.num_simulations += len(draw.dt)
        features = observation_features(self._observation_space, out.observations, len(draw.dt))
        novelty = self._novelty(out.observations, len(draw.dt))
        is_guided = self._guided_action() is not None
        if self.walkers.advance_and_clone(draw, out, features, novelty, self._rules, is_guided):
            self._guide = None  # walker 0 is a clone now, whose state the guide does not fit
        if self._codes is not None:
            self._codes = self._codes[self.walkers.table["source"]]
        if self.walkers.lineage.num_nodes == 1:
            raise ended_error()
        if self.walkers.num_ended == len(draw.dt):
            self.stop_reason = "ended"
        elif self._num_iterations == self._config.num_iterations:
            self.stop_reason = "num_iterations"

    def _novelty(self, observations: Any, num_rows: int) -> NDArray[np.float64]:
        """Return how many features of each observation are new, `[B]`; empty if that does not count."""
        if self._new_features is None:
            return _NO_NUMBERS
        numbers, self._codes = self._new_features.count(observations, num_rows, self._codes)
        return numbers

    def _guided_action(self) -> tuple[Any, Any] | None:
        """Return the next action of the guide and its number of steps."""
        if self._guide is None or self._num_iterations >= len(self._guide[0]):
            return None
        return self._guide[0][self._num_iterations], self._guide[1][self._num_iterations]

    def plan(self) -> Plan:
        """Return the decision by the walkers' first actions: that of most of them, in a Box their mean."""
        walkers, space = self.walkers, self._env.action_space
        walkers.lineage.prune(walkers.table)
        values = walkers.values()
        first_moves, num_moves = walkers.lineage.first_moves(walkers.table)
        first_actions = walkers.lineage.actions[first_moves]
        statistics = action_statistics(space, first_actions, values)
        best = int(values.argmax())
        best_actions, best_num_steps = walkers.lineage.sequence(int(walkers.nodes[best]))
        if isinstance(space, spaces.Box):
            action: Any = mean_action(space, first_actions)
            value = float(values.mean())
        else:
            index = most_visited(statistics.counts, statistics.means)
            action, value = statistics.actions[index], float(statistics.means[index])
        return Plan(
            action=action,
            value=value,
            root_actions=statistics.actions,
            visit_counts=statistics.counts,
            action_values=statistics.means,
            standard_errors=statistics.standard_errors,
            best_actions=best_actions,
            best_num_steps=best_num_steps,
            best_return=float(walkers.returns[best]),
            depth_histogram=np.bincount(num_moves),
            search_data=walkers,
        )


# -- One decision of a swarm wave in progress: a whole episode, or the rest of the one planned before --------


class WaveSearch(SwarmSearch):
    """One decision of a wave. It searches only where the previous sequence does not lead to the state."""

    def __init__(
        self,
        config: SwarmConfig,
        env: BatchStepper,
        state: NDArray[Any],
        generator: np.random.Generator,
        previous: Plan | None,
        info: dict[str, Any] | None,
    ) -> None:
        super().__init__(config, env, state, generator, None, info)
        self._previous = previous if _can_reuse(previous, env) else None
        self._sequence: ActionSequence | None = None
        self._sequence_return = 0.0

    def simulate(self) -> Simulation:
        """Check by one step whether the previous sequence leads to the state; if not, search."""
        previous, self._previous = self._previous, None
        if previous is not None:
            out = yield StepRequest(
                previous.best_actions[:1], previous.search_data.start, np.ones(1, np.int64), None
            )
            if _are_equal(out.new_states, self.walkers.start):
                self._sequence = remaining_sequence(previous)
                self._sequence_return = previous.best_return - float(out.rewards[0])
                self.stop_reason = previous.stop_reason
                return
        yield from super().simulate()

    def plan(self) -> Plan:
        """Return the rest of the previous sequence, or the sequence of the best walker."""
        if self._sequence is None:
            plan = super().plan()
            return replace(plan, action=plan.best_actions[0], value=plan.best_return)
        best_actions, best_num_steps = self._sequence
        return Plan(
            action=best_actions[0],
            value=self._sequence_return,
            root_actions=best_actions[:1],
            visit_counts=np.ones(1, np.int64),
            action_values=np.array([self._sequence_return]),
            standard_errors=np.array([np.nan]),
            best_actions=best_actions,
            best_num_steps=best_num_steps,
            best_return=self._sequence_return,
            depth_histogram=np.bincount([len(best_actions)]),
            search_data=self.walkers,
        )


def _can_reuse(previous: Plan | None, env: BatchStepper) -> bool:
    """Return whether a sequence remains, and the environment is not random."""
    return (
        previous is not None
        and isinstance(previous.search_data, Walkers)
        and not env.is_stochastic
        and remaining_sequence(previous) is not None
    )


def _are_equal(states: NDArray[Any], others: NDArray[Any]) -> bool:
    if states.dtype.hasobject:
        return bool(states[0] == others[0])
    return states.tobytes() == others.tobytes()  # equal NaNs are equal
