"""One decision of a swarm wave in progress: a whole episode, or the rest of the one planned before."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.planners.plan import Plan
from planvec.planners.root_actions import ActionStatistics
from planvec.planners.search import Simulation, StepRequest
from planvec.planners.swarm.config import SwarmConfig
from planvec.planners.swarm.search import ActionSequence, SwarmSearch, remaining_sequence
from planvec.planners.swarm.walkers import Walkers
from planvec.rows import BatchStepper


class WaveSearch(SwarmSearch):
    """One decision of a wave. It searches only where the previous sequence does not lead to the state."""

    def __init__(
        self,
        config: SwarmConfig,
        env: BatchStepper,
        state: NDArray[Any],
        generator: np.random.Generator,
        previous: Plan | None,
    ) -> None:
        super().__init__(config, env, state, generator)
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
            return super().plan()
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

    def _choose(
        self,
        statistics: ActionStatistics,
        first_actions: NDArray[Any],
        values: NDArray[np.float64],
        best_action: Any,
        best_return: float,
    ) -> tuple[Any, float]:
        """Return the first action of the best walker and its return."""
        return best_action, best_return


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
