"""What becomes of a worker that is gone, and of the rows that it was to step.

    a worker dies over a chunk      the row that it had come to is tried alone, the rows around it elsewhere
    ... and dies over that row      again, up to `max_restarts` times; then the row raises, or is flagged
    a worker dies over nothing      what was given to it is given to others; no row loses an attempt

A transition is pure: rows that were lost can run again, anywhere and in any cut, and give the same bits. The
other workers never stop, and a death is a line in the log and a count in `Stats`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium

from planvec.backends.base import WorkerExit
from planvec.backends.sharded.call import Chunk
from planvec.backends.sharded.seats import Queue, Seat
from planvec.backends.stats import Stats
from planvec.errors import PlanvecError, WorkerCrashedError, WorkerStartError, WorkerTimeoutError

__all__ = ["Recovery"]

_log = logging.getLogger("planvec")
_KILLS_PER_DEATH = 10
"""How many workers that somebody has killed count as much as one that died by itself."""
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
"""Seconds before a worker is started again that died by itself twice in a row without finishing anything."""


class Recovery:
    """Replaces workers, and has their rows done by others.

    Args:
        seats: The workers.
        queue: Takes chunks that are to be done again.
        max_restarts: How often a row is tried again after a worker died over it.
        stats: Counts.
        welcome: Called when a worker was started again.

    Attributes:
        action_space: Of one action, to name the one that a worker died over; None until all have started.
        num_idle_deaths: Deaths over nothing since any chunk was last finished.
        num_failed_starts: Deaths of workers that were not ready since any last became ready.
        num_failed: Workers that were given up, and are started again by the next call but one.
    """

    def __init__(
        self,
        seats: Sequence[Seat],
        queue: Queue,
        max_restarts: int,
        stats: Stats,
        welcome: Callable[[Seat], object],
    ) -> None:
        self._seats = seats
        self._queue = queue
        self._max_restarts = max_restarts
        self._max_deaths = max(1, max_restarts) * len(seats)
        self._stats = stats
        self._welcome = welcome
        self._unreported: list[Seat] = []
        self.action_space: gymnasium.Space[Any] | None = None
        self.num_idle_deaths = 0.0
        self.num_failed_starts = 0.0
        self.num_failed = 0

    # -- the workers --------------------------------------------------------------------------------

    def restart_failed(self) -> PlanvecError | None:
        """Before a call, start again what could not be started the last time.

        Returns:
            Why that was, where nobody was told yet; then nothing is started.
        """
        for seat in self._seats:
            if seat.failure is None:
                continue
            if seat in self._unreported:
                self._unreported.remove(seat)
                return seat.failure
            self._set_failure(seat, None)
            seat.worker.restart()
            self._welcome(seat)
        return None

    def _set_failure(self, seat: Seat, failure: PlanvecError | None) -> None:
        seat.failure = failure
        self.num_failed = sum(seat.failure is not None for seat in self._seats)

    def worker_ready(self, seat: Seat) -> None:
        """Note that a worker has become ready."""
        self._set_failure(seat, None)
        self.num_failed_starts = 0

    def worker_exited(self, seat: Seat, exit: WorkerExit) -> None:
        """Replace a worker that is gone, or give it up. Its chunks were told before: see `chunk_lost`."""
        if exit.error is not None:
            self._give_up(seat, exit.error)
            return
        self._stats.exits[exit.reason] += 1
        story, seat.story = seat.story or exit.what, ""
        # Workers that somebody else has killed say little about the environment, but cannot go on for ever.
        share = 1 / _KILLS_PER_DEATH if exit.was_killed else 1
        if exit.was_starting:
            self.num_failed_starts += share
        elif not exit.is_cause:
            self.num_idle_deaths += share
        if max(self.num_failed_starts, self.num_idle_deaths) > self._max_deaths:
            self._give_up_all(seat, story)
            return
        _log.warning("%s; it is replaced", story)
        seat.num_deaths += not exit.was_killed
        repeated = seat.num_deaths - 2
        pause = 0.0 if repeated < 0 else min(_FIRST_PAUSE * 2**repeated, _LONGEST_PAUSE)
        seat.worker.restart(pause)
        self._welcome(seat)

    def _give_up_all(self, seat: Seat, story: str) -> None:
        """Workers die faster than they can be started: give up what was asked for."""
        error = WorkerStartError(
            f"{story}; so did {self._max_deaths} or more before it, with nothing done in between"
        )
        _log.error("%s; the calls that wait are given up", error)
        self._set_failure(seat, error)
        self.num_failed_starts = self.num_idle_deaths = 0
        self._queue.fail_waiting(error)

    def _give_up(self, seat: Seat, error: PlanvecError) -> None:
        """A worker cannot be started: others do its rows, if there are others; the next call raises why."""
        self._set_failure(seat, error)
        if self.action_space is None:
            return  # whoever opens the backend is told
        has_others = any(other.failure is None for other in self._seats)
        _log.error("%s; %s", error, "the others do its rows" if has_others else "no worker is left")
        if has_others:
            self._unreported.append(seat)
        else:
            self._unreported.clear()
            self._queue.fail_waiting(error)
        self._queue.release(seat)

    # -- the rows -----------------------------------------------------------------------------------

    def chunk_lost(self, seat: Seat, chunk: Chunk, exit: WorkerExit) -> None:
        """Decide about a chunk whose worker is gone: try it again, in parts perhaps, or give it up."""
        if chunk.is_done:
            return
        if not exit.is_cause:
            self._queue.retry(chunk)
            return
        seat.story = f"{exit.what} during the {chunk.describe()}"
        chunk.num_deaths += 1
        if not chunk.num_rows:
            if exit.was_late or chunk.num_deaths > self._max_restarts:
                chunk.call.fail(self._error(seat, chunk, exit))
            else:
                self._try_again(chunk)
        elif chunk.is_flagging:
            self._try_whole(seat, chunk, exit)
        elif exit.was_late and not self._masks(chunk):
            chunk.call.fail(self._error(seat, chunk, exit))
        elif chunk.num_rows == 1:
            self._try_alone(seat, chunk, exit)
        elif exit.row is not None:
            self._try_apart(seat, chunk, exit)
        else:
            self._try_whole(seat, chunk, exit)

    def _masks(self, chunk: Chunk) -> bool:
        return chunk.call.request.mask_errors

    def _try_again(self, *chunks: Chunk) -> None:
        self._stats.retries += 1
        self._queue.retry(*chunks)

    def _try_apart(self, seat: Seat, chunk: Chunk, exit: WorkerExit) -> None:
        """Try the row that a worker died over alone, and the rows around it elsewhere."""
        row = exit.row
        assert row is not None
        parts = chunk.call.split(chunk, row, row + 1)
        alone = next(part for part in parts if part.first_row == chunk.first_row + row)
        alone.num_deaths = 0 if exit.was_late else chunk.num_deaths
        self._queue.retry(*(part for part in parts if part is not alone))
        self._try_alone(seat, alone, exit)

    def _try_alone(self, seat: Seat, chunk: Chunk, exit: WorkerExit) -> None:
        """Try one row again that a worker has died over, or find it to be the cause."""
        if chunk.num_deaths <= (0 if exit.was_late else self._max_restarts):
            if chunk.num_deaths < 2:
                self._try_again(chunk)
            else:  # it may kill whoever does it: no other worker shall
                self._stats.retries += 1
                self._queue.bind(seat, chunk)
            return
        error = self._error(seat, chunk, exit)
        if self._masks(chunk):
            _log.warning("%s; the row is flagged", error)
            chunk.call.flag(chunk, error)
            self._queue.retry(chunk)
        else:
            chunk.call.fail_chunk(chunk, error)

    def _try_whole(self, seat: Seat, chunk: Chunk, exit: WorkerExit) -> None:
        """Try rows again of which nobody knows which one was the cause; halve them until it is known."""
        if chunk.num_deaths > self._max_restarts and chunk.is_flagging:
            chunk.call.fail(self._error(seat, chunk, exit))  # they cannot even be flagged
            return
        if chunk.num_deaths <= self._max_restarts:
            self._try_again(chunk)
            return
        halves = chunk.call.split(chunk, chunk.num_rows // 2)
        for half in halves:
            half.num_deaths = self._max_restarts
        self._try_again(*halves)

    def _error(self, seat: Seat, chunk: Chunk, exit: WorkerExit) -> PlanvecError:
        """Return what to raise for a chunk that is given up."""
        make = WorkerTimeoutError if exit.was_late else WorkerCrashedError
        what, row, action = seat.story, None, None
        request = chunk.call.request
        if exit.row is not None and chunk.num_rows:
            assert self.action_space is not None
            at = 0 if chunk.num_rows == 1 else exit.row  # the exit counts from the first row that was given
            row = chunk.first_row + at
            action = request.action(row, exit.step, self.action_space)
        elif chunk.num_rows == 1:
            row = chunk.first_row
        if chunk.num_deaths > 1:
            what += f"; {chunk.num_deaths} workers died over it, one after another"
        elif make is WorkerCrashedError and not self._max_restarts:
            what += "; max_restarts=n tries again, in case it was not the row's fault"
        return make(what, row=row, action=action)
