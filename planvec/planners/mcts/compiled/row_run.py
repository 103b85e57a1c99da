"""Runs one search whose requests are performed here, one after another."""

from __future__ import annotations

import time
from collections.abc import Callable

import numba
import numpy as np

from planvec.kernels import compile_loop
from planvec.planners.driver import Budget, PlanCallback
from planvec.planners.mcts.compiled.performing import Draws, next_request
from planvec.planners.mcts.compiled.run import SECONDS_PER_RUN, SearchRun
from planvec.planners.mcts.search import TreeSearch
from planvec.planners.mcts.simulations.code import search_code
from planvec.planners.mcts.simulations.memory import Simulations
from planvec.planners.mcts.simulations.progress import (
    DONE,
    ENDED,
    FIRST_REQUEST,
    GOES_ON,
    NUM_EVENTS,
    STOP,
    new_steps,
)
from planvec.planners.search import ended_error
from planvec.rows import Perform

# largest number of simulations of a call of compiled code, which Ctrl-C cannot interrupt
_MAX_SIMULATIONS = 4096

# The compiled loop, once it is loaded. Its arguments have the same types in all searches.
_entries: list[Callable[..., int]] = []


def load_loop(simulations: Simulations) -> Callable[..., int]:
    """Compile the loop, or load it from the cache."""
    if not _entries:
        answers, none = new_steps(1, simulations.shared.limits.state_bytes), np.zeros(0, np.uint64)
        types = map(numba.typeof, (simulations.memory, answers, Draws(none, none, none), 0))
        _entries.append(compile_loop(next_request, search_code(), *types))
    return _entries[0]


class RowRun(SearchRun):
    """Runs a search to its end: a call of compiled code, a batch of the environment, and so on."""

    # Arguments as for `SearchRun`.

    def __init__(self, search: TreeSearch, perform: Perform, budget: Budget, started: float) -> None:
        super().__init__(search, perform, budget, started)
        self._arguments = (search.simulations.memory, self._answers, self._draws)

    def load(self) -> None:
        self._loop = load_loop(self._search.simulations)

    def proceed(self, callback: PlanCallback | None) -> bool:
        totals, loop, arguments = self._progress.totals, self._loop, self._arguments
        ends = time.perf_counter() + SECONDS_PER_RUN
        batch_size = self._search.config.batch_size
        max_events = 1 if callback is not None else max(1, _MAX_SIMULATIONS // batch_size)
        while True:
            num_events, was_stopped = totals[NUM_EVENTS], totals[STOP] != GOES_ON
            status = loop(None, *arguments, max_events)
            if status >= FIRST_REQUEST:
                self._perform(status - FIRST_REQUEST)
            elif status == ENDED:
                raise ended_error()
            now = time.perf_counter()
            if callback is not None or self._budget.max_seconds is not None:
                self._look_at_limits(callback, num_events, was_stopped)
            if status == DONE or now >= ends:
                return status == DONE
