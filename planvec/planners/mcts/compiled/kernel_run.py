"""Runs one search in a compiled loop with a kernel."""

from __future__ import annotations

import logging
import time

from planvec.errors import PlanvecError
from planvec.planners.driver import Budget, PlanCallback
from planvec.planners.mcts.compiled.performing import run as loop
from planvec.planners.mcts.compiled.run import SECONDS_PER_RUN, SearchRun
from planvec.planners.mcts.search import TreeSearch
from planvec.planners.mcts.simulations.code import search_code
from planvec.planners.mcts.simulations.progress import (
    DONE,
    ENDED,
    GOES_ON,
    NUM_CHUNKS,
    NUM_EVENTS,
    NUM_QUEUED,
    NUM_ROWS,
    REFUSED,
    STOP,
)
from planvec.planners.search import ended_error
from planvec.rows import KernelUse, Perform

_log = logging.getLogger("planvec")


class KernelRun(SearchRun):
    """Runs a search to its end, without Python between simulations."""

    def __init__(
        self, search: TreeSearch, perform: Perform, use: KernelUse, budget: Budget, started: float
    ) -> None:
        super().__init__(search, perform, budget, started)
        self._use = use
        self._arguments = (
            *(search.simulations.memory, self._answers, self._draws, use.kernel.time_limit),
            None if search.config.dt == 1 else self._repeats,
            use.kernel.action_range,
        )
        self._seconds = 0.0  # since the last audit
        self._num_recorded = (0, 0)
        self._max_events = 16

    def load(self) -> None:
        has_repeats = self._search.config.dt > 1
        self._loop = self._use.kernel.open_loop(loop, search_code(), has_repeats, *self._arguments, 1)

    def proceed(self, callback: PlanCallback | None) -> bool:
        """Run on; see `SearchRun.proceed`."""
        totals = self._progress.totals
        max_events = self._max_events if callback is None else 1
        started, num_events = time.perf_counter(), totals[NUM_EVENTS]
        was_stopped = totals[STOP] != GOES_ON
        status = self._advance(max_events)
        seconds = time.perf_counter() - started
        self._record(seconds)
        if status == ENDED:
            raise ended_error()
        if status == REFUSED:
            queued_last = int(self._progress.queue[totals[NUM_QUEUED] - 1])
            self._perform(queued_last)
        elif callback is None:
            is_short = seconds < SECONDS_PER_RUN / 2
            self._max_events = max(1, max_events * 2 if is_short else max_events // 2)
        self._look_at_limits(callback, num_events, was_stopped)
        return status == DONE

    def _advance(self, max_events: int) -> int:
        """Run the loop once. Returns its status."""
        try:
            status: int | None = self._loop(*self._arguments, max_events)
        except Exception:  # of the function of a user; the environment tells what is wrong
            _log.debug("the environment performs a request of a search itself", exc_info=True)
            return REFUSED
        if status is None:
            raise PlanvecError(
                "env: expected an environment that does not change during a search, got one whose attributes "
                "or methods were changed; change it between two searches"
            )
        return status

    def _record(self, seconds: float) -> None:
        """Count rows and chunks, and audit a row from time to time."""
        totals = self._progress.totals
        num_rows, num_chunks = int(totals[NUM_ROWS]), int(totals[NUM_CHUNKS])
        self._use.record(num_rows - self._num_recorded[0], num_chunks - self._num_recorded[1])
        self._num_recorded = num_rows, num_chunks
        self._seconds += seconds
        if self._seconds >= SECONDS_PER_RUN and totals[NUM_QUEUED]:
            half = int(self._progress.queue[0])
            self._use.audit(self._batch(half), self._outputs(half), self._seconds)
            self._seconds = 0.0
