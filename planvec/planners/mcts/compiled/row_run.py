"""Runs one search whose requests are performed here, one after another."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numba

from planvec.kernels import CodeType, code_digest, compile_loop
from planvec.planners.driver import Budget, PlanCallback
from planvec.planners.mcts.compiled.performing import next_request
from planvec.planners.mcts.compiled.run import SECONDS_PER_RUN, SearchRun
from planvec.planners.mcts.search import TreeSearch
from planvec.planners.mcts.simulations.progress import (
    DONE,
    ENDED,
    FIRST_REQUEST,
    GOES_ON,
    NUM_EVENTS,
    STEPS,
    STOP,
)
from planvec.planners.requests import check_numbers
from planvec.planners.search import ended_error
from planvec.rows import Outputs, Request, StepBatch

__all__ = ["RowRun"]

_MAX_SIMULATIONS = 4096
"""Largest number of simulations of a call of compiled code, which Ctrl-C cannot interrupt."""

_entries: list[Callable[..., int]] = []
"""The compiled loop, once it is loaded. Its arguments have the same types in all searches."""


class RowRun(SearchRun):
    """Runs a search to its end: a call of compiled code, a batch of the environment, and so on.

    Args:
        search: A search that has not begun.
        perform: Performs a request here, and writes its results.
        budget: The limits of the search.
        started: `time.perf_counter()` at the beginning of the call.
    """

    def __init__(
        self,
        search: TreeSearch,
        perform: Callable[[Request[Any], Outputs], None],
        budget: Budget,
        started: float,
    ) -> None:
        super().__init__(search, budget, started)
        self._perform_here = perform
        self._arguments = (search.simulations.memory, self._answers, self._draws)
        bounds = self._progress.bounds
        self._num_slots = [int(bounds[1] - bounds[0]), int(bounds[2] - bounds[1])]
        self._full: list[tuple[StepBatch, Outputs] | None] = [None, None]

    def load(self) -> None:
        if not _entries:
            code = CodeType(code_digest(next_request))
            _entries.append(
                compile_loop(next_request, code, *map(numba.typeof, self._arguments), numba.int64)
            )

    def proceed(self, callback: PlanCallback | None) -> bool:
        totals, loop, arguments = self._progress.totals, _entries[0], self._arguments
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

    def _perform(self, half: int) -> None:
        """Perform the request of a half."""
        is_full = self._progress.num_rows[half] == self._num_slots[half] and not len(self._draws.seeds)
        if self._progress.stages[half] == STEPS and is_full:
            # Most requests: their arrays are always the same memory.
            full = self._full[half]
            if full is None:
                batch = self._batch(half)
                assert isinstance(batch, StepBatch)
                full = self._full[half] = batch, self._outputs(half)
            request, outputs = full
        else:
            request, outputs = self._batch(half), self._outputs(half)  # type: ignore[assignment]
        self._perform_here(request, outputs)
        assert outputs.rewards is not None
        actions = request.actions if isinstance(request, StepBatch) else None
        check_numbers(outputs.rewards, True, actions)
