"""Defines `SearchRun`, which runs one search without a driver. Letters: K slots, S bytes of a state."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.planners.driver import Budget, PlanCallback
from planvec.planners.mcts.compiled.performing import Draws
from planvec.planners.mcts.rules import SINGLE
from planvec.planners.mcts.search import TreeSearch
from planvec.planners.mcts.simulations.progress import (
    CALLBACK,
    GOES_ON,
    LEAVES,
    MAX_ENV_STEPS,
    MAX_SECONDS,
    NUM_ENV_STEPS,
    NUM_EVENTS,
    NUM_SIMULATIONS,
    STEPS,
    STOP,
    STOP_REASONS,
    new_steps,
)
from planvec.planners.requests import check_numbers
from planvec.rows import Outputs, Perform, RolloutBatch, StepBatch

# time after which a run pauses, to look at the clock, at Ctrl-C and at the other roots
SECONDS_PER_RUN = 5e-3


class SearchRun(ABC):
    """Runs a search to its end, with compiled code between its requests."""

    def __init__(self, search: TreeSearch, perform: Perform, budget: Budget, started: float) -> None:
        self._search, self._budget, self._started = search, budget, started
        self._perform_request = perform
        config, simulations = search.config, search.simulations
        num_slots, num_seeds = config.batch_size, config.batch_size * (search.rules.chance != SINGLE)
        self._progress = simulations.progress
        self._progress.totals[NUM_ENV_STEPS] = search.num_env_steps
        self._answers = new_steps(num_slots, simulations.shared.limits.state_bytes)
        self._draws = Draws(
            _words_of(search.generator), np.zeros(num_seeds, np.uint64), np.zeros(2, np.uint64)
        )
        self._repeats = np.full(num_slots, config.dt)
        self._num_slots = np.diff(self._progress.bounds).tolist()
        self._full: list[tuple[StepBatch | RolloutBatch, Outputs] | None] = [None, None]

    @abstractmethod
    def load(self) -> None:
        """Compile the code, or load it from the cache."""

    @abstractmethod
    def proceed(self, callback: PlanCallback | None) -> bool:
        """Run for some milliseconds, or up to the next call of the callback."""
        # Returns whether the search is over.

    # -- limits -----------------------------------------------------------------------------------

    def _look_at_limits(self, callback: PlanCallback | None, num_events: int, was_stopped: bool) -> None:
        """Call the callback after a batch, and look at the clock."""
        totals = self._progress.totals
        if callback is not None and totals[NUM_EVENTS] > num_events and callback(*self.counts()):
            if not was_stopped and totals[STOP] in (GOES_ON, MAX_ENV_STEPS):
                totals[STOP] = CALLBACK
        elif totals[STOP] == GOES_ON and self._is_late():
            totals[STOP] = MAX_SECONDS

    def counts(self) -> tuple[int, int]:
        """Return the numbers of simulations and of environment steps."""
        totals = self._progress.totals
        return int(totals[NUM_SIMULATIONS]), int(totals[NUM_ENV_STEPS])

    def _is_late(self) -> bool:
        limit = self._budget.max_seconds
        return limit is not None and time.perf_counter() - self._started >= limit

    def finish(self) -> None:
        """Write the counts and the random generator of the search."""
        search = self._search
        search.num_simulations, search.num_env_steps = self.counts()
        search.stop_reason = STOP_REASONS[self._progress.totals[STOP]]
        _put_words(search.generator, self._draws.random)

    # -- requests as arrays -----------------------------------------------------------------------

    def _perform(self, half: int) -> None:
        """Perform the request of a half, and check its rewards."""
        is_full = self._progress.num_rows[half] == self._num_slots[half]
        full = self._full[half] if is_full and self._progress.stages[half] == STEPS else None
        request, outputs = full or (self._batch(half), self._outputs(half))
        if is_full and isinstance(request, StepBatch):
            self._full[half] = request, outputs  # most requests: their arrays are always the same memory
        self._perform_request(request, outputs)
        assert outputs.rewards is not None
        check_numbers(outputs.rewards, True, request.actions if isinstance(request, StepBatch) else None)

    def _batch(self, half: int) -> StepBatch | RolloutBatch:
        """Return the request of a half. Its arrays are written by the next one of the half."""
        simulations, config = self._search.simulations, self._search.config
        rows = simulations.rows(half)
        states = simulations.states(rows)
        seeds = self._draws.seeds[rows] if len(self._draws.seeds) else None
        if self._progress.stages[half] == LEAVES:
            action_seed = int(self._draws.action_seeds[half])
            return RolloutBatch(
                states,
                config.rollout_steps,
                None,
                action_seed,
                seeds=seeds,
                discount=float(config.discount),
            )
        return StepBatch(states, simulations.actions_of(rows), self._repeats[rows], seeds, same_dt=config.dt)

    def _outputs(self, half: int) -> Outputs:
        """Return the memory of the answer to the request of a half."""
        simulations, answers = self._search.simulations, self._answers
        rows = simulations.rows(half)
        return Outputs(
            new_states=simulations.states_in(answers.new_states, rows),
            rewards=answers.rewards[rows],
            terminated=answers.terminated[rows].view(np.bool_),
            truncated=answers.truncated[rows].view(np.bool_),
            num_steps=answers.num_steps[rows],
        )


def _words_of(generator: np.random.Generator) -> NDArray[np.uint64]:
    """Return the state of a PCG64 generator as words; see `planvec.kernels.random`."""
    state = generator.bit_generator.state
    low = 2**64 - 1
    numbers = [state["state"]["state"], state["state"]["inc"]]
    words = [part for number in numbers for part in (number & low, number >> 64)]
    return np.array([*words, state["uinteger"], state["has_uint32"]], np.uint64)


def _put_words(generator: np.random.Generator, words: NDArray[np.uint64]) -> None:
    """Set the state of a PCG64 generator from words."""
    state: Any = generator.bit_generator.state
    state["state"]["state"] = int(words[0]) | int(words[1]) << 64
    generator.bit_generator.state = state
