"""A wave under way: a swarm that goes to the end of the episode, or the way that an earlier one found.

Letters: L actions of a branch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from planvec.planners.driver import Simulation, StepRequest
from planvec.planners.plan import Plan
from planvec.planners.swarm.search import Branch, SwarmSearch, remainder
from planvec.planners.swarm.walkers import Walkers
from planvec.rows import BatchStepper

if TYPE_CHECKING:
    from planvec.planners.swarm.swarm import SwarmPlanner

__all__ = ["WaveSearch"]


class WaveSearch(SwarmSearch):
    """A wave under way, if the way that the last one found does not lead here.

    Args:
        planner: The numbers.
        env: The stepper.
        state: `[1]`.
        generator: For every random choice.
        previous: The decision one environment step ago.
    """

    def __init__(
        self,
        planner: SwarmPlanner,
        env: BatchStepper,
        state: NDArray[Any],
        generator: np.random.Generator,
        previous: Plan | None,
    ) -> None:
        super().__init__(planner, env, state, generator)
        self._previous = previous if _may_follow(previous, env) else None
        self._way: Branch | None = None
        self._way_return = 0.0

    def simulate(self) -> Simulation:
        """As of `Search`."""
        previous, self._previous = self._previous, None
        if previous is not None:
            out = yield StepRequest(
                previous.best_actions[:1], previous.search.start, np.ones(1, np.int64), None
            )
            if _is_same(out.new_states, self.walkers.start):
                self._way = remainder(previous)
                self._way_return = previous.best_return - float(out.rewards[0])
                self.stop_reason = previous.stop_reason
                return
        yield from super().simulate()

    def plan(self, elapsed: float) -> Plan:
        """As of `Search`."""
        if self._way is None:
            return super().plan(elapsed)
        assert self.stop_reason is not None
        best_actions, best_num_steps = self._way
        return Plan(
            action=best_actions[0],
            value=self._way_return,
            root_actions=best_actions[:1],
            visit_counts=np.ones(1, np.int64),
            action_values=np.array([self._way_return]),
            standard_errors=np.array([np.nan]),
            best_actions=best_actions,
            best_num_steps=best_num_steps,
            best_return=self._way_return,
            depth_histogram=np.bincount([len(best_actions)]),
            num_simulations=0,
            num_env_steps=self.num_env_steps,
            elapsed=elapsed,
            stop_reason=self.stop_reason,
            search=self.walkers,
        )


def _may_follow(previous: Plan | None, env: BatchStepper) -> bool:
    """Whether there is a way left, and one that chance does not lead away from."""
    return (
        previous is not None
        and isinstance(previous.search, Walkers)
        and not env.is_stochastic
        and remainder(previous) is not None
    )


def _is_same(states: NDArray[Any], others: NDArray[Any]) -> bool:
    if states.dtype.hasobject:
        return bool(states[0] == others[0])
    return states.tobytes() == others.tobytes()  # equal NaNs are equal
