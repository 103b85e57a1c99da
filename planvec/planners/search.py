"""One decision in progress: what a planner implements, and the batches that it can request.

A search requests batches and receives their results. It never learns when they were computed or by which
worker, so that its plan cannot depend on the number of workers. `planvec.planners.driver` runs searches.

Letters: B rows, H steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners.plan import Plan


class StepRequest(NamedTuple):
    """A request for `step_batch`; the answer is the `Transitions` of these rows.

    Attributes:
        actions: `[B, *action shape]`.
        states: `[B]`.
        dt: Environment steps for which each action is repeated: a number, or `[B]` int64.
        seeds: `[B]` uint64, fixes what is random in each row; None: the generator in the state decides, so
            that the planner foresees chance. A planner gives seeds in all of its requests or in none.
    """

    actions: NDArray[Any]
    states: NDArray[Any]
    dt: int | NDArray[np.int64] = 1
    seeds: NDArray[np.uint64] | None = None


class RolloutRequest(NamedTuple):
    """A request for `rollout_batch`; the answer is `Rollouts`.

    Attributes:
        states: `[B]`.
        horizon: H.
        actions: `[B, H, *action shape]`; None draws random ones.
        action_seed: Fixes the random actions.
        seeds: `[B]` uint64, fixes what is random in each row; see `StepRequest`.
        discount: Factor per environment step.
    """

    states: NDArray[Any]
    horizon: int
    actions: NDArray[Any] | None = None
    action_seed: int | None = None
    seeds: NDArray[np.uint64] | None = None
    discount: float = 1.0


Request = StepRequest | RolloutRequest

Simulation = Generator[Request, Any, None]  # A generator that yields requests and is sent their answers


class Search(ABC):
    """One decision in progress.

    Attributes:
        num_in_flight: How many simulations may run at once.
        num_simulations: Simulations completed, counted by the search.
        num_env_steps: Environment steps simulated, counted by the driver.
        averages: Whether the search averages rewards, which have to be finite.
        stop_reason: None while the search goes on. Setting it ends the search, once the simulations in
            flight are completed. See `Plan.stop_reason`.
    """

    num_in_flight: int = 1
    num_simulations: int = 0
    num_env_steps: int = 0
    averages: bool = False
    stop_reason: str | None = None

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__}: {self.num_simulations} simulations, {self.num_env_steps} env steps, "
            f"{self.stop_reason or 'in progress'}>"
        )

    @abstractmethod
    def simulate(self) -> Simulation:
        """Run a batch of simulations: yield a request, receive its answer, and so on.

        The driver calls this again and again until `stop_reason` is set. A generator that yields nothing and
        completes no simulation is called again when an answer to another one has arrived.
        """

    @abstractmethod
    def plan(self) -> Plan:
        """Return the decision. The base class fills in what it counts; see `Plan`."""


def ended_error() -> InvalidBatchError:
    """Return the error for a state whose episode has ended."""
    return InvalidBatchError(
        "state: expected one whose episode goes on, got one that has ended; start another one with "
        "env.reset()"
    )
